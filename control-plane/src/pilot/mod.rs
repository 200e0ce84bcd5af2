//! The process that proxies ask.

pub mod coalesce;
pub mod discovery;

pub use discovery::Discovery;
