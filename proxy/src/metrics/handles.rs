//! Counters of what happens beside the shards, one struct per component.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::PerSide;

/// The counters of the listeners.
#[derive(Debug, Clone)]
pub struct Listeners {
    /// Connections reset because they came from another host.
    pub foreign: IntCounter,
    /// Accepts that failed.
    pub errors: PerSide<IntCounter>,
    /// Times that connections had to wait, because a limit was reached.
    pub full: PerSide<IntCounter>,
}

/// The counters of reloads of the configuration.
#[derive(Debug, Clone)]
pub struct Reloads {
    /// Those that led to a new configuration.
    pub done: IntCounter,
    /// Those of a file that was wrong.
    pub refused: IntCounter,
}

/// The counters of the admin.
#[derive(Debug, Clone)]
pub struct AdminRequests {
    /// Requests answered, by status code.
    pub by_code: IntCounterVec,
}

impl Listeners {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let foreign = "Connections reset because they came from another host.";
        let errors = "Accepts that failed.";
        let full = "Times that connections had to wait, because a limit was reached.";
        let sides = |name, help| -> prometheus::Result<_> {
            let counters = labelled(registry, name, help, "side")?;
            Ok(PerSide {
                outbound: counters.with_label_values(&["outbound"]),
                inbound: counters.with_label_values(&["inbound"]),
            })
        };
        let foreign = IntCounter::new("mesh_listener_foreign_total", foreign)?;
        registry.register(Box::new(foreign.clone()))?;
        Ok(Self {
            foreign,
            errors: sides("mesh_listener_errors_total", errors)?,
            full: sides("mesh_listener_full_total", full)?,
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

impl AdminRequests {
    /// The counters, registered.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Requests to the admin that were answered.";
        Ok(Self {
            by_code: labelled(registry, "mesh_admin_requests_total", help, "code")?,
        })
    }
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
