//! What came out: a table for people, and all figures as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::plan::{Payments, Percentiles, Step};

/// All of it, as it stands in the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// Idempotent calls, and those of them that failed.
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) failures: Vec<String>,
    /// Attempts that did not go by the sidecar, though the application wanted the mesh.
    pub(super) direct_calls: u64,
    /// From the last answer by the sidecar that was killed to the first one direct.
    pub(super) switch_ms: f64,
    /// From there to the first answer by the new sidecar.
    pub(super) back_ms: f64,
    pub(super) first_undeclared_call_ms: f64,
    pub(super) known_call_ms: f64,
    pub(super) calls_of_a_page: u32,
    pub(super) page_rt_ms: PageTimes,
    pub(super) cpu_us_per_call: Costs,
    pub(super) non_idempotent: NonIdempotent,
    /// How calls went, step by step, in the last minute.
    pub(super) course: Vec<Step>,
}

#[derive(Debug, Serialize)]
pub(super) struct PageTimes {
    pub(super) direct: Percentiles,
    pub(super) mesh: Percentiles,
}

/// CPU time per call, in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    pub(super) app_direct: f64,
    pub(super) app_mesh: f64,
    pub(super) proxy: f64,
    pub(super) provider_direct: f64,
    pub(super) provider_mesh: f64,
}

/// Calls that may not run twice.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct NonIdempotent {
    pub(super) calls: u64,
    pub(super) failed: usize,
    pub(super) in_flight_at_kill: usize,
    /// Those that failed, begun after something was killed and before its peers had heard of it.
    pub(super) failed_unaware: usize,
    /// Those that failed, and were neither.
    pub(super) failed_otherwise: usize,
    pub(super) run_twice: usize,
    /// Those that were answered, and of which the providers know nothing.
    pub(super) never_run: usize,
}

impl NonIdempotent {
    /// By what the application saw, and the numbers of what `ran`, each as often as it did.
    pub(super) fn of(payments: &Payments, ran: &[u64]) -> Self {
        let mut times = BTreeMap::new();
        for number in ran {
            *times.entry(*number).or_default() += 1;
        }
        let failed: BTreeSet<_> = payments.failed.iter().copied().collect();
        let in_flight: BTreeSet<_> = payments.in_flight_at_kill.iter().copied().collect();
        let unaware: BTreeSet<_> = payments.begun_unaware.iter().copied().collect();
        let late = &failed - &in_flight;
        let answered = (1..=payments.calls).filter(|number| !failed.contains(number));
        Self {
            calls: payments.calls,
            failed: failed.len(),
            in_flight_at_kill: in_flight.len(),
            failed_unaware: late.intersection(&unaware).count(),
            failed_otherwise: late.difference(&unaware).count(),
            run_twice: times.values().filter(|times: &&u32| **times > 1).count(),
            never_run: answered
                .filter(|number| !times.contains_key(number))
                .count(),
        }
    }
}

impl Outcome {
    /// Whether nothing was lost, and nothing done twice.
    pub(super) fn is_good(&self) -> bool {
        let payments = &self.non_idempotent;
        self.failed == 0
            && payments.failed_otherwise == 0
            && payments.run_twice == 0
            && payments.never_run == 0
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        // Numbers, texts and lists of them can always be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pages, cpu) = (&self.page_rt_ms, &self.cpu_us_per_call);
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["", "direct", "mesh"]);
        let page = self.calls_of_a_page;
        let rows = [
            (
                format!("page of {page} calls, p50, ms"),
                Some(pages.direct.p50),
                pages.mesh.p50,
            ),
            (
                format!("page of {page} calls, p99, ms"),
                Some(pages.direct.p99),
                pages.mesh.p99,
            ),
            (
                "CPU of the application, µs a call".into(),
                Some(cpu.app_direct),
                cpu.app_mesh,
            ),
            ("CPU of the sidecar, µs a call".into(), None, cpu.proxy),
            (
                "CPU of the providers, µs a call".into(),
                Some(cpu.provider_direct),
                cpu.provider_mesh,
            ),
        ];
        for (name, direct, mesh) in rows {
            let direct = direct.map_or_else(String::new, |value| format!("{value:.2}"));
            table.add_row([name, direct, format!("{mesh:.2}")]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        let payments = &self.non_idempotent;
        writeln!(
            f,
            "{} calls, {} failed; {} of them went direct while the sidecar was dead, from {:.1} ms \
             after its last answer",
            self.calls, self.failed, self.direct_calls, self.switch_ms
        )?;
        self.failures
            .iter()
            .try_for_each(|failure| writeln!(f, "  failed: {failure}"))?;
        write!(
            f,
            "{} payments, which may not run twice: {} failed, of {} in flight at a kill; {} ran twice",
            payments.calls, payments.failed, payments.in_flight_at_kill, payments.run_twice
        )?;
        for (count, what) in [
            (
                payments.failed_unaware,
                "failed, begun just after a kill, which nobody had heard of",
            ),
            (
                payments.failed_otherwise,
                "failed though nothing was killed then",
            ),
            (payments.never_run, "were answered and never ran"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One with a figure everywhere.
    pub(in crate::demo) fn outcome() -> Outcome {
        let times = Percentiles { p50: 1.0, p99: 2.0 };
        let step = |at, by_sidecar, direct| Step {
            at,
            by_sidecar,
            direct,
        };
        Outcome {
            calls: 100,
            failed: 0,
            failures: Vec::new(),
            direct_calls: 7,
            switch_ms: 5.0,
            back_ms: 250.0,
            first_undeclared_call_ms: 1.5,
            known_call_ms: 0.5,
            calls_of_a_page: 21,
            page_rt_ms: PageTimes {
                direct: times,
                mesh: times,
            },
            cpu_us_per_call: Costs {
                app_direct: 1.0,
                app_mesh: 2.0,
                proxy: 3.0,
                provider_direct: 4.0,
                provider_mesh: 5.0,
            },
            non_idempotent: NonIdempotent::default(),
            course: vec![step(0.1, 80, 0), step(0.2, 0, 80)],
        }
    }

    #[test]
    fn a_call_that_failed_or_ran_twice_is_no_good() {
        assert!(outcome().is_good());
        let spoil: [fn(&mut Outcome); 4] = [
            |outcome| outcome.failed = 1,
            |outcome| outcome.non_idempotent.failed_otherwise = 1,
            |outcome| outcome.non_idempotent.run_twice = 1,
            |outcome| outcome.non_idempotent.never_run = 1,
        ];
        for spoil in spoil {
            let mut outcome = outcome();
            spoil(&mut outcome);
            assert!(!outcome.is_good());
        }
    }

    #[test]
    fn payments_are_compared_with_what_ran() {
        let payments = Payments {
            calls: 8,
            failed: vec![2, 3, 7],
            in_flight_at_kill: vec![3, 4],
            begun_unaware: vec![7, 8],
        };
        // 2 failed for no reason, 5 ran twice, 6 was answered and did not run.
        let found = NonIdempotent::of(&payments, &[1, 3, 4, 5, 5, 8]);
        let wanted = NonIdempotent {
            calls: 8,
            failed: 3,
            in_flight_at_kill: 2,
            failed_unaware: 1,
            failed_otherwise: 1,
            run_twice: 1,
            never_run: 1,
        };
        assert_eq!(found, wanted);
    }
}
