//! The shards of a proxy: each on a thread of its own, with the ways to all of them.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
    thread::{self, JoinHandle},
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use tokio::sync::{mpsc, oneshot};

use super::{
    accepted::Accepted,
    driver::{Control, Shard, Ways},
    handoff::Handoff,
    machine::Settings,
    quarantine::Quarantine,
};
use crate::{
    config::{Limits, fixed},
    mesh::{Change, Mesh},
    metrics,
    policy::balance::Entropy,
};

/// The ways to all shards. Dropped, the shards end.
#[derive(Debug)]
pub(crate) struct Shards {
    accepted: Vec<mpsc::Sender<Accepted>>,
    control: Vec<mpsc::Sender<Control>>,
    source: metrics::Source,
    threads: Vec<JoinHandle<()>>,
}

/// What all shards have in common.
pub(crate) struct Common {
    /// How many there are, 1 to 64.
    pub(crate) workers: u8,
    /// Every bound and every wait.
    pub(crate) limits: Arc<Limits>,
    /// Where calls go whose service cannot be read.
    pub(crate) default: Option<ServiceKey>,
    /// The file for frames that a shard failed on.
    pub(crate) quarantine: PathBuf,
    /// What is known now.
    pub(crate) mesh: Arc<Mesh>,
    /// Makes the random choices of a shard.
    pub(crate) random: Entropy,
    /// Who is asked for services that are not known, if there is anybody.
    pub(crate) asks: Option<mpsc::Sender<ServiceKey>>,
}

impl Shards {
    /// Starts all shards.
    ///
    /// # Errors
    /// Of the threads or their runtimes.
    pub(crate) fn start(common: &Common) -> io::Result<Self> {
        let budget = Arc::new(AtomicUsize::new(0));
        let most = common.limits.quarantine as u64;
        let quarantine = Quarantine::new(common.quarantine.clone(), most);
        let (mut accepted, mut control, mut scrapes, mut threads) =
            (vec![], vec![], vec![], vec![]);
        for (shard, handoff) in (0..).zip(Handoff::ring(common.workers)) {
            let (accept, accepts) = mpsc::channel(fixed::ACCEPTED);
            let (order, orders) = mpsc::channel(fixed::ORDERS);
            let (ask, asked) = mpsc::channel(fixed::SCRAPES);
            accepted.push(accept);
            control.push(order);
            scrapes.push(ask);
            let ways = Ways {
                accepted: accepts,
                control: orders,
                scrapes: asked,
                handoff,
                mesh: Arc::clone(&common.mesh),
                long_bodies: Arc::clone(&budget),
                random: Arc::clone(&common.random),
                quarantine: quarantine.clone(),
                asks: common.asks.clone(),
            };
            let limits = Arc::clone(&common.limits);
            let settings = Settings {
                shard,
                limits,
                default: common.default.clone(),
                may_ask: common.asks.is_some(),
            };
            threads.push(spawn(settings, ways)?);
        }
        let source = metrics::Source::new(scrapes, common.limits.scrape_timeout);
        Ok(Self {
            accepted,
            control,
            source,
            threads,
        })
    }

    /// The ways for accepted connections, one per shard.
    pub(crate) fn accepted(&self) -> Vec<mpsc::Sender<Accepted>> {
        self.accepted.clone()
    }

    /// Where counters come from.
    pub(crate) fn source(&self) -> metrics::Source {
        self.source.clone()
    }

    /// Tells all shards what changed. Cancel safe for none of them: some may know, others not.
    pub(crate) async fn apply(&self, changes: Vec<Change>) {
        for shard in &self.control {
            // A shard that is gone needs no changes.
            let _ = shard.send(Control::Apply(changes.clone())).await;
        }
    }

    /// Says READONLY to all sessions, which are closed as they get quiet, all within `time`.
    /// What comes back resolves when they are.
    pub(crate) async fn drain(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let mut done = vec![];
        for shard in &self.control {
            let (tell, told) = oneshot::channel();
            if shard.send(Control::Drain(time, tell)).await.is_ok() {
                done.push(told);
            }
        }
        async move {
            for told in done {
                // A shard that ended has no session either.
                let _ = told.await;
            }
        }
    }

    /// Ends all shards, and waits for their threads, at most for [`STOP`].
    pub(crate) fn stop(self) {
        drop(self.control);
        drop(self.accepted);
        let waits = STOP.as_millis() / WAIT.as_millis();
        for thread in self.threads {
            for _ in 0..waits {
                if thread.is_finished() {
                    break;
                }
                thread::park_timeout(WAIT);
            }
            if !thread.is_finished() {
                tracing::error!("a shard does not end; it is left to the end of the process");
            }
        }
    }
}

/// Time for the shards to end: they only close sockets.
const STOP: Duration = Duration::from_secs(5);
/// How often it is looked whether they have.
const WAIT: Duration = Duration::from_millis(5);

/// A thread with a runtime of its own, on which the shard is the only task: woken by its sockets,
/// such a task costs no system call.
fn spawn(settings: Settings, ways: Ways) -> io::Result<JoinHandle<()>> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let name = format!("shard-{}", settings.shard);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default());
        let runtime = match built {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(error))),
        };
        drop(tell.send(Ok(())));
        runtime.block_on(async move {
            let shard = tokio::task::spawn_local(Shard::new(settings, ways).run());
            if let Err(error) = shard.await {
                tracing::error!(%error, "a shard ended");
            }
        });
    })?;
    told.recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread of a shard ended")))?;
    Ok(thread)
}
