//! Counters of what happens beside the shards, one struct per component.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use super::PerSide;

/// The counters of the listeners.
#[derive(Debug, Clone)]
pub struct Listeners {
    /// Connections reset because they came from another host.
    pub foreign: IntCounter,
    /// Accepts that failed.
    pub errors: PerSide<IntCounter>,
    /// Times that accepting stopped because a limit was reached.
    pub full: IntCounter,
}

/// The counters of reloads of the configuration.
#[derive(Debug, Clone)]
pub struct Reloads {
    /// Those that led to a new configuration.
    pub done: IntCounter,
    /// Those of a file that was wrong.
    pub refused: IntCounter,
}

/// The counters of the copy on disk of what the control plane said.
#[derive(Debug, Clone)]
pub struct CopyOnDisk {
    /// Files written or removed.
    pub written: IntCounter,
    /// Times that this failed, and is tried again.
    pub failed: IntCounter,
    /// Services in the copy.
    pub services: IntGauge,
}

/// The counters of the admin.
#[derive(Debug, Clone)]
pub struct AdminRequests {
    /// Requests answered, by status code.
    pub by_code: IntCounterVec,
    waiting: IntGauge,
}

/// A request that waits for something to change, until it is dropped.
#[derive(Debug)]
pub struct Waiting(IntGauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Listeners {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Accepts that failed.";
        let errors = labelled(registry, "mesh_listener_errors_total", help, "side")?;
        let help = "Connections reset because they came from another host.";
        let foreign = counter(registry, "mesh_listener_foreign_total", help)?;
        let help = "Times that accepting stopped because a limit was reached.";
        let full = counter(registry, "mesh_listener_full_total", help)?;
        let errors = PerSide {
            outbound: errors.with_label_values(&["outbound"]),
            inbound: errors.with_label_values(&["inbound"]),
        };
        Ok(Self {
            foreign,
            errors,
            full,
        })
    }
}

impl Reloads {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Times that the configuration was read again.";
        let counters = labelled(registry, "mesh_config_reloads_total", help, "result")?;
        Ok(Self {
            done: counters.with_label_values(&["done"]),
            refused: counters.with_label_values(&["refused"]),
        })
    }
}

impl CopyOnDisk {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Files of the copy on disk that were written or removed, or failed to be.";
        let writes = labelled(registry, "mesh_xds_cache_writes_total", help, "result")?;
        let help = "Services in the copy on disk.";
        Ok(Self {
            written: writes.with_label_values(&["done"]),
            failed: writes.with_label_values(&["failed"]),
            services: gauge(registry, "mesh_xds_cache_services", help)?,
        })
    }
}

impl AdminRequests {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Requests to the admin that were answered.";
        let by_code = labelled(registry, "mesh_admin_requests_total", help, "code")?;
        let help = "Requests for `/failover` that wait for a change.";
        let waiting = gauge(registry, "mesh_admin_waiting", help)?;
        Ok(Self { by_code, waiting })
    }

    /// Counts a request that waits.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.waiting.inc();
        Waiting(self.waiting.clone())
    }
}

pub(super) fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
) -> prometheus::Result<IntCounter> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn labelled(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
) -> prometheus::Result<IntCounterVec> {
    let counters = IntCounterVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}
