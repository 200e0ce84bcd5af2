//! What the machines of an evaluation say to each other.

use std::num::NonZero;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// What a page is, and how its calls go: what the loader tells the glue server before each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Course {
    pub(super) way: Way,
    /// Calls of a page, [`MAX_CALLS`] at most.
    pub(super) calls: NonZero<u32>,
    /// Whether all of them are sent at once, and not one after another.
    pub(super) concurrent: bool,
    /// Length of the string that each call takes along and brings back, [`MAX_PAYLOAD`] at most.
    pub(super) payload: u32,
}

/// How calls get to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Over one connection.
    Direct,
    /// Through the sidecar.
    Mesh,
    /// Over a connection for each call in flight.
    Many,
}

/// What a machine tells of itself, and of what runs there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) machine: Machine,
    pub(super) processes: Vec<Process>,
}

/// What a process has used so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) name: Name,
    /// CPU time since its start, in seconds.
    pub(super) cpu_s: f64,
    /// Resident memory, in KiB.
    pub(super) rss_kib: u64,
    /// Connections it has to the provider.
    pub(super) connections: usize,
}

/// The processes that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Name {
    Glue,
    Proxy,
    Provider,
}

impl Way {
    /// As it is called in tables and plots.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Mesh => "mesh",
            Self::Many => "many",
        }
    }

    /// Whose connections to the provider calls go over.
    pub(super) fn caller(self) -> Name {
        match self {
            Self::Mesh => Name::Proxy,
            Self::Direct | Self::Many => Name::Glue,
        }
    }
}

/// The one service.
pub(super) const SERVICE: &str = "evaluate.Shop:1.0.0";
/// Its method.
pub(super) const METHOD: &str = "echo";
/// More calls than any page has.
pub(super) const MAX_CALLS: u32 = 1000;
/// Bytes of one call that are still a call and no file.
pub(super) const MAX_PAYLOAD: u32 = 1 << 20;
