//! The application of the demo: it makes pages of calls by the thin SDK, and payments beside them,
//! and tells over HTTP how that goes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thin_sdk::failover::Sidecar;
use thin_sdk::{Client, State};
use tokio::net::TcpListener;
use tokio::task;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Error;
use super::plan::{
    CALLS, FIND, PAY, Percentiles, Plan, Report, SERVICE, STEP_MS, Sdk, Status, Step, Turn, Twice,
    Victim, Way,
};
use crate::http::{self, Request, Response, exchange};
use crate::load::tally::Tally;
use crate::time::now;

/// Runs for ever.
pub(super) async fn serve(plan: &Plan) -> Result<Infallible, Error> {
    let application = Rc::new(Application::new(plan)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    task::spawn_local(Rc::clone(&application).make_pages());
    for _ in 0..PAYERS {
        task::spawn_local(Rc::clone(&application).make_payments());
    }
    task::spawn_local(Rc::clone(&application).follow_course());
    let mut stdout = io::stdout();
    writeln!(stdout, "application on {address}").and_then(|()| stdout.flush())?;
    let answer = move |request: Request| {
        let application = Rc::clone(&application);
        async move { application.answer(&request).await }
    };
    Ok(http::serve(listener, answer).await)
}

struct Application {
    started: Instant,
    plan: Plan,
    mesh: Client,
    direct: Client,
    turn: Cell<Turn>,
    argument: String,
    in_flight: Cell<u64>,
    /// Times of pages.
    pages: [(Way, Tally); 2],
    paying: RefCell<BTreeSet<u64>>,
    killing: Cell<Killing>,
    /// All but what the SDK tells.
    report: RefCell<Report>,
}

/// How far a process is with being killed.
#[derive(Debug, Clone, Copy, Default)]
enum Killing {
    #[default]
    Nobody,
    /// It is told, and may run still.
    Alive,
    /// It is dead, and its peers may not have heard of it.
    Dead,
}

impl Application {
    fn new(plan: &Plan) -> Result<Self, Error> {
        let mesh = Client::builder()
            .name("demo")
            .sidecar(plan.sidecar)
            .admin(Some(plan.admin))
            .bonder(Some(plan.bonder))
            .roster(&plan.roster)
            .build()?;
        mesh.declare([SERVICE])?;
        let providers = plan.providers.iter().copied();
        let direct = Client::builder().direct().providers(SERVICE, providers);
        Ok(Self {
            started: now(),
            plan: plan.clone(),
            mesh,
            direct: direct.build()?,
            turn: Cell::new(Turn {
                way: None,
                measured: false,
            }),
            argument: "x".repeat(PAYLOAD),
            in_flight: Cell::new(0),
            pages: [Way::Direct, Way::Mesh].map(|way| (way, Tally::new())),
            paying: RefCell::default(),
            killing: Cell::default(),
            report: RefCell::default(),
        })
    }

    fn client(&self, way: Way) -> &Client {
        match way {
            Way::Direct => &self.direct,
            Way::Mesh => &self.mesh,
        }
    }

    /// Pages at their rate, whether or not those before are done.
    async fn make_pages(self: Rc<Self>) {
        let mut due = interval(Duration::from_secs(1) / PAGES_PER_S);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let begun = due.tick().await.into_std();
            if let Turn {
                way: Some(way),
                measured,
            } = self.turn.get()
                && self.in_flight.get() < MAX_IN_FLIGHT
            {
                let this = Rc::clone(&self);
                task::spawn_local(async move {
                    if this.page(way).await && measured {
                        this.took(way, now() - begun);
                    }
                });
            }
        }
    }

    /// One page, call after call; whether all of them were answered.
    async fn page(&self, way: Way) -> bool {
        let mut good = true;
        for _ in 0..CALLS {
            let call = self.client(way).call(SERVICE, FIND).arg(&*self.argument);
            self.in_flight.set(self.in_flight.get() + 1);
            let answer: Result<String, _> = call.deadline(DEADLINE).idempotent(true).send().await;
            self.in_flight.set(self.in_flight.get() - 1);
            let mut report = self.report.borrow_mut();
            report.calls += 1;
            match answer {
                Ok(echo) if echo == self.argument => {
                    *report.answers.entry(way).or_default() += 1;
                }
                other => {
                    good = false;
                    report.failed += 1;
                    if report.failures.len() < SHOWN {
                        let said = other.err().map(|error| error.to_string());
                        report
                            .failures
                            .push(said.unwrap_or_else(|| "another answer".into()));
                    }
                }
            }
        }
        good
    }

    fn took(&self, way: Way, time: Duration) {
        for (of, tally) in &self.pages {
            if *of == way {
                tally.answer(time, None);
            }
        }
    }

    /// One payment after another, each with a number of its own.
    async fn make_payments(self: Rc<Self>) {
        loop {
            sleep(BETWEEN_PAYMENTS).await;
            let Some(way) = self.turn.get().way else {
                continue;
            };
            let number = {
                let payments = &mut self.report.borrow_mut().payments;
                payments.calls += 1;
                match self.killing.get() {
                    Killing::Nobody => {}
                    Killing::Alive => payments.in_flight_at_kill.push(payments.calls),
                    Killing::Dead => payments.begun_unaware.push(payments.calls),
                }
                payments.calls
            };
            self.paying.borrow_mut().insert(number);
            self.in_flight.set(self.in_flight.get() + 1);
            let call = self
                .client(way)
                .call(SERVICE, PAY)
                .arg(number.cast_signed());
            let answer: Result<i64, _> = call.deadline(DEADLINE).send().await;
            self.in_flight.set(self.in_flight.get() - 1);
            self.paying.borrow_mut().remove(&number);
            let mut report = self.report.borrow_mut();
            match answer {
                Ok(_) => *report.answers.entry(way).or_default() += 1,
                Err(_) => report.payments.failed.push(number),
            }
        }
    }

    /// Notes how calls go, step by step.
    async fn follow_course(self: Rc<Self>) {
        let mut step = interval(Duration::from_millis(STEP_MS));
        let mut before = self.mesh.state().counts;
        loop {
            step.tick().await;
            let counts = self.mesh.state().counts;
            let course = &mut self.report.borrow_mut().course;
            if course.len() == KEPT {
                course.remove(0);
            }
            course.push(Step {
                at: self.started.elapsed().as_secs_f64(),
                by_sidecar: counts.by_sidecar - before.by_sidecar,
                direct: counts.direct - before.direct,
            });
            before = counts;
        }
    }

    async fn answer(&self, request: &Request) -> Response {
        match (&request.method, request.path.as_str()) {
            (&Method::GET, "/report") => json(&self.report()),
            (&Method::PUT, "/turn") => match read(request) {
                Ok(turn) => {
                    self.turn.set(turn);
                    Response::new(StatusCode::OK, "")
                }
                Err(refused) => refused,
            },
            (&Method::PUT, "/kill") => match read(request) {
                Ok(victim) => match self.kill(victim).await {
                    Ok(pid) => {
                        self.buried(pid).await;
                        Response::new(StatusCode::OK, "")
                    }
                    Err(error) => Response::new(StatusCode::CONFLICT, format!("{error}\n")),
                },
                Err(refused) => refused,
            },
            (&Method::PUT, "/twice") => match read(request) {
                Ok(Twice { service }) => self.twice(&service).await,
                Err(refused) => refused,
            },
            _ => Response::new(
                StatusCode::NOT_FOUND,
                "GET /report, PUT /turn, PUT /kill, PUT /twice\n",
            ),
        }
    }

    fn report(&self) -> Report {
        let State {
            sidecar,
            counts,
            outage,
            ..
        } = self.mesh.state();
        let mut report = self.report.borrow().clone();
        let pages = self.pages.iter().map(|(way, tally)| {
            let [_, p50, _, p99, ..] = tally.call_latency().map(|(_, micros)| micros / 1e3);
            (*way, Percentiles { p50, p99 })
        });
        report.pages = pages.collect();
        report.in_flight = self.in_flight.get();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        report.sdk = Sdk {
            up: sidecar == Sidecar::Up,
            direct: counts.direct,
            switched_ms: outage.map(|outage| millis(outage.switched)),
            away_ms: outage.and_then(|outage| outage.away).map(millis),
        };
        report
    }

    /// Kills a process. Whoever knows what is in flight does it.
    async fn kill(&self, victim: Victim) -> Result<u32, Error> {
        let name = match victim {
            Victim::Provider => None,
            Victim::Proxy => Some("proxy"),
            Victim::Pilot => Some("pilot"),
        };
        let pid = match name {
            None => Some(self.plan.victim),
            Some(name) => {
                let status = exchange(self.plan.bonder, Method::GET, "/v1/status", "").await?;
                serde_json::from_slice::<Status>(&status)?.ready(name)
            }
        };
        let pid = pid.ok_or(Error::Late("a child of bonder"))?;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).map_err(io::Error::from)?;
        let payments = &mut self.report.borrow_mut().payments;
        payments
            .in_flight_at_kill
            .extend(self.paying.borrow().iter());
        self.killing.set(Killing::Alive);
        Ok(pid)
    }

    /// Waits until a process that was killed has ended, and its peers have heard of it.
    async fn buried(&self, pid: u32) {
        while is_alive(pid) {
            sleep(Duration::from_millis(1)).await;
        }
        self.killing.set(Killing::Dead);
        sleep(AFTERMATH).await;
        self.killing.set(Killing::Nobody);
    }

    async fn twice(&self, service: &str) -> Response {
        let mut times = [0.0; 2];
        for time in &mut times {
            let begun = now();
            let call = self.mesh.call(service, FIND).arg(&*self.argument);
            let answer: Result<String, _> = call.deadline(DEADLINE).send().await;
            if let Err(error) = answer {
                return Response::new(StatusCode::BAD_GATEWAY, format!("{error}\n"));
            }
            *time = begun.elapsed().as_secs_f64() * 1e3;
        }
        json(&times)
    }
}

/// Whether the process runs: one that nobody has waited for yet is dead all the same.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name in parentheses may hold anything.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

fn read<T: DeserializeOwned>(request: &Request) -> Result<T, Response> {
    let refused = |error| Response::new(StatusCode::BAD_REQUEST, format!("{error}\n"));
    serde_json::from_slice(&request.body).map_err(refused)
}

fn json(document: &impl Serialize) -> Response {
    match serde_json::to_vec(document) {
        Ok(text) => Response::new(StatusCode::OK, text),
        Err(error) => Response::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Pages that begin in a second.
const PAGES_PER_S: u32 = 40;
/// Payments that are made side by side, and the pause after each.
const PAYERS: usize = 4;
const BETWEEN_PAYMENTS: Duration = Duration::from_millis(10);
/// From the end of a process until its peers have heard of it, on a busy machine.
const AFTERMATH: Duration = Duration::from_millis(50);
/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// Bytes that a call takes along and brings back.
const PAYLOAD: usize = 128;
/// Calls in flight beyond which no page begins.
const MAX_IN_FLIGHT: u64 = 1000;
/// Failures that are told in words.
const SHOWN: usize = 5;
/// Steps of the course that are kept: a minute of them.
const KEPT: usize = 600;
