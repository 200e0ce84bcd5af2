//! The rounds of an evaluation, one after another: each pace direct and through the mesh, in turns.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::Method;
use indicatif::ProgressBar;

use super::course::{Course, Process, Usage, Way};
use super::evaluation::{Evaluation, Figures, Point, Shape, VERSION};
use super::{Error, Options, pages};
use crate::http::exchange;
use crate::load::plan::Pace;
use crate::load::tally::Tally;
use crate::machine::Machine;
use crate::progress;

/// What is going to be measured.
#[derive(Debug)]
pub(super) struct Campaign {
    course: Course,
    rates: Vec<NonZero<u64>>,
    concurrency: NonZero<u32>,
    rounds: NonZero<u32>,
    duration: Duration,
    glue: SocketAddr,
    provider: SocketAddr,
    bar: ProgressBar,
    failed: BTreeMap<String, u64>,
}

impl Campaign {
    pub(super) fn new(options: &Options, glue: SocketAddr, provider: SocketAddr) -> Self {
        let (duration, rounds) = if options.quick {
            (QUICK, NonZero::<u32>::MIN)
        } else {
            (options.duration, options.rounds)
        };
        let mut rates = match &options.rates {
            Some(rates) => rates.clone(),
            None if options.quick => QUICK_RATES
                .iter()
                .filter_map(|r| NonZero::new(*r))
                .collect(),
            None => RATES
                .iter()
                .filter_map(|rate| NonZero::new(*rate))
                .collect(),
        };
        rates.sort_unstable();
        rates.dedup();
        let turns = rates.len() * 2 + 3;
        let length = u64::try_from(turns).unwrap_or(u64::MAX) * u64::from(rounds.get());
        let bar = progress::bar(length, "{msg:32} {wide_bar} {pos}/{len} rounds, {eta} left");
        Self {
            course: Course {
                way: Way::Direct,
                calls: options.calls,
                concurrent: options.concurrent_calls,
                payload: options.payload,
            },
            rates,
            concurrency: options.concurrency,
            rounds,
            duration,
            glue,
            provider,
            bar,
            failed: BTreeMap::new(),
        }
    }

    /// Measures all of it.
    pub(super) async fn run(mut self) -> Result<Evaluation, Error> {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let machines = self.machines().await?;
        let (mut points, mut left_out) = (Vec::new(), Vec::new());
        let mut rates = self.rates.clone().into_iter();
        for rate in rates.by_ref() {
            let point = self
                .point(Pace::Open(rate), &[Way::Direct, Way::Mesh])
                .await?;
            // What comes after would only tell how long a queue can grow.
            let enough = self.duration.as_secs_f64() / 10.0 + SLACK.as_secs_f64();
            let carried = point.direct.lag_s.max(point.mesh.lag_s) <= enough;
            points.push(point);
            if !carried {
                break;
            }
        }
        left_out.extend(rates.map(NonZero::get));
        let all = [Way::Direct, Way::Mesh, Way::Many];
        points.push(self.point(Pace::Closed(self.concurrency), &all).await?);
        self.bar.finish_and_clear();
        let mut evaluation = Evaluation {
            version: VERSION,
            date,
            program: program(),
            machines,
            shape: self.shape(),
            points,
            left_out,
            rt_ms_by_rate: BTreeMap::new(),
            failed_pages: self.failed,
        };
        evaluation.fit();
        Ok(evaluation)
    }

    fn shape(&self) -> Shape {
        Shape {
            calls: self.course.calls.get(),
            concurrent: self.course.concurrent,
            payload: self.course.payload,
            rounds: self.rounds.get(),
            duration_s: self.duration.as_secs_f64(),
        }
    }

    /// One pace, each way in turn.
    async fn point(&mut self, pace: Pace, ways: &[Way]) -> Result<Point, Error> {
        let mut rounds: BTreeMap<Way, Vec<Figures>> = BTreeMap::new();
        for _ in 0..self.rounds.get() {
            for way in ways {
                self.bar.set_message(match pace {
                    Pace::Open(rate) => format!("{}, {rate} pages a second", way.as_str()),
                    Pace::Closed(pages) => format!("{}, {pages} pages at once", way.as_str()),
                });
                let figures = self.round(pace, *way).await?;
                rounds.entry(*way).or_default().push(figures);
                self.bar.inc(1);
            }
        }
        let of = |way| rounds.get(&way).and_then(|rounds| Figures::median(rounds));
        let (Some(direct), Some(mesh)) = (of(Way::Direct), of(Way::Mesh)) else {
            unreachable!("both were measured");
        };
        Ok(Point::new(pace, &self.shape(), direct, mesh, of(Way::Many)))
    }

    /// One way, once: first a while that does not count.
    async fn round(&mut self, pace: Pace, way: Way) -> Result<Figures, Error> {
        let course = Course { way, ..self.course };
        self.begin(&course).await?;
        let warm_up = self.duration / 4;
        pages::ask(self.glue, pace, warm_up, &Tally::new()).await?;
        let tally = Tally::new();
        let before = self.usage().await?;
        let took = pages::ask(self.glue, pace, self.duration, &tally).await?;
        let after = self.usage().await?;
        for (failure, pages) in tally.failures() {
            *self.failed.entry(failure.to_string()).or_default() += pages;
        }
        Ok(Figures::new(
            &course,
            &tally,
            self.duration,
            took,
            &before,
            &after,
        ))
    }

    /// Tells the glue server which way is next.
    async fn begin(&self, course: &Course) -> Result<(), Error> {
        let document = serde_json::to_vec(course)?;
        exchange(self.glue, Method::PUT, "/course", document).await?;
        Ok(())
    }

    /// What all processes have used so far.
    async fn usage(&self) -> Result<Vec<Process>, Error> {
        let (mut all, provider) = (usage(self.glue).await?, usage(self.provider).await?);
        all.processes.extend(provider.processes);
        Ok(all.processes)
    }

    async fn machines(&self) -> Result<BTreeMap<String, Machine>, Error> {
        Ok(BTreeMap::from([
            ("loader".to_owned(), Machine::here()),
            (
                "glue server and proxy".to_owned(),
                usage(self.glue).await?.machine,
            ),
            ("provider".to_owned(), usage(self.provider).await?.machine),
        ]))
    }
}

/// What is measured: figures of a build that is not optimised are no figures of the product.
fn program() -> String {
    let name = concat!("dubbo-mesh ", env!("CARGO_PKG_VERSION"));
    if cfg!(debug_assertions) {
        format!("{name} (debug build)")
    } else {
        name.to_owned()
    }
}

async fn usage(station: SocketAddr) -> Result<Usage, Error> {
    let told = exchange(station, Method::GET, "/usage", Bytes::new()).await?;
    Ok(serde_json::from_slice(&told)?)
}

/// Pages a second, by themselves.
const RATES: [u64; 8] = [20, 40, 80, 120, 160, 240, 320, 480];
/// The same in a hurry.
const QUICK_RATES: [u64; 3] = [20, 40, 80];
/// The length of a round in a hurry.
const QUICK: Duration = Duration::from_millis(300);
/// What answers may lag behind on top of a tenth of the time before a rate counts as too much.
const SLACK: Duration = Duration::from_millis(100);
