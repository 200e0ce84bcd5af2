//! One target, loaded once.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task;

use super::plan::Plan;
use super::tally::Tally;
use super::{Error, connection};
use crate::cpu;
use crate::statistics::count;
use crate::time::now;

/// What one target did in one round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(super) target: SocketAddr,
    took: Duration,
    /// Calls answered well, and those that failed.
    pub(super) answered: u64,
    failed: u64,
    pub(super) failures: BTreeMap<String, u64>,
    /// In microseconds, of calls and of pages.
    pub(crate) call_latency: [(&'static str, f64); 6],
    pub(crate) page_latency: [(&'static str, f64); 6],
    /// Of the plan's processes, in its order.
    pub(super) used: Vec<Used>,
}

/// What a process used in a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) pid: u32,
    cpu: Duration,
    /// At the end.
    pub(super) rss_kib: u64,
}

impl Round {
    /// Loads `target` as the plan says; inside a `LocalRuntime`. What happens is in `tally` meanwhile.
    pub(crate) async fn measure(
        plan: &Rc<Plan>,
        target: SocketAddr,
        tally: Rc<Tally>,
    ) -> Result<Self, Error> {
        let mut streams = Vec::new();
        for _ in 0..plan.connections.get() {
            let connected = TcpStream::connect(target).await;
            streams.push(connected.map_err(|source| Error::Connect { target, source })?);
        }
        let before = cpu::sample(&plan.processes)?;
        let start = now();
        let mut drivers = task::JoinSet::new();
        for (index, stream) in (0..).zip(streams) {
            let schedule = plan.schedule(index, start);
            let (plan, tally) = (Rc::clone(plan), Rc::clone(&tally));
            drivers.spawn_local(connection::drive(plan, target, stream, schedule, tally));
        }
        let drivers = drivers.join_all().await;
        let took = start.elapsed();
        drivers.into_iter().collect::<io::Result<()>>()?;
        let after = cpu::sample(&plan.processes)?;
        let used = before.iter().zip(&after).map(|(before, after)| Used {
            pid: after.pid,
            cpu: after.cpu.saturating_sub(before.cpu),
            rss_kib: after.rss_kib,
        });
        let failures = tally.failures().into_iter();
        Ok(Self {
            target,
            took,
            answered: tally.answered(),
            failed: tally.failed(),
            failures: failures.map(|(kind, n)| (kind.to_string(), n)).collect(),
            call_latency: tally.call_latency(),
            page_latency: tally.page_latency(),
            used: used.collect(),
        })
    }

    /// Calls answered well in a second.
    pub(crate) fn calls_per_s(&self) -> f64 {
        count(self.answered) / self.took.as_secs_f64()
    }

    /// Calls that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// CPU time of each of the plan's processes, in microseconds for each call.
    pub(crate) fn cpus_us_per_call(&self) -> impl Iterator<Item = f64> {
        self.used.iter().map(|used| self.cpu_us_per_call(used))
    }

    /// CPU time of a process, in microseconds for each call.
    pub(super) fn cpu_us_per_call(&self, used: &Used) -> f64 {
        used.cpu.as_secs_f64() * 1e6 / count(self.answered + self.failed)
    }

    /// CPU time of a process, as a share of one core's, in percent.
    pub(super) fn cpu_percent(&self, used: &Used) -> f64 {
        used.cpu.as_secs_f64() * 100.0 / self.took.as_secs_f64()
    }
}
