//! Every number the proxy counts.
//!
//! A shard adds to plain integers of its own ([`Shard`]); at a scrape each shard is asked for a
//! [`Snapshot`] of them through its [`Source`], which [`Shards`] shows to the registry. What
//! happens beside the shards is counted by handles, one struct per component. `docs/metrics.md`
//! lists every family.

mod collector;
mod control_plane;
mod families;
mod gathered;
mod handles;
mod histogram;
mod labels;
mod shard;
mod source;

pub use collector::Shards;
pub use control_plane::{ControlPlane, Standing};
pub use gathered::Gathered;
pub use handles::{AdminRequests, CopyOnDisk, Listeners, Reloads};
pub use histogram::Histogram;
pub use labels::{
    CloseReason, Counts, HostState, Label, LostReason, Outcome, ProviderStatus, Stray,
};
pub use shard::{
    Calls, HostStats, Io, PerSide, ServiceHost, ServiceStats, Sessions, Shard, Snapshot, Upstream,
};
pub use source::{Answer, Request, Source};

#[cfg(test)]
mod tests;
