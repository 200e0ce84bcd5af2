//! The data plane: the sidecar proxy.

pub mod admin;
pub mod app;
mod call;
pub mod config;
pub mod drain;
pub mod listener;
mod mesh;
pub mod metrics;
pub mod model;
mod policy;
mod shard;
mod upstream;
pub mod xds;

pub use policy::balance::{Entropy, Random};
