//! The process that ties a container together: it starts pilot, proxy and application, keeps the
//! proxy's sockets, tells the proxy what the application calls, and the registry what it provides.
//!
//! Everything happens on one thread, which lives as long as bonder, because the kernel kills the
//! children when the thread ends that started them. Beside it there are the thread of the keeper,
//! those that write the file, and those that write standard output and error.

mod api;
mod backoff;
mod child;
pub mod config;
mod dependencies;
mod http;
mod keeper;
pub mod launch;
mod ledger;
mod probe;
mod process;
pub mod provided;
pub mod providers;
mod registration;
mod run;
mod status;
mod store;
pub mod supervisor;

pub use run::{Error, run};
