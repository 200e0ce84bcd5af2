//! What the control plane says: which services are asked for, and what is known of them.

pub mod cache;
pub mod dependencies;
