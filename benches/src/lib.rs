//! The loader and the test provider: what the mesh is measured with, and against.
//!
//! Both drive the machines of [`dubbo_proto::mux`]. They must cost little beside what they measure:
//! a batch of answers is one write, and a call allocates nothing.

pub mod demo;
mod descriptors;
pub mod load;
pub mod provider;
mod time;
