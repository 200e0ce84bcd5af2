//! File descriptors: a thousand connections need more than a shell usually grants.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lifts our own limit as high as the system lets us.
pub(crate) fn lift_limit() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}
