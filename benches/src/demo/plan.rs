//! What the processes of the demo know of each other, and what the application tells.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the application is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Where the sidecar takes calls.
    pub(super) sidecar: SocketAddr,
    /// Where it tells the addresses of providers.
    pub(super) admin: SocketAddr,
    /// Where bonder takes declarations.
    pub(super) bonder: SocketAddr,
    /// Where the providers are, for the comparison alone.
    pub(super) providers: Vec<SocketAddr>,
    /// The process of the one that is going to be killed.
    pub(super) victim: u32,
    /// The file that addresses are kept in.
    pub(super) roster: PathBuf,
}

/// How calls get to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Without the mesh.
    Direct,
    /// As the thin SDK sees fit: through the sidecar while that is well.
    Mesh,
}

/// What the application does from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// How calls go; `None`: there are no new ones.
    pub(super) way: Option<Way>,
    /// Whether the times of its pages count.
    pub(super) measured: bool,
}

/// What the application has done so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Calls of pages, which are idempotent; and those of them that failed.
    pub(super) calls: u64,
    pub(super) failed: u64,
    /// How they failed, the first few of them.
    pub(super) failures: Vec<String>,
    /// Answers of any call, by way.
    pub(super) answers: BTreeMap<Way, u64>,
    /// Milliseconds of the pages that count, by way.
    pub(super) pages: BTreeMap<Way, Percentiles>,
    pub(super) payments: Payments,
    /// Calls that are not over.
    pub(super) in_flight: u64,
    pub(super) sdk: Sdk,
    /// The last minute, in steps of [`STEP`].
    pub(super) course: Vec<Step>,
}

/// Calls that may not run twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Payments {
    /// Numbered from 1 to this.
    pub(super) calls: u64,
    /// Numbers of those that failed.
    pub(super) failed: Vec<u64>,
    /// Numbers of those that were in flight when something was killed: begun before it was dead.
    pub(super) in_flight_at_kill: Vec<u64>,
    /// Numbers of those that were begun after that, and before its peers had heard of it.
    pub(super) begun_unaware: Vec<u64>,
}

/// What the SDK says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sdk {
    /// Whether all calls go by the sidecar.
    pub(super) up: bool,
    pub(super) direct: u64,
    pub(super) switched_ms: Option<f64>,
    pub(super) away_ms: Option<f64>,
}

/// Percentiles of a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What happened in a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Seconds since the application began.
    pub(super) at: f64,
    /// Attempts by the sidecar, and direct.
    pub(super) by_sidecar: u64,
    pub(super) direct: u64,
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Victim {
    /// The provider of [`Plan::victim`].
    Provider,
    /// Bonder's child of that name.
    Proxy,
    /// The same.
    Pilot,
}

/// What bonder tells of its children, as far as it matters here.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Status {
    pub(super) children: Vec<Child>,
}

/// A child of bonder.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Child {
    pub(super) name: String,
    pub(super) ready: bool,
    pub(super) pid: Option<u32>,
}

impl Status {
    /// The process of that name, once it is ready.
    pub(super) fn ready(&self, name: &str) -> Option<u32> {
        let mut children = self.children.iter();
        children
            .find(|child| child.name == name && child.ready)?
            .pid
    }
}

/// A service to call twice, one call after the other; the answer is how long each took, in ms.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Twice {
    pub(super) service: String,
}

/// The service that is declared.
pub(super) const SERVICE: &str = "demo.Shop:1.0.0";
/// The one that is not.
pub(super) const UNDECLARED: &str = "demo.Forgotten:1.0.0";
/// An idempotent method: it answers what it is given.
pub(super) const FIND: &str = "find";
/// One that may not run twice: it writes the number it is given into a journal.
pub(super) const PAY: &str = "pay";
/// Calls of a page.
pub(super) const CALLS: u32 = 21;
/// Steps of the course, in milliseconds.
pub(super) const STEP_MS: u64 = 100;
