//! Many calls on one connection, as machines without I/O: what the loader, the test provider, the
//! SDK and the proxy's shard have in common.
//!
//! [`inflight`] (who waits for which reply), [`timer`] (until when) and [`link`] (is the peer still
//! there) own no bytes, and serve every one of them.

pub mod inflight;
pub mod link;
pub mod timer;
