//! What the applications of this container provide, and whether they serve it. It stands in a file too,
//! `{"version":1,"clients":[DOCUMENT]}`, for bonder's next start: who has said it once says it no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    ledger::{Document, Kept, Ledger, Refusal},
    probe,
    process::birth,
    provided::{Invalid, Provided, Written},
    registration::{self, Instances},
    store,
};

/// Why a document is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not as it should be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A service is none.
    #[error("services[{0}].{1}")]
    Invalid(usize, #[source] Invalid),
    /// They are in too many places.
    #[error("services: with these there were more than {MAX_ADDRESSES} addresses")]
    Addresses,
    /// There is too much text.
    #[error("services: with these there were more than {MAX_BYTES} bytes of keys and metadata")]
    Bytes,
    /// It is known, but not after a restart.
    #[error("{}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bonder is ending.
    #[error("bonder is ending")]
    Over,
}

/// What is provided now, for people.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Shown {
    /// Each service once for each of its addresses.
    pub services: Vec<Service>,
    /// What each process has said.
    pub clients: Vec<Document<Written>>,
}

/// One provided service.
#[derive(Debug, Clone, Serialize)]
pub struct Service {
    /// Its key.
    pub service: String,
    /// Where the application listens.
    pub address: SocketAddr,
    /// Whether it serves there.
    pub serves: bool,
}

/// The handle. Clones share what is provided.
#[derive(Debug, Clone)]
pub struct Providers {
    requests: mpsc::Sender<Request>,
    shown: watch::Receiver<Shown>,
}

#[derive(Debug)]
struct Request {
    document: Document<Provided>,
    answer: oneshot::Sender<Result<(), Error>>,
}

/// Who asks the providers how they are.
#[derive(Debug)]
struct Keeper<P> {
    file: PathBuf,
    /// Whether the file is behind.
    stale: bool,
    configured: BTreeSet<Provided>,
    ledger: Ledger<Provided>,
    place: P,
    probes: BTreeMap<SocketAddr, Probe>,
    changed: mpsc::Sender<()>,
    shown: watch::Sender<Shown>,
    wanted: watch::Sender<Instances>,
}

#[derive(Debug)]
struct Probe {
    serves: watch::Receiver<bool>,
    _task: Task,
}

/// A task that ends with its handle.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Providers {
    /// Starts with what is `configured`, and what `file` says of processes that live. `place` says, whenever it is asked, where the mesh finds
    /// what is provided here; what is to be registered comes to `wanted`. The future keeps them
    /// until every handle is dropped.
    pub fn start(
        file: PathBuf,
        configured: BTreeSet<Provided>,
        place: impl Fn() -> registration::Place,
        wanted: watch::Sender<Instances>,
    ) -> (Self, impl Future<Output = ()>) {
        let (requests, received) = mpsc::channel(QUEUE);
        let (shown, seen) = watch::channel(Shown::default());
        let (changed, changes) = mpsc::channel(1);
        let keeper = Keeper {
            stale: true,
            configured,
            ledger: restore(&file),
            file,
            place,
            probes: BTreeMap::new(),
            changed,
            shown,
            wanted,
        };
        let handle = Self {
            requests,
            shown: seen,
        };
        (handle, keeper.keep(received, changes))
    }

    /// Takes what a process provides.
    ///
    /// # Errors
    /// [`Error`].
    ///
    /// Cancel safe: it is taken all the same.
    pub async fn put(&self, document: Document<Written>) -> Result<(), Error> {
        let document = parse(document)?;
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(Request { document, answer }).await;
        sent.map_err(|_| Error::Over)?;
        answered.await.unwrap_or(Err(Error::Over))
    }

    /// What is provided now.
    #[must_use]
    pub fn shown(&self) -> Shown {
        self.shown.borrow().clone()
    }
}

impl<P: Fn() -> registration::Place> Keeper<P> {
    async fn keep(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        mut changes: mpsc::Receiver<()>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    None => return,
                    Some(Request { document, answer }) => {
                        let mut outcome = self.take(document);
                        self.update();
                        if outcome.is_ok() {
                            outcome = self.flush().await;
                        }
                        // Whoever asked may have left.
                        let _ = answer.send(outcome);
                    }
                },
                _ = changes.recv() => self.update(),
                _ = tick.tick() => {
                    self.stale |= self.ledger.expire(Instant::now().into_std(), birth);
                    // Also for addresses of this host that have changed.
                    self.update();
                    // Whoever provides something hears of it.
                    let _ = self.flush().await;
                }
            }
        }
    }

    /// Writes the file if it is behind.
    async fn flush(&mut self) -> Result<(), Error> {
        if !self.stale {
            return Ok(());
        }
        let kept = self.ledger.kept().map(|Kept { document, born }| Kept {
            document: print(document),
            born,
        });
        let (file, stored) = (self.file.clone(), store::Stored::new(kept));
        let written = tokio::task::spawn_blocking(move || store::write(&file, &stored)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.stale = written.is_err();
        written.map_err(|source| {
            let file = self.file.clone();
            let error = Error::Write { file, source };
            tracing::warn!(%error, "providers: not known after a restart");
            error
        })
    }

    fn take(&mut self, document: Document<Provided>) -> Result<(), Error> {
        let known = self.ledger.documents();
        let others =
            known.filter(|other| (&other.client, other.pid) != (&document.client, document.pid));
        let others = others.flat_map(|other| other.services);
        let all: Vec<_> = others.chain(document.services.iter().cloned()).collect();
        let addresses: BTreeSet<_> = all.iter().map(|provided| provided.address).collect();
        if addresses.len() > MAX_ADDRESSES {
            return Err(Error::Addresses);
        }
        if all.iter().map(Provided::len).sum::<usize>() > MAX_BYTES {
            return Err(Error::Bytes);
        }
        let born = birth(document.pid);
        let (client, pid) = (document.client.clone(), document.pid);
        if self.ledger.put(Instant::now().into_std(), document, born)? {
            tracing::info!(client, pid, "providers declared");
            self.stale = true;
        }
        Ok(())
    }

    /// Asks whom there is to ask, and says what serves.
    fn update(&mut self) {
        let all: BTreeSet<_> = self.ledger.services().chain(&self.configured).collect();
        let all: Vec<Provided> = all.into_iter().cloned().collect();
        let place = (self.place)();
        let addresses = all
            .iter()
            .flat_map(|provided| [provided.address, place.direct(provided.address)]);
        let addresses: BTreeSet<_> = addresses.collect();
        self.probes.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let changed = &self.changed;
            let start = || Probe::start(address, changed.clone());
            self.probes.entry(address).or_insert_with(start);
        }
        let serves = |address| {
            let probe = self.probes.get(&address);
            probe.is_some_and(|probe| *probe.serves.borrow())
        };
        let serving = all.iter().filter(|provided| serves(provided.address));
        let wanted: Instances = serving
            .map(|provided| place.instance(provided, serves))
            .collect();
        self.wanted.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
        let show = |provided: &Provided| Service {
            service: provided.service.to_string(),
            address: provided.address,
            serves: serves(provided.address),
        };
        self.shown.send_replace(Shown {
            services: all.iter().map(show).collect(),
            clients: self.ledger.documents().map(print).collect(),
        });
    }
}

/// What the processes provide that lived when bonder ended, and live still. What others provided is
/// gone with them: a successor may provide something else.
fn restore(file: &Path) -> Ledger<Provided> {
    let mut ledger = Ledger::default();
    for kept in store::read(file) {
        let birth = birth(kept.document.pid);
        if kept.is_orphaned(birth) {
            continue;
        }
        let Kept { document, born } = kept;
        match parse(document) {
            Ok(document) => {
                let kept = Kept { document, born };
                ledger.restore(Instant::now().into_std(), kept, birth);
            }
            Err(error) => tracing::warn!(%error, "providers of before are forgotten"),
        }
    }
    ledger
}

fn parse(document: Document<Written>) -> Result<Document<Provided>, Error> {
    let mut n = 0..;
    document.map(|written| {
        let n = n.next().unwrap_or_default();
        Provided::try_from(written).map_err(|invalid| Error::Invalid(n, invalid))
    })
}

fn print(document: Document<Provided>) -> Document<Written> {
    let Ok(printed) = document.map(|provided| Ok::<_, Infallible>(provided.into()));
    printed
}

impl Probe {
    fn start(address: SocketAddr, changed: mpsc::Sender<()>) -> Self {
        let (sender, serves) = watch::channel(false);
        let mut told = serves.clone();
        let task = async move {
            let tell = async {
                while told.changed().await.is_ok() {
                    // Full: a change that is not yet looked at waits there already.
                    let _ = changed.try_send(());
                }
            };
            tokio::join!(probe::keep(address, sender), tell);
        };
        Self {
            serves,
            _task: Task(tokio::spawn(task)),
        }
    }
}

/// Addresses of one container, each asked by a connection of its own.
const MAX_ADDRESSES: usize = 64;
/// Bytes of the keys and the metadata of all services.
const MAX_BYTES: usize = 4 << 20;
/// Documents that wait.
const QUEUE: usize = 16;
/// Between two looks at who is gone.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::bonder::provided::{MAX_TEXT, tests::whole};

    /// A keeper of the file, with nobody to register at.
    fn open(file: &Path) -> Providers {
        let place = || registration::Place {
            host: IpAddr::from([127, 0, 0, 1]),
            inbound: None,
        };
        let wanted = watch::Sender::default();
        let (providers, keep) = Providers::start(file.into(), BTreeSet::new(), place, wanted);
        tokio::spawn(keep);
        providers
    }

    /// A process that says it once does not learn that bonder was restarted.
    #[tokio::test]
    async fn what_a_process_provides_is_known_after_a_restart_while_it_lives() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("providers.json");
        let mut other = std::process::Command::new("sleep");
        let mut other = other.arg("1000").spawn().expect("a process");
        let before = open(&file);
        for (client, pid, ttl_s) in [
            ("lives", std::process::id(), None),
            ("dies", other.id(), None),
            ("dies with a lease", other.id(), Some(60)),
            ("elsewhere", u32::MAX, Some(60)),
        ] {
            let services = vec![whole("a.A", "127.0.0.1:1", &[("zone", client)])];
            let document = Document {
                client: client.into(),
                pid,
                ttl_s,
                services,
            };
            before.put(document).await.expect("taken");
        }
        drop(before);
        other.kill().and_then(|()| other.wait()).expect("reaped");
        let after = open(&file);
        let mut shown = after.shown.clone();
        let shown = shown.wait_for(|shown| !shown.services.is_empty());
        let shown = shown.await.expect("it is kept");
        let clients = shown.clients.iter().map(|document| &*document.client);
        assert_eq!(clients.collect::<Vec<_>>(), ["elsewhere", "lives"]);
        assert_eq!(shown.clients[1].ttl_s, None, "as long as it lives");
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let providers = open(&folder.path().join("providers.json"));
        let text = "x".repeat(MAX_TEXT - 1);
        let document = |count| Document {
            client: "a".into(),
            pid: 1,
            ttl_s: Some(60),
            services: vec![whole("a.A", "127.0.0.1:1", &[("a", &text)]); count],
        };
        let most = MAX_BYTES / (MAX_TEXT + "a.A".len());
        for _ in 0..2 {
            providers.put(document(most)).await.expect("taken");
        }
        let refused = providers.put(document(most + 1)).await;
        assert!(matches!(refused, Err(Error::Bytes)), "{refused:?}");
    }
}
