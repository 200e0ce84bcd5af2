//! What the control plane says: which services are asked for, and what is known of them.
//!
//! [`client`] asks for what applications declare ([`dependencies`]) and for what calls want, over a
//! `stream` that is connected again whenever it is lost. `subscription` is the machine behind it,
//! without I/O; `translate` checks what comes; [`cache`] is the copy on disk.

pub mod cache;
pub mod client;
pub mod dependencies;
mod stream;
mod subscription;
mod translate;
