//! The loader and the test provider.
