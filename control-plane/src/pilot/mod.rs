//! The process that proxies ask.

pub mod clients;
pub mod coalesce;
pub mod discovery;
pub mod resources;
pub mod server;
pub mod subscription;

pub use clients::Clients;
pub use discovery::Discovery;
pub use server::Ads;
