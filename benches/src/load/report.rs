//! What came out: a table for people, and all figures as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use super::Round;
use super::plan::{Pace, Plan};
use crate::statistics::{count, median};

/// All rounds of a load.
#[derive(Debug)]
pub(super) struct Report {
    title: String,
    shape: Value,
    targets: Vec<SocketAddr>,
    /// Whether calls make pages.
    serial: bool,
    rounds: Vec<(Round, Figures)>,
}

/// Numbers by name, in the order they are told in. The name ends with the unit.
#[derive(Debug, Clone, PartialEq, Default)]
struct Figures(Vec<(String, f64)>);

impl Report {
    pub(super) fn new(plan: &Plan, target: SocketAddr, compare: Option<SocketAddr>) -> Self {
        let targets = [Some(target), compare].into_iter().flatten().collect();
        Self {
            title: title(plan),
            shape: shape(plan),
            targets,
            serial: plan.serial.get() > 1,
            rounds: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, round: Round) {
        let figures = Figures::of(&round, self.serial);
        self.rounds.push((round, figures));
    }

    /// Calls that failed, of all rounds.
    pub(super) fn failed_calls(&self) -> u64 {
        self.rounds.iter().map(|(round, _)| round.failed()).sum()
    }

    /// Everything: each round, and the medians and their ratios if there are two targets.
    pub(super) fn json(&self) -> String {
        let medians: Vec<_> = self
            .targets
            .iter()
            .map(|target| self.median(*target))
            .collect();
        let rounds = self.rounds.iter().map(|(round, figures)| {
            json!({
                "target": round.target.to_string(),
                "figures": figures.json(),
                "failures": round.failures,
            })
        });
        let mut whole = json!({
            "load": self.shape,
            "failed_calls": self.failed_calls(),
            "rounds": rounds.collect::<Vec<_>>(),
            "medians": self.targets.iter().zip(&medians).map(|(target, figures)| {
                json!({ "target": target.to_string(), "figures": figures.json() })
            }).collect::<Vec<_>>(),
        });
        if let [first, second] = &medians[..] {
            whole["ratios"] = second.over(first).json();
        }
        format!("{whole:#}\n")
    }

    fn median(&self, target: SocketAddr) -> Figures {
        let of_target = |(round, _): &&(Round, Figures)| round.target == target;
        let rounds = self.rounds.iter().filter(of_target);
        Figures::median(&rounds.map(|(_, figures)| figures).collect::<Vec<_>>())
    }

    fn failures(&self, target: SocketAddr) -> BTreeMap<&str, u64> {
        let mut sum = BTreeMap::new();
        let rounds = self.rounds.iter().map(|(round, _)| round);
        for round in rounds.filter(|round| round.target == target) {
            for (kind, calls) in &round.failures {
                *sum.entry(kind.as_str()).or_default() += calls;
            }
        }
        sum
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medians: Vec<_> = self
            .targets
            .iter()
            .map(|target| self.median(*target))
            .collect();
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let mut head = vec![String::new()];
        head.extend(self.targets.iter().map(ToString::to_string));
        let ratios = match &medians[..] {
            [first, second] => {
                head.push("ratio".to_owned());
                Some(second.over(first))
            }
            _ => None,
        };
        table.set_header(head);
        let columns: Vec<_> = medians.iter().chain(&ratios).collect();
        let names = medians
            .first()
            .map(|first| first.0.iter().map(|(name, _)| name));
        for (row, name) in names.into_iter().flatten().enumerate() {
            let mut cells = vec![name.clone()];
            cells.extend(
                columns
                    .iter()
                    .map(|figures| figures.0.get(row).map_or(0.0, |(_, v)| *v))
                    .map(shown),
            );
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}\n{table}", self.title)?;
        for target in &self.targets {
            for (kind, calls) in self.failures(*target) {
                writeln!(f, "{target}: {calls} calls failed: {kind}")?;
            }
        }
        Ok(())
    }
}

impl Figures {
    fn of(round: &Round, serial: bool) -> Self {
        let mut figures = Self::default();
        figures.push("calls", count(round.answered));
        figures.push("calls_per_s", round.calls_per_s());
        figures.push("failed_calls", count(round.failed()));
        figures.extend("", round.call_latency);
        if serial {
            figures.extend("page_", round.page_latency);
        }
        for used in &round.used {
            let name = Plan::name_of(used.pid);
            figures.push(
                &format!("cpu_of_{name}_us_per_call"),
                round.cpu_us_per_call(used),
            );
            figures.push(&format!("cpu_of_{name}_percent"), round.cpu_percent(used));
            figures.push(&format!("rss_of_{name}_kib"), count(used.rss_kib));
        }
        figures
    }

    fn push(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    fn extend(&mut self, prefix: &str, values: impl IntoIterator<Item = (&'static str, f64)>) {
        for (name, value) in values {
            self.push(&format!("{prefix}{name}"), value);
        }
    }

    /// Each figure's median. All rounds have the same figures.
    fn median(rounds: &[&Self]) -> Self {
        let Some(first) = rounds.first() else {
            return Self::default();
        };
        let of = |(row, (name, _)): (usize, &(String, f64))| {
            let median = median(rounds.iter().map(|figures| figures.0[row].1));
            (name.clone(), median.unwrap_or_default())
        };
        Self(first.0.iter().enumerate().map(of).collect())
    }

    /// Each figure as a multiple of the other's.
    fn over(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(
            pairs
                .map(|((name, a), (_, b))| (name.clone(), a / b))
                .collect(),
        )
    }

    /// What is no number, such as a multiple of nothing, is null.
    fn json(&self) -> Value {
        let entries = self
            .0
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)));
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

fn title(plan: &Plan) -> String {
    let what = match plan.serial.get() {
        1 => "calls".to_owned(),
        serial => format!("pages of {serial} serial calls"),
    };
    let pace = match plan.pace {
        Pace::Closed(n) => format!("{what}, {n} in flight"),
        Pace::Open(rate) => format!("{what}, {rate} a second"),
    };
    let connections = plan.connections;
    let (bytes, duration) = (plan.longest_body(), plan.duration);
    format!("{pace}, connections: {connections}, body: {bytes} bytes, for {duration:?}")
}

/// The same for programs.
fn shape(plan: &Plan) -> Value {
    let (concurrency, rate) = match plan.pace {
        Pace::Closed(n) => (Some(n), None),
        Pace::Open(rate) => (None, Some(rate)),
    };
    json!({
        "concurrency": concurrency,
        "rate": rate,
        "serial": plan.serial,
        "connections": plan.connections,
        "body_len": plan.longest_body(),
        "services": plan.bodies.len(),
        "duration_s": plan.duration.as_secs_f64(),
        "timeout_s": plan.timeout.as_secs_f64(),
    })
}

fn shown(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".to_owned(),
        _ if value != 0.0 && value.abs() < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[f64]) -> Figures {
        Figures(
            values
                .iter()
                .map(|value| ("x".to_owned(), *value))
                .collect(),
        )
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let rounds = [
            figures(&[1.0, 30.0]),
            figures(&[5.0, 10.0]),
            figures(&[3.0, 20.0]),
        ];
        let all: Vec<_> = rounds.iter().collect();
        assert_eq!(Figures::median(&all), figures(&[3.0, 20.0]));
        assert_eq!(Figures::median(&all[..2]), figures(&[3.0, 20.0]));
        assert_eq!(rounds[1].over(&rounds[2]), figures(&[5.0 / 3.0, 0.5]));
    }

    #[test]
    fn a_multiple_of_nothing_is_not_a_number() {
        let ratio = figures(&[1.0]).over(&figures(&[0.0]));
        assert_eq!(shown(ratio.0[0].1), "-");
        assert_eq!(ratio.json()["x"], Value::Null);
    }
}
