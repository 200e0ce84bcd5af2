//! The loader and the test provider: what the mesh is measured with, and against.
//!
//! Both drive the machines of [`dubbo_proto::mux`]. They must cost little beside what they measure:
//! a batch of answers is one write, and a call allocates nothing.

mod cpu;
pub mod demo;
mod descriptors;
pub mod load;
mod pace;
pub mod part;
pub mod provider;
mod signals;
mod time;
