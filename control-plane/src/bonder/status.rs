//! How it stands with bonder and its children, for people and machines.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::Instant;

use super::{
    process::Processes,
    supervisor::{Role, State, Supervisor},
};

/// How it stands, at the last change.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    ending: bool,
    children: Vec<Child>,
}

#[derive(Debug, Clone)]
struct Child {
    role: Role,
    state: State,
    since: Instant,
    pid: Option<u32>,
    restarts: u64,
    last_exit: Option<String>,
}

/// How far bonder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not every child is ready.
    Starting,
    /// Every one is.
    Ready,
    /// They are taken down.
    Ending,
}

impl Phase {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Ending => "ending",
        }
    }
}

/// What the page shows.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    version: &'static str,
    pid: u32,
    state: &'static str,
    children: Vec<ChildPage>,
}

#[derive(Debug, Serialize)]
struct ChildPage {
    name: &'static str,
    state: &'static str,
    ready: bool,
    pid: Option<u32>,
    /// Since when it is so, in seconds of the Unix epoch.
    since: u64,
    restarts: u64,
    last_exit: Option<String>,
}

impl Status {
    /// How it stands now.
    pub(super) fn of(supervisor: &Supervisor, processes: &Processes) -> Self {
        let children = supervisor.children().iter().map(|child| Child {
            role: child.role,
            state: child.state,
            since: Instant::from_std(child.since),
            pid: processes.pid(child.role),
            restarts: child.restarts,
            last_exit: child.last_exit.map(|exit| exit.to_string()),
        });
        Self {
            ending: supervisor.is_ending(),
            children: children.collect(),
        }
    }

    /// How far bonder is.
    pub(super) fn phase(&self) -> Phase {
        let ready = self
            .children
            .iter()
            .all(|child| child.state == State::Ready);
        match (self.ending, ready) {
            (true, _) => Phase::Ending,
            (false, true) => Phase::Ready,
            (false, false) => Phase::Starting,
        }
    }

    /// For a reader of now.
    pub(super) fn print(&self) -> Page {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = epoch.unwrap_or(Duration::ZERO);
        let children = self.children.iter().map(|child| ChildPage {
            name: child.role.as_str(),
            state: match child.state {
                State::Waiting => "waiting",
                State::Starting => "starting",
                State::Ready => "ready",
                State::Pausing(_) => "pausing",
                State::Ending(_) => "ending",
                State::Killed => "killed",
                State::Over => "over",
            },
            ready: child.state == State::Ready,
            pid: child.pid,
            since: now.saturating_sub(child.since.elapsed()).as_secs(),
            restarts: child.restarts,
            last_exit: child.last_exit.clone(),
        });
        Page {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            state: self.phase().as_str(),
            children: children.collect(),
        }
    }
}
