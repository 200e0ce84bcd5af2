//! What came out: a table for people, and all figures as JSON.

use std::fmt;
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::Size;
use crate::statistics::percentile;

/// All that was measured. Times are in milliseconds.
#[derive(Debug)]
pub(super) struct Figures {
    size: Size,
    /// From the request to the registry until its answer.
    pub(super) registered: Vec<f64>,
    /// From the request to the registry until a call met the new provider.
    pub(super) applied: Vec<f64>,
    /// The first call of a service that nobody declared.
    pub(super) first_call: Vec<f64>,
    /// The second one.
    pub(super) known_call: Vec<f64>,
    /// Answers of the pilot while every other service changed.
    pub(super) pushes_for_others: u64,
    /// Memory of the proxy, which knows what is declared, and of the pilot.
    pub(super) rss_kib: [u64; 2],
}

impl Figures {
    pub(super) const fn new(size: Size) -> Self {
        Self {
            size,
            registered: Vec::new(),
            applied: Vec::new(),
            first_call: Vec::new(),
            known_call: Vec::new(),
            pushes_for_others: 0,
            rss_kib: [0; 2],
        }
    }

    pub(super) fn json(&self) -> String {
        let times = |of: &[f64]| -> Value {
            let columns = COLUMNS.iter();
            columns
                .map(|(name, share)| (*name, percentile(of, *share)))
                .collect()
        };
        let [proxy, pilot] = self.rss_kib;
        let whole = json!({
            "services": self.size.services,
            "declared": self.size.declared,
            "changes": self.applied.len(),
            "undeclared": self.first_call.len(),
            "registered_ms": times(&self.registered),
            "applied_ms": times(&self.applied),
            "first_call_ms": times(&self.first_call),
            "known_call_ms": times(&self.known_call),
            "pushes_for_others": self.pushes_for_others,
            "rss_kib": { "proxy": proxy, "pilot": pilot },
        });
        format!("{whole:#}\n")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size {
            services, declared, ..
        } = self.size;
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let mut head = vec![format!("{services} services, {declared} declared; ms")];
        head.extend(COLUMNS.map(|(name, _)| name.to_owned()));
        table.set_header(head);
        for (name, times) in [
            ("a change is registered", &self.registered),
            (
                "a call follows it (the pilot waits 20 ms for more)",
                &self.applied,
            ),
            (
                "first call of a service that nobody declared",
                &self.first_call,
            ),
            ("the next call of it", &self.known_call),
        ] {
            let mut row = vec![name.to_owned()];
            let cells = COLUMNS.map(|(_, share)| percentile(times, share));
            row.extend(cells.map(|ms| ms.map_or_else(String::new, |ms| format!("{ms:.2}"))));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let [proxy, pilot] = self.rss_kib.map(|kib| kib / 1024);
        writeln!(f, "{table}")?;
        write!(
            f,
            "memory: proxy {proxy} MiB, pilot {pilot} MiB; pushes to the proxy while the other \
             services changed: {}",
            self.pushes_for_others
        )
    }
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Names of what is told of times, and which share of them lies below.
const COLUMNS: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];
