//! What was measured, and its medians.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::statistics::median;

/// What one contender did under one load; of several rounds, the medians.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) calls_per_s: Option<f64>,
    /// Its own CPU time for each call, and that of the providers behind it.
    pub(super) cpu_us: Option<f64>,
    pub(super) provider_cpu_us: Option<f64>,
    /// Time of a call.
    pub(super) p50_us: Option<f64>,
    pub(super) p90_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p99_9_us: Option<f64>,
    /// Time of a page.
    pub(super) page_p50_us: Option<f64>,
    /// Calls that failed, of all rounds.
    pub(super) failed: u64,
    /// Connections to the first provider while the load runs.
    pub(super) connections: Option<usize>,
    /// The work of the shard that has the least, as a share of all shards'.
    pub(super) least_share: Option<f64>,
}

/// Figures by course and contender.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<(&'static str, String), Vec<Figures>>);

/// The proxy beside its calls.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Footprint {
    /// Memory before the first call.
    pub(super) idle_kib: u64,
    /// The most of it that there was while 1000 calls were in flight.
    pub(super) busy_kib: u64,
    /// The least of it that there was, beyond idle, after 2000 connections were opened and closed.
    pub(super) after_connections_kib: u64,
    /// From the start of the process until it is ready.
    pub(super) cold_start_ms: f64,
    /// Bytes of the program, without what helps to debug it.
    pub(super) program_bytes: u64,
}

impl Figures {
    fn median(rounds: &[Self]) -> Self {
        let of = |field: fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(field));
        Self {
            calls_per_s: of(|round| round.calls_per_s),
            cpu_us: of(|round| round.cpu_us),
            provider_cpu_us: of(|round| round.provider_cpu_us),
            p50_us: of(|round| round.p50_us),
            p90_us: of(|round| round.p90_us),
            p99_us: of(|round| round.p99_us),
            p99_9_us: of(|round| round.p99_9_us),
            page_p50_us: of(|round| round.page_p50_us),
            failed: rounds.iter().map(|round| round.failed).sum(),
            connections: rounds.iter().filter_map(|round| round.connections).max(),
            least_share: of(|round| round.least_share),
        }
    }
}

impl Results {
    pub(super) fn add(&mut self, course: &'static str, contender: &str, round: Figures) {
        let rounds = self.0.entry((course, contender.to_owned())).or_default();
        rounds.push(round);
    }

    /// Medians, if it was measured.
    pub(super) fn of(&self, course: &'static str, contender: &str) -> Option<Figures> {
        let rounds = self.0.get(&(course, contender.to_owned()))?;
        Some(Figures::median(rounds))
    }

    /// Each round, if it was measured.
    pub(super) fn rounds(&self, course: &'static str, contender: &str) -> &[Figures] {
        let rounds = self.0.get(&(course, contender.to_owned()));
        rounds.map_or(&[], Vec::as_slice)
    }

    /// Calls of all that failed.
    pub(super) fn failed(&self) -> u64 {
        self.0.values().flatten().map(|round| round.failed).sum()
    }
}
