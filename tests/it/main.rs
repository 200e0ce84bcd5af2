//! Tests of the whole mesh inside one process, and of the shape of its code.

mod layering;
