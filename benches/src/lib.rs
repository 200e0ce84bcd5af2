//! The loader, the test provider and the evaluation: what the mesh is measured with, and against.
//!
//! Loader and provider drive the machines of [`dubbo_proto::mux`]. They must cost little beside what they measure:
//! a batch of answers is one write, and a call allocates nothing.

mod configuration;
mod connections;
mod cpu;
pub mod data_plane;
pub mod demo;
mod descriptors;
pub mod discovery;
pub mod estimate;
pub mod evaluate;
pub mod file;
pub mod http;
pub mod load;
mod machine;
mod pace;
mod page;
pub mod part;
mod plot;
mod progress;
pub mod provider;
mod signals;
mod statistics;
mod time;
