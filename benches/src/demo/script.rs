//! What happens in the demo, act by act.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Error;
use super::figures::{Costs, NonIdempotent, Outcome, PageTimes};
use super::plan::{CALLS, Report, Turn, Victim, Way};
use super::stage::Stage;
use crate::cpu;
use crate::statistics::count;
use crate::time::now;

/// Plays all of it; what came out, and what happened when, in seconds.
pub(super) async fn play(
    program: &Path,
    stage: &mut Stage,
    duration: Duration,
) -> Result<(Outcome, Vec<(f64, String)>), Error> {
    let mut told = Narrator::new();
    introduce(stage);
    stage.turn(by(Way::Mesh)).await?;
    stage
        .reports("the application's way through the sidecar", |report| {
            report.sdk.up
        })
        .await?;
    stage.knows_providers().await?;

    told.say("load: pages of 21 calls and payments, direct and through the mesh in turns");
    let mut costs = BTreeMap::new();
    for way in [Way::Direct, Way::Mesh].repeat(ROUNDS) {
        measure(
            stage,
            way,
            duration / (5 * u32::try_from(ROUNDS).unwrap_or(1)),
            &mut costs,
        )
        .await?;
    }
    stage.turn(by(Way::Mesh)).await?;

    let pause = duration / 20;
    told.say("a provider is killed");
    stage.kill(Victim::Provider).await?;
    sleep(pause).await;
    stage.restart_provider(program)?;
    sleep(pause).await;
    told.failures(stage, "it is back").await?;

    told.say("the sidecar is killed");
    stage.kill(Victim::Proxy).await?;
    let report = stage
        .reports("answers by the sidecar again", |report| {
            report.sdk.away_ms.is_some()
        })
        .await?;
    let (switched, away) = (report.sdk.switched_ms, report.sdk.away_ms);
    let (switched, away) = (switched.unwrap_or_default(), away.unwrap_or_default());
    told.say(&format!(
        "calls went direct after {switched:.1} ms, and by a new sidecar {away:.0} ms later"
    ));
    let report = stage
        .reports("all calls by the sidecar", |report| report.sdk.up)
        .await?;
    told.say(&format!(
        "all calls go by the sidecar again; {} went direct",
        report.sdk.direct
    ));

    told.say("the pilot is killed");
    stage.kill(Victim::Pilot).await?;
    sleep(pause).await;
    stage.child("pilot").await?;
    told.failures(stage, "it is back").await?;

    stage.register_undeclared().await?;
    let [first, known] = stage.call_undeclared().await?;
    told.say(&format!(
        "a service that nobody declared is called: {first:.1} ms, and {known:.1} ms the next time"
    ));
    stage.turn(QUIET).await?;
    let report = stage
        .reports("the end of all calls", |report| report.in_flight == 0)
        .await?;
    let ran = stage.ran()?;
    Ok((outcome(&report, &ran, &costs, [first, known]), told.acts))
}

/// Lets the load go on through the mesh.
pub(super) async fn go_on(stage: &Stage) -> Result<(), Error> {
    stage.turn(by(Way::Mesh)).await
}

/// What runs where.
fn introduce(stage: &Stage) {
    let at = stage.addresses;
    let [first, second] = [&stage.providers[0].address, &stage.providers[1].address];
    println!(
        "\
a container
  bonder       http://{bonder}/v1/status
  pilot        http://{pilot}/v1/status    xDS {xds}
  sidecar      http://{admin}/clusters     calls {sidecar}
  application  http://{application}/report
providers elsewhere
  {first}
  {second}
",
        bonder = at.bonder,
        pilot = at.pilot,
        xds = at.xds,
        admin = at.admin,
        sidecar = at.sidecar,
        application = stage.application,
    );
}

/// What the calls of one way took, in seconds of CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    application: f64,
    sidecar: f64,
    providers: f64,
    calls: f64,
}

/// One turn of one way, after a while that does not count.
async fn measure(
    stage: &Stage,
    way: Way,
    duration: Duration,
    costs: &mut BTreeMap<Way, Cost>,
) -> Result<(), Error> {
    stage.turn(by(way)).await?;
    sleep(duration / 4).await;
    let [first, second] = &stage.providers;
    let pids = [
        stage.child("application").await?,
        stage.child("proxy").await?,
        first.part.pid(),
        second.part.pid(),
    ];
    let measured = Turn {
        way: Some(way),
        measured: true,
    };
    stage.turn(measured).await?;
    let (before, calls) = (cpu::sample(&pids)?, answers(&stage.report().await?, way));
    sleep(duration).await;
    let (after, report) = (cpu::sample(&pids)?, stage.report().await?);
    let used: Vec<_> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64())
        .collect();
    let cost = costs.entry(way).or_default();
    cost.application += used[0];
    cost.sidecar += used[1];
    cost.providers += used[2] + used[3];
    cost.calls += answers(&report, way) - calls;
    Ok(())
}

fn answers(report: &Report, way: Way) -> f64 {
    count(report.answers.get(&way).copied().unwrap_or_default())
}

fn by(way: Way) -> Turn {
    Turn {
        way: Some(way),
        measured: false,
    }
}

fn outcome(
    report: &Report,
    ran: &[u64],
    costs: &BTreeMap<Way, Cost>,
    [first, known]: [f64; 2],
) -> Outcome {
    let cost = |way: Way, of: fn(&Cost) -> f64| {
        let cost = costs.get(&way).copied().unwrap_or_default();
        of(&cost) * 1e6 / cost.calls
    };
    let pages = |way: Way| report.pages.get(&way).copied().unwrap_or_default();
    Outcome {
        calls: report.calls,
        failed: report.failed,
        failures: report.failures.clone(),
        direct_calls: report.sdk.direct,
        switch_ms: report.sdk.switched_ms.unwrap_or_default(),
        back_ms: report.sdk.away_ms.unwrap_or_default(),
        first_undeclared_call_ms: first,
        known_call_ms: known,
        calls_of_a_page: CALLS,
        page_rt_ms: PageTimes {
            direct: pages(Way::Direct),
            mesh: pages(Way::Mesh),
        },
        cpu_us_per_call: Costs {
            app_direct: cost(Way::Direct, |cost| cost.application),
            app_mesh: cost(Way::Mesh, |cost| cost.application),
            proxy: cost(Way::Mesh, |cost| cost.sidecar),
            provider_direct: cost(Way::Direct, |cost| cost.providers),
            provider_mesh: cost(Way::Mesh, |cost| cost.providers),
        },
        non_idempotent: NonIdempotent::of(&report.payments, ran),
        course: report.course.clone(),
    }
}

/// Says what happens, and when.
struct Narrator {
    begun: Instant,
    acts: Vec<(f64, String)>,
}

impl Narrator {
    fn new() -> Self {
        Self {
            begun: now(),
            acts: Vec::new(),
        }
    }

    fn say(&mut self, what: &str) {
        let at = self.begun.elapsed().as_secs_f64();
        println!("{at:5.1} s  {what}");
        self.acts.push((at, what.to_owned()));
    }

    async fn failures(&mut self, stage: &Stage, what: &str) -> Result<(), Error> {
        let report = stage.report().await?;
        let payments = report.payments.failed.len();
        self.say(&format!(
            "{what}; so far {} calls failed, and {payments} payments",
            report.failed
        ));
        Ok(())
    }
}

/// Turns of each way.
const ROUNDS: usize = 2;
/// No new calls.
const QUIET: Turn = Turn {
    way: None,
    measured: false,
};
