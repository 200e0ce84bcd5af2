//! How it stands with the control plane: for the metrics, and for people.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge, Registry};

use super::handles::{counter, gauge};

/// How it stands with the control plane. Clones share it.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    connected: IntGauge,
    connects: IntCounter,
    refused: IntCounter,
    services: IntGauge,
    pending: IntGauge,
    learned: IntGauge,
    confirmed: IntGauge,
    standing: Arc<Mutex<Standing>>,
}

/// How it stands now, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// The server that is connected.
    pub server: Option<SocketAddr>,
    /// Why there is none, or why the last one was lost.
    pub lost: Option<String>,
    /// Why a message was refused last.
    pub refused: Option<String>,
    /// When all that is known was true last.
    pub confirmed: Option<SystemTime>,
    /// Services that are asked for, and those of them that are not answered yet.
    pub services: (usize, usize),
    /// Services that are asked for because of a call.
    pub learned: usize,
    /// What is wrong with the file of the dependencies.
    pub dependencies: Option<String>,
}

impl ControlPlane {
    /// The families, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name, help| counter(registry, name, help);
        let gauge = |name, help| gauge(registry, name, help);
        Ok(Self {
            connected: gauge(
                "mesh_xds_connected",
                "Whether a control plane is connected.",
            )?,
            connects: counter("mesh_xds_connects_total", "Streams to a control plane.")?,
            refused: counter(
                "mesh_xds_rejected_total",
                "Messages refused, whole or in part.",
            )?,
            services: gauge("mesh_xds_services", "Services that are asked for.")?,
            pending: gauge(
                "mesh_xds_services_pending",
                "Those of them not answered yet.",
            )?,
            learned: gauge(
                "mesh_xds_services_learned",
                "Those of them that a call asked for.",
            )?,
            confirmed: gauge(
                "mesh_xds_confirmed_timestamp_seconds",
                "When all that is known was true last, since 1970; 0 if never.",
            )?,
            standing: Arc::default(),
        })
    }

    /// A server took a stream.
    pub fn connected(&self, server: SocketAddr) {
        self.connected.set(1);
        self.connects.inc();
        self.standing.lock().server = Some(server);
    }

    /// A stream ended, or there was none to be had.
    pub fn lost(&self, server: SocketAddr, cause: &str) {
        self.connected.set(0);
        let mut standing = self.standing.lock();
        standing.server = None;
        standing.lost = Some(format!("{server}: {cause}"));
    }

    /// A message was refused, whole or in part.
    pub fn refused(&self, reason: &str) {
        self.refused.inc();
        self.standing.lock().refused = Some(reason.to_owned());
    }

    /// All that is known was true then.
    pub fn confirmed(&self, at: Option<SystemTime>) {
        let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let secs = since.map_or(0, |since| since.as_secs());
        self.confirmed.set(i64::try_from(secs).unwrap_or(i64::MAX));
        self.standing.lock().confirmed = at;
    }

    /// So many services are asked for, not answered yet, and asked for because of a call; and this
    /// is wrong with the file of the dependencies.
    pub fn services(&self, all: usize, pending: usize, learned: usize, problem: Option<String>) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.services.set(number(all));
        self.pending.set(number(pending));
        self.learned.set(number(learned));
        let mut standing = self.standing.lock();
        standing.services = (all, pending);
        standing.learned = learned;
        standing.dependencies = problem;
    }

    /// How it stands now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }
}
