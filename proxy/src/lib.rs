//! The data plane: the sidecar proxy.

pub mod config;
pub mod drain;
pub mod listener;
pub mod metrics;
pub mod model;
