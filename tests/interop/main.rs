//! Tests that start processes: the program itself, and real peers around it.
//!
//! Those that need a JDK, Go, HAProxy or root are ignored by default: `tests/peers/build` makes what
//! they need, `.ci/run` runs them all, and one that finds its peer missing fails.

mod bonder;
mod data_plane;
mod demo;
mod discovery;
mod evaluate;
mod exceptions;
mod faults;
mod go;
mod hop;
mod java;
mod listeners;
mod load;
mod mesh;
mod names;
mod peers;
mod raw;
mod sdk;
mod sidecar;
mod silent;
mod xds;
