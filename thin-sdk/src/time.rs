//! The clock: read by drivers only, machines are told the time.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "the drivers of this crate read the clock here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
