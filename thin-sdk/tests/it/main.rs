//! A client, scripted sidecars, and providers, in one process.

mod calls;
mod failover;
mod learning;
mod script;
