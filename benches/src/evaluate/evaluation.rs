//! What an evaluation found: figures at each pace, direct and through the mesh, and what follows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::course::{Course, Name, Process};
use crate::load::plan::Pace;
use crate::load::tally::Tally;
use crate::machine::Machine;
use crate::statistics::{Bend, count, median};

/// All of it, as it stands in the JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    /// Of this format.
    pub(crate) version: u32,
    /// When it began.
    pub(crate) date: String,
    /// What was measured: name and version.
    pub(crate) program: String,
    /// Where, by role.
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<Point>,
    /// Rates that were asked for and not measured, because a lower one was too much already.
    pub(crate) left_out: Vec<u64>,
    /// How the time of a page grows with the rate, by way; none if there are too few rates.
    pub(crate) rt_ms_by_rate: BTreeMap<String, Bend>,
    /// By how they failed, of all rounds.
    pub(crate) failed_pages: BTreeMap<String, u64>,
}

/// What every round had in common.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Calls of a page.
    pub(crate) calls: u32,
    /// Whether a page's calls were sent at once.
    pub(crate) concurrent: bool,
    /// Bytes that a call takes along and brings back.
    pub(crate) payload: u32,
    pub(crate) rounds: u32,
    pub(crate) duration_s: f64,
}

/// One pace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) load: Pace,
    pub(crate) direct: Figures,
    pub(crate) mesh: Figures,
    /// The contrast: a connection for each call in flight.
    pub(crate) many: Option<Figures>,
    /// What the mesh adds.
    pub(crate) increase: Increase,
}

/// One way at one pace: medians of its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) pages_per_s: f64,
    pub(crate) calls_per_s: f64,
    /// Of a page.
    pub(crate) rt_ms: Times,
    /// Of one core.
    pub(crate) cpu_percent: Parts,
    pub(crate) rss_mib: Parts,
    /// Connections that the provider has.
    pub(crate) provider_connections: f64,
    /// By how much the answers lagged behind the time that pages were asked for, in seconds.
    pub(crate) lag_s: f64,
}

/// Percentiles, from the time a page was due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

/// A figure of each process. The proxy's is 0 where calls do not go through it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) glue: f64,
    pub(crate) proxy: f64,
    pub(crate) provider: f64,
}

/// What the mesh adds to direct calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Increase {
    /// To the mean time of a page.
    pub(crate) rt_ms: f64,
    /// To the mean time of one of its calls, where they go one after another; else of all.
    pub(crate) rt_us_per_call: f64,
    /// To the CPU of all three processes, in percent of what they take for direct calls. None if
    /// they took nothing that could be measured.
    pub(crate) cpu_percent: Option<f64>,
}

impl Evaluation {
    /// Pages that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed_pages.values().sum()
    }

    /// The points of an open loop, by rate ascending.
    pub(crate) fn rates(&self) -> Vec<(f64, &Point)> {
        let mut rates: Vec<_> = self
            .points
            .iter()
            .filter_map(|point| match point.load {
                Pace::Open(rate) => Some((count(rate.get()), point)),
                Pace::Closed(_) => None,
            })
            .collect();
        rates.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        rates
    }

    /// Fits the lines, once all points are there.
    pub(crate) fn fit(&mut self) {
        let rates = self.rates();
        let of = |figures: fn(&Point) -> &Figures| {
            let points = rates.iter().map(|(x, p)| (*x, figures(p).rt_ms.mean));
            Bend::of(&points.collect::<Vec<_>>())
        };
        let ways = [("direct", of(|p| &p.direct)), ("mesh", of(|p| &p.mesh))];
        let fitted = ways
            .into_iter()
            .filter_map(|(way, b)| Some((way.to_owned(), b?)));
        self.rt_ms_by_rate = fitted.collect();
    }
}

impl Point {
    pub(super) fn new(
        load: Pace,
        shape: &Shape,
        direct: Figures,
        mesh: Figures,
        many: Option<Figures>,
    ) -> Self {
        let rt_ms = mesh.rt_ms.mean - direct.rt_ms.mean;
        let hops = if shape.concurrent { 1 } else { shape.calls };
        let (less, more) = (direct.cpu_percent.whole(), mesh.cpu_percent.whole());
        let increase = Increase {
            rt_ms,
            rt_us_per_call: rt_ms * 1000.0 / count(hops),
            cpu_percent: (less > 0.0).then(|| (more - less) * 100.0 / less),
        };
        Self {
            load,
            direct,
            mesh,
            many,
            increase,
        }
    }
}

impl Figures {
    /// Of one round.
    pub(super) fn new(
        course: &Course,
        tally: &Tally,
        asked: Duration,
        took: Duration,
        before: &[Process],
        after: &[Process],
    ) -> Self {
        let seconds = asked.max(took).as_secs_f64();
        let pages_per_s = count(tally.answered()) / seconds;
        let (mut cpu, mut rss, mut connections) = (Parts::default(), Parts::default(), 0);
        for process in after {
            let name = process.name;
            let earlier = before.iter().find(|earlier| earlier.name == name);
            let used = process.cpu_s - earlier.map_or(0.0, |earlier| earlier.cpu_s);
            *cpu.of(name) = (used * 100.0 / seconds).max(0.0);
            *rss.of(name) = count(process.rss_kib) / 1024.0;
            // The sidecar keeps its connection while calls go direct: it is none of theirs.
            if name == course.way.caller() {
                connections = process.connections;
            }
        }
        if course.way.caller() != Name::Proxy {
            (cpu.proxy, rss.proxy) = (0.0, 0.0);
        }
        let [mean, p50, p90, p99, p99_9, max] = tally.call_latency().map(|(_, us)| us / 1000.0);
        Self {
            pages_per_s,
            calls_per_s: pages_per_s * count(course.calls.get()),
            rt_ms: Times {
                mean,
                p50,
                p90,
                p99,
                p99_9,
                max,
            },
            cpu_percent: cpu,
            rss_mib: rss,
            provider_connections: count(connections),
            lag_s: took.saturating_sub(asked).as_secs_f64(),
        }
    }

    /// Each figure's median over rounds; `None` of none.
    pub(super) fn median(rounds: &[Self]) -> Option<Self> {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(figure));
        let parts = |parts: fn(&Self) -> &Parts| {
            Some(Parts {
                glue: of(&|round| parts(round).glue)?,
                proxy: of(&|round| parts(round).proxy)?,
                provider: of(&|round| parts(round).provider)?,
            })
        };
        Some(Self {
            pages_per_s: of(&|round| round.pages_per_s)?,
            calls_per_s: of(&|round| round.calls_per_s)?,
            rt_ms: Times {
                mean: of(&|round| round.rt_ms.mean)?,
                p50: of(&|round| round.rt_ms.p50)?,
                p90: of(&|round| round.rt_ms.p90)?,
                p99: of(&|round| round.rt_ms.p99)?,
                p99_9: of(&|round| round.rt_ms.p99_9)?,
                max: of(&|round| round.rt_ms.max)?,
            },
            cpu_percent: parts(|round| &round.cpu_percent)?,
            rss_mib: parts(|round| &round.rss_mib)?,
            provider_connections: of(&|round| round.provider_connections)?,
            lag_s: of(&|round| round.lag_s)?,
        })
    }

    /// CPU time of each process for one call, in microseconds.
    pub(crate) fn cpu_us_per_call(&self) -> Parts {
        let cpu = &self.cpu_percent;
        let of = |percent: f64| percent * 10_000.0 / self.calls_per_s.max(f64::MIN_POSITIVE);
        Parts {
            glue: of(cpu.glue),
            proxy: of(cpu.proxy),
            provider: of(cpu.provider),
        }
    }
}

impl Parts {
    /// All three together.
    pub(crate) fn whole(&self) -> f64 {
        self.glue + self.proxy + self.provider
    }

    fn of(&mut self, name: Name) -> &mut f64 {
        match name {
            Name::Glue => &mut self.glue,
            Name::Proxy => &mut self.proxy,
            Name::Provider => &mut self.provider,
        }
    }
}

/// Of the JSON; another one is not read.
pub(crate) const VERSION: u32 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::evaluate::course::Way;
    use std::num::NonZero;

    const SHAPE: Shape = Shape {
        calls: 21,
        concurrent: false,
        payload: 128,
        rounds: 1,
        duration_s: 1.0,
    };

    pub(crate) fn figures(rt_ms: f64, proxy: f64) -> Figures {
        Figures {
            pages_per_s: 100.0,
            calls_per_s: 2100.0,
            rt_ms: Times {
                mean: rt_ms,
                p50: rt_ms,
                p90: rt_ms * 1.2,
                p99: rt_ms * 1.5,
                p99_9: rt_ms * 2.0,
                max: rt_ms * 3.0,
            },
            cpu_percent: Parts {
                glue: 30.0,
                proxy,
                provider: 10.0,
            },
            rss_mib: Parts::default(),
            provider_connections: 1.0,
            lag_s: 0.0,
        }
    }

    /// Made up, and easy to reckon with.
    pub(crate) fn evaluation() -> Evaluation {
        let mut points = Vec::new();
        for (rate, more) in [(20u64, 1.0), (40, 1.1), (80, 1.2), (160, 4.0)] {
            let load = Pace::Open(NonZero::new(rate).expect("not zero"));
            let (direct, mesh) = (figures(more, 0.0), figures(more + 2.1, 8.0));
            points.push(Point::new(load, &SHAPE, direct, mesh, None));
        }
        let load = Pace::Closed(NonZero::new(100).expect("not zero"));
        let many = Some(figures(9.0, 0.0));
        points.push(Point::new(
            load,
            &SHAPE,
            figures(10.0, 0.0),
            figures(20.0, 80.0),
            many,
        ));
        let mut evaluation = Evaluation {
            version: VERSION,
            date: "Tue, 01 Dec 2026 06:00:00 GMT".into(),
            program: "dubbo-mesh 0.1.0".into(),
            machines: BTreeMap::from([("glue".into(), Machine::here())]),
            shape: SHAPE,
            points,
            left_out: vec![320],
            rt_ms_by_rate: BTreeMap::new(),
            failed_pages: BTreeMap::new(),
        };
        evaluation.fit();
        evaluation
    }

    #[test]
    fn the_increase_is_of_a_page_and_of_a_hop() {
        let increase = evaluation().points[0].increase;
        assert!((increase.rt_ms - 2.1).abs() < 1e-9);
        assert!((increase.rt_us_per_call - 100.0).abs() < 1e-6);
        // 40 % direct, 48 % with the mesh
        assert!((increase.cpu_percent.expect("a share") - 20.0).abs() < 1e-9);
    }

    #[test]
    fn calls_at_once_are_one_hop() {
        let shape = Shape {
            concurrent: true,
            ..SHAPE
        };
        let load = Pace::Closed(NonZero::<u32>::MIN);
        let point = Point::new(load, &shape, figures(1.0, 0.0), figures(1.5, 0.0), None);
        assert!((point.increase.rt_us_per_call - 500.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_is_judged_by_its_own_caller() {
        let process = |name, cpu_s, connections| Process {
            name,
            cpu_s,
            rss_kib: 2048,
            connections,
        };
        let before = [Name::Glue, Name::Proxy, Name::Provider].map(|name| process(name, 1.0, 0));
        let after = [
            process(Name::Glue, 1.5, 100),
            process(Name::Proxy, 1.2, 1),
            process(Name::Provider, 1.1, 0),
        ];
        let second = Duration::from_secs(1);
        let round = |way| {
            let course = Course {
                way,
                calls: NonZero::new(21).expect("not zero"),
                concurrent: false,
                payload: 1,
            };
            let tally = Tally::new();
            tally.answer(Duration::from_millis(4), None);
            Figures::new(&course, &tally, second, 2 * second, &before, &after)
        };
        let (many, mesh) = (round(Way::Many), round(Way::Mesh));
        assert!((mesh.cpu_percent.whole() - 40.0).abs() < 1e-9, "{mesh:?}");
        assert!((many.cpu_percent.whole() - 30.0).abs() < 1e-9, "{many:?}");
        assert_eq!(
            (many.provider_connections, mesh.provider_connections),
            (100.0, 1.0)
        );
        assert_eq!(
            (mesh.pages_per_s, mesh.calls_per_s, mesh.lag_s),
            (0.5, 10.5, 1.0)
        );
        assert!((mesh.rt_ms.mean - 4.0).abs() < 0.01, "{mesh:?}");
        assert!((mesh.cpu_us_per_call().proxy - 0.1 / 10.5 * 1e6).abs() < 1e-6);
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let rounds = [figures(1.0, 9.0), figures(3.0, 1.0), figures(2.0, 5.0)];
        assert_eq!(Figures::median(&rounds), Some(figures(2.0, 5.0)));
        assert_eq!(Figures::median(&[]), None);
    }

    #[test]
    fn lines_end_where_the_time_of_a_page_runs_away() {
        let fitted = evaluation().rt_ms_by_rate;
        let direct = &fitted["direct"];
        assert_eq!((direct.until, direct.from), (80.0, Some(160.0)));
    }
}
