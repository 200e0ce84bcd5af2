//! The data plane: the sidecar proxy.

pub mod config;
pub mod metrics;
pub mod model;
