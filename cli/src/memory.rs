//! Memory that is free goes back to the system.
//!
//! mimalloc gives back what has been free for a while, but only when a large block is freed again: a
//! process that has become idle keeps what its last burst took. So a daemon frees one now and then.

use std::{hint::black_box, io, thread, time::Duration};

/// Frees a block every [`EVERY`], for as long as the process lives. It is never written to, so it
/// takes no memory itself.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn give_back() -> io::Result<()> {
    let work = || {
        loop {
            thread::sleep(EVERY);
            drop(black_box(Vec::<u8>::with_capacity(LARGE)));
        }
    };
    thread::Builder::new().name("memory".into()).spawn(work)?;
    Ok(())
}

/// Between two blocks.
const EVERY: Duration = Duration::from_secs(2);
/// Bytes of a block that comes from, and goes to, no pool of a thread.
const LARGE: usize = 8 << 20;
