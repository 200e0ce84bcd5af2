//! A whole measurement: what was measured, where and how, what came out, and what follows.

use std::fmt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::bar::{Bar, Verdict, bars};
use super::contender::HAPROXY;
use super::course::Course;
use super::figures::{Figures, Footprint, Results};
use super::{Options, wanted};
use crate::machine::Machine;

/// All of it.
#[derive(Debug)]
pub(super) struct Record {
    date: String,
    machine: Machine,
    cores: &'static str,
    commit: String,
    command: String,
    rounds: u32,
    duration: Duration,
    /// Whether it is long enough to judge by.
    judged: bool,
    pub(super) courses: Vec<&'static Course>,
    /// Names, and what they say of their versions.
    pub(super) contenders: Vec<(String, Option<String>)>,
    /// Peers that are not there, and how to get them.
    pub(super) missing: Vec<&'static str>,
    pub(super) results: Results,
    pub(super) footprint: Option<Footprint>,
}

impl Record {
    pub(super) fn new(
        options: &Options,
        rounds: u32,
        duration: Duration,
        machine: Machine,
        cores: &'static str,
    ) -> Self {
        Self {
            date: httpdate::fmt_http_date(SystemTime::now()),
            machine,
            cores,
            commit: commit(),
            command: command(),
            rounds,
            duration,
            judged: !options.quick,
            courses: wanted(options).collect(),
            contenders: Vec::new(),
            missing: Vec::new(),
            results: Results::default(),
            footprint: None,
        }
    }

    /// Whether no call failed, and every bar was held that could be judged.
    pub(super) fn is_good(&self) -> bool {
        let missed = |bar: &Bar| bar.verdict == Verdict::Missed;
        self.results.failed() == 0 && !self.bars().iter().any(missed)
    }

    /// What has to hold, as far as it was measured; open where that was too short to judge by.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let mut all = bars(&self.results, self.footprint);
        all.retain(|bar| bar.ours.is_some());
        if !self.judged {
            all.iter_mut().for_each(|bar| bar.verdict = Verdict::Open);
        }
        all
    }

    /// Where and how it was measured, line by line.
    pub(super) fn circumstances(&self) -> Vec<String> {
        let (rounds, duration) = (self.rounds, self.duration);
        let mut lines = vec![
            format!("{}: {}", self.date, self.machine),
            format!("commit {}: `{}`", self.commit, self.command),
            format!(
                "medians of {rounds} rounds of {duration:?}, in turns; {}",
                self.cores
            ),
        ];
        let versions = self.contenders.iter();
        lines.extend(
            versions.filter_map(|(name, version)| Some(format!("{name}: {}", version.as_deref()?))),
        );
        lines.extend(self.missing.iter().map(|&missing| missing.to_owned()));
        if !self.judged {
            lines.push("a quick look, too short for a verdict".into());
        }
        lines
    }

    /// The courses that each contender took.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&'static Course, &str, Figures)> {
        self.courses.iter().flat_map(move |&course| {
            self.contenders.iter().filter_map(move |(name, _)| {
                let figures = self.results.of(course.name, name)?;
                Some((course, name.as_str(), figures))
            })
        })
    }

    /// All figures, as text between columns.
    pub(super) fn figures(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let head = vec![
            "load",
            "",
            "CPU µs",
            "x HAProxy",
            "provider µs",
            "calls/s",
            "p50 µs",
            "p99 µs",
            "page p50 µs",
            "connections",
        ];
        let rows = self.taken().map(|(course, name, figures)| {
            let relay = self.results.of(course.name, HAPROXY);
            let relay = relay.and_then(|relay| relay.cpu_us);
            let times = figures
                .cpu_us
                .zip(relay)
                .map(|(ours, theirs)| ours / theirs);
            let connections = figures.connections.map(|n| n.to_string());
            vec![
                course.name.to_owned(),
                name.to_owned(),
                shown(figures.cpu_us),
                shown(times),
                shown(figures.provider_cpu_us),
                shown(figures.calls_per_s),
                shown(figures.p50_us),
                shown(figures.p99_us),
                shown(figures.page_p50_us),
                connections.unwrap_or_default(),
            ]
        });
        (head, rows.collect())
    }

    /// What has to hold, as text between columns.
    pub(super) fn verdicts(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let row = |bar: Bar| {
            let limits = bar.limits.iter().map(|limit| {
                let sign = if limit.least { "≥" } else { "≤" };
                format!("{sign} {} ({})", shown(Some(limit.value)), limit.says)
            });
            let limits: Vec<_> = limits.collect();
            let verdict = match bar.verdict {
                Verdict::Held => "held",
                Verdict::Missed => "MISSED",
                Verdict::Open => "",
            };
            let ours = shown(bar.ours);
            vec![
                bar.what,
                format!("{ours} {}", bar.unit).trim_end().to_owned(),
                limits.join(" or "),
                verdict.to_owned(),
            ]
        };
        let rows = self.bars().into_iter().map(row).collect();
        (vec!["", "ours", "bar", ""], rows)
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let courses = self.courses.iter().map(|course| {
            let contenders = self.taken().filter(|(of, ..)| of.name == course.name);
            let contenders = contenders.map(|(_, name, medians)| {
                let rounds = self.results.rounds(course.name, name);
                json!({ "name": name, "medians": medians, "rounds": rounds })
            });
            json!({
                "name": course.name,
                "load": course.describe(),
                "contenders": contenders.collect::<Vec<_>>(),
            })
        });
        let contenders = self.contenders.iter();
        let whole: Value = json!({
            "date": self.date,
            "machine": self.machine,
            "cores": self.cores,
            "commit": self.commit,
            "command": self.command,
            "rounds": self.rounds,
            "duration_s": self.duration.as_secs_f64(),
            "judged": self.judged,
            "contenders": contenders
                .map(|(name, version)| json!({ "name": name, "version": version }))
                .collect::<Vec<_>>(),
            "missing": self.missing,
            "courses": courses.collect::<Vec<_>>(),
            "footprint": self.footprint,
            "failed_calls": self.results.failed(),
            "bars": self.bars(),
        });
        format!("{whole:#}\n")
    }

    /// A chapter of a page of such records.
    pub(super) fn markdown(&self) -> String {
        let lines = self.circumstances();
        let lines: String = lines.iter().map(|line| format!("- {line}\n")).collect();
        let courses = self.courses.iter();
        let loads: String = courses
            .map(|course| format!("- `{}`: {}\n", course.name, course.describe()))
            .collect();
        let table = |(head, rows)| {
            let mut table = table(head, rows);
            table.load_style(ASCII_MARKDOWN);
            table
        };
        format!(
            "\n## {date}, {commit}\n\n{lines}\n{verdicts}\n\n{loads}\n{figures}\n",
            date = self.date,
            commit = self.commit,
            verdicts = table(self.verdicts()),
            figures = table(self.figures()),
        )
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (head, rows) in [self.figures(), self.verdicts()] {
            let mut table = table(head, rows);
            table.load_style(UTF8_FULL_CONDENSED);
            writeln!(f, "{table}")?;
        }
        let failed = self.results.failed();
        writeln!(f, "{failed} calls failed")?;
        let lines = self.circumstances();
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn table(head: Vec<&'static str>, rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.set_header(head);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The commit that is checked out here, and whether something is changed; the version elsewhere.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let told = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(told.stdout).ok()?;
        told.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return format!("of version {}", env!("CARGO_PKG_VERSION"));
    };
    let clean = git(&["status", "--porcelain", "--untracked-files=no"]);
    if clean.is_some_and(|changes| changes.is_empty()) {
        commit
    } else {
        format!("{commit} with changes")
    }
}

/// How this program was called, without the folder that it is in.
fn command() -> String {
    let words = std::env::args().skip(1);
    let words = ["dubbo-mesh".to_owned()].into_iter().chain(words);
    words.collect::<Vec<_>>().join(" ")
}

/// Three digits that count, at least.
fn shown(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.fract() == 0.0 || value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::MESH;
    use super::super::course::{COURSES, STEADY};
    use super::super::report;
    use super::*;

    /// One that costs more than HAProxy.
    fn record(judged: bool) -> Record {
        let mut results = Results::default();
        for (contender, cpu_us) in [(MESH, 20.0), (HAPROXY, 10.0)] {
            let figures = Figures {
                cpu_us: Some(cpu_us),
                ..Figures::default()
            };
            results.add(STEADY, contender, figures);
        }
        Record {
            date: String::new(),
            machine: Machine::here(),
            cores: "",
            commit: String::new(),
            command: String::new(),
            rounds: 1,
            duration: Duration::ZERO,
            judged,
            courses: COURSES.iter().filter(|of| of.name == STEADY).collect(),
            contenders: vec![(MESH.into(), None), (HAPROXY.into(), None)],
            missing: Vec::new(),
            results,
            footprint: None,
        }
    }

    #[test]
    fn a_quick_look_is_no_verdict_anywhere() {
        for judged in [true, false] {
            let record = record(judged);
            assert_eq!(record.is_good(), !judged);
            let page = report::html(&record).expect("a page");
            let json = record.json();
            assert_eq!(json.contains("\"missed\""), judged, "{json}");
            for told in [record.to_string(), record.markdown(), page] {
                assert_eq!(told.contains("MISSED"), judged, "{told}");
                assert_ne!(told.contains("too short for a verdict"), judged, "{told}");
            }
        }
    }
}
