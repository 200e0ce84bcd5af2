//! The data plane: the sidecar proxy.
