//! Every number the proxy counts.
//!
//! A shard adds to plain integers of its own ([`Shard`]); at a scrape each shard is asked for a
//! [`Snapshot`] of them through its [`Source`]. `docs/metrics.md` lists every family.

mod histogram;
mod labels;
mod shard;
mod source;

pub use histogram::Histogram;
pub use labels::{
    CloseReason, Counts, HostState, Label, LostReason, Outcome, ProviderStatus, Stray,
};
pub use shard::{Calls, HostStats, Io, PerSide, ServiceStats, Sessions, Shard, Snapshot, Upstream};
pub use source::{Answer, Gathered, Request, Source};
