//! The process that proxies ask.

mod api;
pub mod app;
pub mod clients;
pub mod coalesce;
pub mod config;
pub mod discovery;
mod incoming;
pub mod resources;
pub mod server;
pub mod subscription;

pub use clients::Clients;
pub use discovery::Discovery;
pub use server::Ads;
