//! What has to hold, and whether it does.

use serde::Serialize;

use super::contender::{
    DIRECT, ENVOY, EVERYTHING, HAPROXY, MESH, TEN_PROVIDERS, TWENTY_SERVICES, TWO_SHARDS,
};
use super::course::{
    FAST, HUNDRED, LONG, LONGER, LONGEST, MIX, PAGES, SERIAL, SPREAD, STEADY, THOUSAND,
};
use super::figures::{Figures, Footprint, Results};
use crate::statistics::count;

/// One thing that has to hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) unit: &'static str,
    /// None: not measured.
    pub(super) ours: Option<f64>,
    /// Any of them is enough.
    pub(super) limits: Vec<Limit>,
    pub(super) verdict: Verdict,
}

/// A limit, and what it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Limit {
    pub(super) value: f64,
    pub(super) says: String,
    /// Whether ours has to be above it, not below.
    pub(super) least: bool,
}

/// Whether a bar is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Held,
    Missed,
    /// Something that it takes was not measured.
    Open,
}

/// All of them.
pub(super) fn bars(results: &Results, footprint: Option<Footprint>) -> Vec<Bar> {
    let all = Judge(results);
    let mut bars = vec![
        all.cpu(SERIAL, 0.95),
        all.cpu(HUNDRED, 1.3),
        all.cpu(THOUSAND, 2.0),
        all.cpu(SPREAD, 0.85),
        all.cpu(PAGES, 1.1),
        all.cpu(STEADY, 1.0),
        all.cpu(LONG, 0.75),
        all.cpu(LONGER, 1.1),
        all.cpu(LONGEST, 1.25),
        all.of_our_own(HUNDRED, TEN_PROVIDERS, 1.5),
        all.of_our_own(HUNDRED, TWENTY_SERVICES, 1.5),
        all.of_our_own(HUNDRED, EVERYTHING, 1.15),
        all.of_our_own(SPREAD, TWO_SHARDS, 1.25),
        bar(
            format!("share of the shard with less work, {SPREAD}"),
            "",
            all.get(SPREAD, TWO_SHARDS, |f| f.least_share),
            [least(Some(0.4), "0.4")],
        ),
        bar(
            format!("CPU per call, {HUNDRED}"),
            "µs",
            all.get(HUNDRED, MESH, |f| f.cpu_us),
            [all.times(HUNDRED, ENVOY, |f| f.cpu_us, 1.0 / 15.0)],
        ),
        bar(
            format!("calls, {HUNDRED}"),
            "1/s",
            all.get(HUNDRED, MESH, |f| f.calls_per_s),
            [all.times(HUNDRED, ENVOY, |f| f.calls_per_s, 8.0)
                .map(|limit| Limit {
                    least: true,
                    ..limit
                })],
        ),
        bar(
            format!("added to p50, {SERIAL}"),
            "µs",
            all.added_p50(MESH),
            [most(all.added_p50(HAPROXY), "HAProxy")],
        ),
        bar(
            format!("p50 of a page, {PAGES}"),
            "µs",
            all.get(PAGES, MESH, |f| f.page_p50_us),
            [
                all.times(PAGES, HAPROXY, |f| f.page_p50_us, 1.2),
                all.times(PAGES, FLOOR_EPOLL, |f| f.page_p50_us, 1.05),
            ],
        ),
    ];
    for course in [STEADY, FAST] {
        let p99 = |name| all.get(course, name, |f| f.p99_us);
        bars.push(bar(
            format!("p99, {course}"),
            "µs",
            p99(MESH),
            [
                all.times(course, HAPROXY, |f| f.p99_us, 1.2),
                most(p99(HAPROXY).map(|p99| p99 + 300.0), "HAProxy + 300 µs"),
            ],
        ));
    }
    bars.extend([
        bar(
            format!("p99 beside 1 MiB calls, {MIX}"),
            "µs",
            all.get(MIX, MESH, |f| f.p99_us),
            [all.times(MIX, HAPROXY, |f| f.p99_us, 1.5)],
        ),
        bar(
            format!("CPU of the provider per call, {HUNDRED}"),
            "µs",
            all.get(HUNDRED, MESH, |f| f.provider_cpu_us),
            [all.times(HUNDRED, DIRECT, |f| f.provider_cpu_us, 1.0)],
        ),
        bar(
            format!("connections to the provider, {SPREAD}"),
            "",
            all.get(SPREAD, MESH, |f| f.connections.map(count)),
            [most(Some(1.0), "1")],
        ),
        bar(
            "calls that failed".to_owned(),
            "",
            Some(count(results.failed())),
            [most(Some(0.0), "0")],
        ),
    ]);
    bars.extend(footprint.into_iter().flat_map(of_footprint));
    bars
}

fn of_footprint(it: Footprint) -> [Bar; 5] {
    let mib = |kib: u64| Some(count(kib) / 1024.0);
    let fixed = |what: &str, unit, ours, limit: f64| {
        let limit = most(Some(limit), &limit.to_string());
        bar(what.to_owned(), unit, ours, [limit])
    };
    [
        fixed("memory, idle", "MiB", mib(it.idle_kib), 10.0),
        fixed(
            "memory, 1000 calls in flight",
            "MiB",
            mib(it.busy_kib),
            16.0,
        ),
        fixed(
            "memory that stays of 2000 connections",
            "MiB",
            mib(it.after_connections_kib),
            2.0,
        ),
        fixed(
            "program, stripped",
            "MB",
            Some(count(it.program_bytes) / 1e6),
            30.0,
        ),
        fixed("cold start", "ms", Some(it.cold_start_ms), 50.0),
    ]
}

/// Reads results.
struct Judge<'r>(&'r Results);

impl Judge<'_> {
    fn get(
        &self,
        course: &'static str,
        contender: &str,
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        of(&self.0.of(course, contender)?)
    }

    /// So many times what a contender has.
    fn times(
        &self,
        course: &'static str,
        contender: &str,
        of: fn(&Figures) -> Option<f64>,
        times: f64,
    ) -> Option<Limit> {
        let theirs = self.get(course, contender, of);
        let says = match times {
            1.0 => contender.to_owned(),
            ..1.0 if times < 0.1 => format!("{contender} / {:.0}", 1.0 / times),
            _ => format!("{times} x {contender}"),
        };
        most(theirs.map(|theirs| theirs * times), &says)
    }

    /// CPU per call, as so many times HAProxy's, or a little more than the least there is.
    fn cpu(&self, course: &'static str, times: f64) -> Bar {
        let of = |f: &Figures| f.cpu_us;
        let floor = self.get(course, FLOOR_TOKIO, of);
        let floor = floor.map(|floor| floor + ABOVE_FLOOR);
        bar(
            format!("CPU per call, {course}"),
            "µs",
            self.get(course, MESH, of),
            [
                self.times(course, HAPROXY, of, times),
                most(floor, &format!("{FLOOR_TOKIO} + {ABOVE_FLOOR} µs")),
            ],
        )
    }

    /// CPU per call, as so many times that of our own bare proxy.
    fn of_our_own(&self, course: &'static str, contender: &str, times: f64) -> Bar {
        let of = |f: &Figures| f.cpu_us;
        bar(
            format!("CPU per call, {course}, {contender}"),
            "µs",
            self.get(course, contender, of),
            [self.times(course, MESH, of, times)],
        )
    }

    fn added_p50(&self, contender: &str) -> Option<f64> {
        let p50 = |name| self.get(SERIAL, name, |f| f.p50_us);
        Some(p50(contender)? - p50(DIRECT)?)
    }
}

fn most(value: Option<f64>, says: &str) -> Option<Limit> {
    Some(Limit {
        value: value?,
        says: says.to_owned(),
        least: false,
    })
}

fn least(value: Option<f64>, says: &str) -> Option<Limit> {
    most(value, says).map(|limit| Limit {
        least: true,
        ..limit
    })
}

fn bar(
    what: String,
    unit: &'static str,
    ours: Option<f64>,
    limits: impl IntoIterator<Item = Option<Limit>>,
) -> Bar {
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    let verdict = match ours {
        Some(ours) if limits.iter().any(|limit| limit.allows(ours)) => Verdict::Held,
        Some(_) if !limits.is_empty() => Verdict::Missed,
        _ => Verdict::Open,
    };
    Bar {
        what,
        unit,
        ours,
        limits,
        verdict,
    }
}

impl Limit {
    fn allows(&self, ours: f64) -> bool {
        if self.least {
            ours >= self.value
        } else {
            ours <= self.value
        }
    }
}

/// Yardsticks that bars know by name: the least that such a proxy has to cost.
const FLOOR_TOKIO: &str = "floor-tokio";
const FLOOR_EPOLL: &str = "floor-epoll";
/// Microseconds of a call that a whole proxy may cost more than that.
const ABOVE_FLOOR: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    fn results(figures: &[(&'static str, &str, f64)]) -> Results {
        let mut results = Results::default();
        for (course, contender, cpu_us) in figures {
            let round = Figures {
                cpu_us: Some(*cpu_us),
                ..Figures::default()
            };
            results.add(course, contender, round);
        }
        results
    }

    fn verdict(figures: &[(&'static str, &str, f64)], what: &str) -> Verdict {
        let bars = bars(&results(figures), None);
        let mut named = bars.iter().filter(|bar| bar.what == what);
        named.next().expect(what).verdict
    }

    #[test]
    fn cost_is_judged_beside_haproxy_or_a_yardstick() {
        let what = format!("CPU per call, {STEADY}");
        let ours = (STEADY, MESH, 20.0);
        let of = |others: &[_]| verdict(&[&[ours][..], others].concat(), &what);
        assert_eq!(of(&[]), Verdict::Open);
        assert_eq!(of(&[(STEADY, HAPROXY, 20.0)]), Verdict::Held);
        assert_eq!(of(&[(STEADY, HAPROXY, 19.9)]), Verdict::Missed);
        let floor = (STEADY, FLOOR_TOKIO, 19.9);
        assert_eq!(of(&[(STEADY, HAPROXY, 19.9), floor]), Verdict::Held);
    }

    #[test]
    fn variants_are_judged_beside_the_bare_proxy() {
        let what = format!("CPU per call, {HUNDRED}, {EVERYTHING}");
        for (theirs, wanted) in [(1.15, Verdict::Held), (1.2, Verdict::Missed)] {
            let figures = [(HUNDRED, MESH, 1.0), (HUNDRED, EVERYTHING, theirs)];
            assert_eq!(verdict(&figures, &what), wanted);
        }
    }

    #[test]
    fn some_limits_are_from_below() {
        let limit = least(Some(0.4), "0.4");
        for (ours, wanted) in [(0.4, Verdict::Held), (0.39, Verdict::Missed)] {
            let bar = bar(String::new(), "", Some(ours), [limit.clone()]);
            assert_eq!(bar.verdict, wanted);
        }
    }
}
