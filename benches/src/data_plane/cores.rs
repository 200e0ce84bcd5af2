//! Which core runs what: what is measured has one for itself.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores that this process may use, in two parts.
#[derive(Debug)]
pub(super) struct Cores(Option<Parts>);

#[derive(Debug)]
struct Parts {
    measured: CpuSet,
    others: CpuSet,
}

impl Cores {
    /// Splits them, and moves this thread, which makes the load, away from what is measured. With a
    /// single core everything shares it.
    pub(super) fn split() -> io::Result<Self> {
        let all = sched_getaffinity(OWN)?;
        let (mut measured, mut others, mut count) = (CpuSet::new(), CpuSet::new(), 0);
        for core in (0..CpuSet::count()).filter(|core| all.is_set(*core) == Ok(true)) {
            let part = if count == 0 {
                &mut measured
            } else {
                &mut others
            };
            part.set(core)?;
            count += 1;
        }
        if count < 2 {
            return Ok(Self(None));
        }
        sched_setaffinity(OWN, &others)?;
        Ok(Self(Some(Parts { measured, others })))
    }

    /// Starts a process, all of whose threads stay on the core of what is measured.
    pub(super) fn measured<T, E: From<io::Error>>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(parts) = &self.0 else {
            return start();
        };
        // A child begins where its parent is.
        sched_setaffinity(OWN, &parts.measured).map_err(io::Error::from)?;
        let started = start();
        sched_setaffinity(OWN, &parts.others).map_err(io::Error::from)?;
        started
    }

    /// How it is, in words.
    pub(super) const fn describe(&self) -> &'static str {
        match self.0 {
            Some(_) => "what is measured has one core, loader and providers have the others",
            None => "everything shares one core",
        }
    }
}

/// This thread.
const OWN: Pid = Pid::from_raw(0);
