//! A client, scripted sidecars, and providers, in one process.

mod calls;
mod failover;
mod hostile;
mod learning;
mod script;
