//! The machine that figures were measured on.

use std::fmt;
use std::fs;
use std::num::NonZero;
use std::thread;

use serde::{Deserialize, Serialize};

/// A machine, as far as figures depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model.map_or("unknown CPU", |(_, name)| name).to_owned(),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
            kernel: kernel.trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, kernel } = self;
        write!(f, "{cpu}, {cores} cores, Linux {kernel}")
    }
}
