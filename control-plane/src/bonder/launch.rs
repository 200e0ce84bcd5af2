//! A child that dies with bonder, whatever program it is.
//!
//! Only a process itself can ask to be killed when its parent ends, and what it asked outlives
//! `exec`. So bonder starts every child through this program, which asks, and then becomes the child.

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    os::unix::process::CommandExt,
    process::Command,
};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Why this process did not become another.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parent ended before it was asked for.
    #[error("the process that wanted it is gone")]
    Orphaned,
    /// The system does not kill us with our parent.
    #[error("cannot be tied to its parent: {0}")]
    Tie(#[source] io::Error),
    /// The program cannot be run.
    #[error("{}: {source}", program.to_string_lossy())]
    Execute {
        /// What was to be run.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// The exit code that shells give: 127 for a program that is not there, else 126.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Execute { source, .. } if source.kind() == ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

/// Becomes `program`, which is killed as soon as the process `parent` ends. Returns only if that
/// failed.
pub fn become_child(parent: u32, program: &OsStr, arguments: &[OsString]) -> Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Error::Tie(error.into());
    }
    // It may have ended before we asked.
    let here = getppid().map(Pid::as_raw_nonzero);
    if here.is_none_or(|here| here.get().cast_unsigned() != parent) {
        return Error::Orphaned;
    }
    let source = Command::new(program).args(arguments).exec();
    Error::Execute {
        program: program.to_owned(),
        source,
    }
}
