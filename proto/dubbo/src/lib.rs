//! The Dubbo wire, as bytes and as machines: no sockets, no clock, no threads, no environment.
//!
//! Read the modules in this order, which is the order of the wire: [`head`] (16 bytes), [`frame`]
//! (head and body), [`hessian2`] and [`fastjson2`] (values), [`invocation`] and [`reply`] (bodies),
//! [`key`] (how a service is named), [`mux`] (many calls on one connection).
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing),
    warn(clippy::cast_possible_truncation)
)]

pub mod attachments;
mod body;
pub mod error;
pub mod event;
pub mod fastjson2;
mod foreign;
pub mod frame;
pub mod head;
pub mod hessian2;
pub mod invocation;
pub mod key;
pub mod mux;
pub mod reply;
pub mod text;
