//! The reckoning itself: pure.

use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::{Error, Options};
use crate::evaluate::{Evaluation, Point};
use crate::statistics::between;

/// What a service pays for the mesh.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Reckoning {
    /// Which figures these are: whence, when, where.
    figures: String,
    pages_per_s: f64,
    calls_per_s: f64,
    cores: f64,
    rt_ms: Change,
    /// The sidecar's CPU, in cores.
    sidecar_cores: f64,
    /// What the application's own CPU grows by, in cores.
    application_cores: f64,
    /// What the providers' CPU grows by, in cores, all together.
    providers_cores: f64,
    sidecar_rss_mib: f64,
    /// What to know before believing it.
    remarks: Vec<String>,
}

/// A number that changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Change {
    before: f64,
    after: f64,
}

impl Reckoning {
    /// Reckons for the service of `options` with `figures` that are `source`.
    pub(super) fn new(
        options: &Options,
        figures: &Evaluation,
        source: &str,
    ) -> Result<Self, Error> {
        let mut points: Vec<_> = figures
            .rates()
            .into_iter()
            .map(|(_, point)| point)
            .collect();
        points.retain(|point| point.mesh.calls_per_s > 0.0 && point.direct.calls_per_s > 0.0);
        points.sort_by(|a, b| a.mesh.calls_per_s.total_cmp(&b.mesh.calls_per_s));
        if figures.shape.concurrent && !options.concurrent_calls {
            return Err(Error::Concurrent);
        }
        let (pages, cores) = (f64::from(options.qps.get()), f64::from(options.cores.get()));
        let calls = f64::from(options.calls.get());
        let calls_per_s = pages * calls;
        let at = |of: &dyn Fn(&Point) -> f64| {
            let line = points
                .iter()
                .map(|point| (point.mesh.calls_per_s, of(point)));
            between(&line.collect::<Vec<_>>(), calls_per_s).ok_or(Error::NoRates)
        };
        let hops = if options.concurrent_calls { 1.0 } else { calls };
        let before = options.rt.as_secs_f64() * 1000.0;
        let more = at(&|point| point.increase.rt_us_per_call)? * hops / 1000.0;
        let cores_of = |us_per_call: f64| us_per_call * calls_per_s / 1e6;
        let cpu = |point: &Point| (point.direct.cpu_us_per_call(), point.mesh.cpu_us_per_call());
        let mut this = Self {
            figures: origin(figures, source),
            pages_per_s: pages,
            calls_per_s,
            cores,
            rt_ms: Change {
                before,
                after: before + more.max(0.0),
            },
            sidecar_cores: cores_of(at(&|point| cpu(point).1.proxy)?),
            application_cores: cores_of(at(&|point| cpu(point).1.glue - cpu(point).0.glue)?),
            providers_cores: cores_of(at(&|p| cpu(p).1.provider - cpu(p).0.provider)?),
            sidecar_rss_mib: at(&|point| point.mesh.rss_mib.proxy)?,
            remarks: Vec::new(),
        };
        this.remark(options, figures, &points);
        Ok(this)
    }

    fn remark(&mut self, options: &Options, figures: &Evaluation, points: &[&Point]) {
        let mut say = |remark: String| self.remarks.push(remark);
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            let (least, most) = (first.mesh.calls_per_s, last.mesh.calls_per_s);
            if !(least..=most).contains(&self.calls_per_s) {
                say(format!(
                    "{:.0} calls a second are outside of what was measured, {least:.0} to {most:.0}: \
                     reckoned with the nearest figures",
                    self.calls_per_s
                ));
            }
        }
        if options.concurrent_calls && !figures.shape.concurrent {
            say(
                "the figures are of calls one after another: a page of calls at once waits for \
                 the slowest of them, so the increase is one hop's at least"
                    .to_owned(),
            );
        } else if options.concurrent_calls && figures.shape.calls != options.calls.get() {
            let measured = figures.shape.calls;
            say(format!(
                "the figures are of pages of {measured} calls at once"
            ));
        }
        if self.sidecar_cores > BUSY {
            say(format!(
                "the sidecar is busy for {:.0} % of one core, and has one worker by itself: see \
                 `workers` in docs/config.md",
                self.sidecar_cores * 100.0
            ));
        }
        if self.sidecar_cores + self.application_cores > self.cores {
            say("that is more than the instance has".to_owned());
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        // Numbers, texts and lists of them can always be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn share(&self, cores: f64) -> String {
        let percent = cores * 100.0 / self.cores;
        format!("{percent:+.1} % of {:.0} cores", self.cores)
    }
}

impl fmt::Display for Reckoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { before, after } = self.rt_ms;
        let more = after - before;
        let share = if before > 0.0 {
            format!("{:+.0} %", more * 100.0 / before)
        } else {
            "-".to_owned()
        };
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["", "now", "with the mesh", "increase", ""]);
        let row = |name: &str, cells: [String; 4]| {
            let [now, mesh, increase, share] = cells;
            vec![name.to_owned(), now, mesh, increase, share]
        };
        let none = String::new;
        let cores = |name: &str, cores: f64, share: String| {
            row(name, [none(), none(), format!("{cores:+.3} cores"), share])
        };
        table.add_row(row(
            "time of a page",
            [
                format!("{before:.2} ms"),
                format!("{after:.2} ms"),
                format!("{more:+.2} ms"),
                share,
            ],
        ));
        table.add_row(cores(
            "CPU of the sidecar",
            self.sidecar_cores,
            self.share(self.sidecar_cores),
        ));
        table.add_row(cores(
            "CPU of the application",
            self.application_cores,
            self.share(self.application_cores),
        ));
        table.add_row(cores("CPU of all providers", self.providers_cores, none()));
        let memory = format!("{:+.0} MiB", self.sidecar_rss_mib);
        table.add_row(row(
            "memory of the sidecar",
            [none(), none(), memory, none()],
        ));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(
            f,
            "{:.0} pages a second, {:.0} calls a second\n{table}\nFigures: {}",
            self.pages_per_s, self.calls_per_s, self.figures
        )?;
        self.remarks
            .iter()
            .try_for_each(|remark| writeln!(f, "Note: {remark}."))
    }
}

fn origin(figures: &Evaluation, source: &str) -> String {
    let machines = figures.machines.values();
    let mut machines: Vec<_> = machines.map(ToString::to_string).collect();
    machines.sort();
    machines.dedup();
    let (program, date) = (&figures.program, &figures.date);
    format!(
        "{source} on {date} with {program} on {}",
        machines.join("; ")
    )
}

/// Of one core: a worker that is busier makes calls wait.
const BUSY: f64 = 0.7;

#[cfg(test)]
mod tests {
    use std::num::NonZero;
    use std::time::Duration;

    use super::*;
    use crate::evaluate::tests::evaluation;

    fn options(qps: u32) -> Options {
        let number = |n| NonZero::new(n).expect("not zero");
        Options {
            rt: Duration::from_millis(5),
            calls: number(21),
            qps: number(qps),
            cores: number(4),
            concurrent_calls: false,
            figures: None,
            json: None,
        }
    }

    fn reckon(options: &Options, figures: &Evaluation) -> Reckoning {
        Reckoning::new(options, figures, "made up").expect("an estimate")
    }

    #[test]
    fn a_service_pays_by_the_call() {
        // Made up: 100 us a hop, the proxy takes 8 % of a core for 2100 calls a second.
        let told = reckon(&options(200), &evaluation());
        assert!((told.rt_ms.after - 7.1).abs() < 1e-6, "{told:?}");
        assert!((told.sidecar_cores - 0.16).abs() < 1e-6, "{told:?}");
        assert!(told.application_cores.abs() < 1e-6 && told.providers_cores.abs() < 1e-6);
        let text = told.to_string();
        for wanted in [
            "+2.10 ms",
            "+42 %",
            "+0.160 cores",
            "+4.0 % of 4 cores",
            "made up on Tue",
        ] {
            assert!(text.contains(wanted), "no {wanted}\n{text}");
        }
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let outside = |told: &Reckoning| told.remarks.iter().any(|r| r.contains("outside"));
        assert!(outside(&reckon(&options(200), &evaluation())));
        assert!(!outside(&reckon(&options(100), &evaluation())));
        let busy = reckon(&options(1000), &evaluation());
        assert!(
            busy.remarks.iter().any(|r| r.contains("80 % of one core")),
            "{busy:?}"
        );
        let crowded = Options {
            cores: NonZero::<u32>::MIN,
            ..options(2000)
        };
        let crowded = reckon(&crowded, &evaluation());
        assert!(
            crowded
                .remarks
                .iter()
                .any(|r| r.contains("more than the instance has"))
        );
    }

    #[test]
    fn calls_at_once_pay_for_one_hop() {
        let at_once = Options {
            concurrent_calls: true,
            ..options(100)
        };
        let told = reckon(&at_once, &evaluation());
        assert!((told.rt_ms.after - 5.1).abs() < 1e-6, "{told:?}");
        assert!(told.remarks.iter().any(|r| r.contains("at least")));
        let mut figures = evaluation();
        figures.shape.concurrent = true;
        assert!(matches!(
            Reckoning::new(&options(100), &figures, "made up"),
            Err(Error::Concurrent)
        ));
    }

    #[test]
    fn figures_without_a_rate_are_none() {
        let mut figures = evaluation();
        figures.points.retain(|point| point.many.is_some());
        assert!(matches!(
            Reckoning::new(&options(1), &figures, "made up"),
            Err(Error::NoRates)
        ));
    }
}
