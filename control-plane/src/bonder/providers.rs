//! What the applications of this container provide, and whether they serve it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    ledger::{Document, Ledger, Refusal},
    probe,
    process::birth,
    registration::{self, Instances},
};

/// A service that an application of this container provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Provided {
    /// The service.
    pub service: ServiceKey,
    /// Where the application listens.
    pub address: SocketAddr,
    /// What else is to be known of it.
    pub metadata: BTreeMap<String, String>,
}

/// A service as it is written: its key, or more of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Written {
    /// Provided where Dubbo does by default.
    Key(String),
    /// With an address.
    Whole(Whole),
}

/// A service with its address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Whole {
    /// Its key.
    pub service: String,
    /// Where the application listens. Default `127.0.0.1:20880`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Why a service is none that can be provided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Its key is wrong.
    #[error("service: {0}")]
    Key(#[from] dubbo_proto::key::Error),
    /// Its address is none.
    #[error("address: {0:?} is no IP:port; write where the application listens")]
    Address(String),
    /// A key that bonder sets itself.
    #[error("metadata.{0}: is set by bonder; leave it out")]
    Reserved(&'static str),
    /// Its key is too long.
    #[error("service: has {0} bytes; at most {MAX_SERVICE} are taken")]
    Long(usize),
    /// There is too much of it.
    #[error("metadata: is too much; write at most {MAX_METADATA} keys and {MAX_TEXT} bytes")]
    Metadata,
}

impl TryFrom<Written> for Provided {
    type Error = Invalid;

    fn try_from(written: Written) -> Result<Self, Invalid> {
        let whole = match written {
            Written::Whole(whole) => whole,
            Written::Key(service) => Whole {
                service,
                address: None,
                metadata: BTreeMap::new(),
            },
        };
        let address = match whole.address {
            None => DEFAULT,
            Some(text) => match text.parse::<SocketAddr>() {
                Ok(address) if address.port() != 0 => address,
                _ => return Err(Invalid::Address(text)),
            },
        };
        let metadata = whole.metadata;
        if let Some(key) = RESERVED.iter().find(|key| metadata.contains_key(**key)) {
            return Err(Invalid::Reserved(key));
        }
        let texts = metadata.iter().map(|(key, value)| key.len() + value.len());
        if metadata.len() > MAX_METADATA || texts.sum::<usize>() > MAX_TEXT {
            return Err(Invalid::Metadata);
        }
        if whole.service.len() > MAX_SERVICE {
            return Err(Invalid::Long(whole.service.len()));
        }
        Ok(Self {
            service: whole.service.parse()?,
            address,
            metadata,
        })
    }
}

impl From<Provided> for Written {
    fn from(provided: Provided) -> Self {
        Self::Whole(Whole {
            service: provided.service.to_string(),
            address: Some(provided.address.to_string()),
            metadata: provided.metadata,
        })
    }
}

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
    /// Starts with what is `configured`. `place` says, whenever it is asked, where the mesh finds
    /// what is provided here; what is to be registered comes to `wanted`. The future keeps them
    /// until every handle is dropped.
    pub fn start(
        configured: BTreeSet<Provided>,
        place: impl Fn() -> registration::Place,
        wanted: watch::Sender<Instances>,
    ) -> (Self, impl Future<Output = ()>) {
        let (requests, received) = mpsc::channel(QUEUE);
        let (shown, seen) = watch::channel(Shown::default());
        let (changed, changes) = mpsc::channel(1);
        let keeper = Keeper {
            configured,
            ledger: Ledger::default(),
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
        let services = document.services.into_iter().enumerate();
        let services = services.map(|(n, written)| {
            Provided::try_from(written).map_err(|invalid| Error::Invalid(n, invalid))
        });
        let document = Document {
            services: services.collect::<Result<_, _>>()?,
            client: document.client,
            pid: document.pid,
            ttl_s: document.ttl_s,
        };
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
                        // Whoever asked may have left.
                        let _ = answer.send(self.take(document));
                    }
                },
                _ = changes.recv() => {}
                // Also for addresses of this host that have changed.
                _ = tick.tick() => drop(self.ledger.expire(Instant::now().into_std(), birth)),
            }
            self.update();
        }
    }

    fn take(&mut self, document: Document<Provided>) -> Result<(), Error> {
        let all = self.ledger.services().chain(&document.services);
        let addresses: BTreeSet<_> = all.map(|provided| provided.address).collect();
        if addresses.len() > MAX_ADDRESSES {
            return Err(Error::Addresses);
        }
        let born = birth(document.pid);
        let (client, pid) = (document.client.clone(), document.pid);
        if self.ledger.put(Instant::now().into_std(), document, born)? {
            tracing::info!(client, pid, "providers declared");
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
        let written = |document: Document<Provided>| Document {
            services: document.services.into_iter().map(Written::from).collect(),
            client: document.client,
            pid: document.pid,
            ttl_s: document.ttl_s,
        };
        self.shown.send_replace(Shown {
            services: all.iter().map(show).collect(),
            clients: self.ledger.documents().map(written).collect(),
        });
    }
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

/// Where Dubbo provides by default.
const DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 20880);
/// What bonder says of an instance itself.
const RESERVED: [&str; 2] = [registration::MESH, registration::DIRECT];
/// Addresses of one container, each asked by a connection of its own.
const MAX_ADDRESSES: usize = 64;
/// Keys of one service's metadata, and bytes of all of it: less than a pilot takes.
const MAX_METADATA: usize = 32;
const MAX_TEXT: usize = 8 << 10;
/// Bytes of the longest key of a service that a pilot takes.
const MAX_SERVICE: usize = 1 << 10;
/// Documents that wait.
const QUEUE: usize = 16;
/// Between two looks at who is gone.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(service: &str, address: &str, metadata: &[(&str, &str)]) -> Written {
        let metadata = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        Written::Whole(Whole {
            service: service.into(),
            address: Some(address.into()),
            metadata: metadata.collect(),
        })
    }

    #[test]
    fn what_is_provided_is_checked() {
        let default = Provided::try_from(Written::Key("a.A:1".into())).expect("a service");
        assert_eq!(default.address, DEFAULT);
        let long = "x".repeat(MAX_TEXT);
        for (written, why) in [
            (whole("a b", "1.1.1.1:1", &[]), "service: service key"),
            (whole(&long, "1.1.1.1:1", &[]), "service: has 8192 bytes"),
            (
                whole("a.A", "1.1.1.1:0", &[]),
                "address: \"1.1.1.1:0\" is no IP:port",
            ),
            (
                whole("a.A", "name:1", &[]),
                "address: \"name:1\" is no IP:port",
            ),
            (
                whole("a.A", "1.1.1.1:1", &[("direct", "")]),
                "metadata.direct: is set by bonder",
            ),
            (
                whole("a.A", "1.1.1.1:1", &[("a", &long)]),
                "metadata: is too much",
            ),
        ] {
            let refused = Provided::try_from(written).expect_err("refused");
            assert!(refused.to_string().starts_with(why), "{refused}");
        }
    }

    #[test]
    fn others_are_sent_where_somebody_serves() {
        let place = |inbound: Option<&str>| registration::Place {
            host: "10.0.0.1".parse().expect("an address"),
            inbound: inbound.map(|text| text.parse().expect("an address")),
        };
        let written = whole("a.A", "127.0.0.1:20880", &[("zone", "a")]);
        let provided = Provided::try_from(written).expect("a service");
        let direct = "10.0.0.1:20880".parse().expect("an address");
        for (inbound, serves, address, metadata) in [
            (None, true, "10.0.0.1:20880", &["zone"][..]),
            (
                Some("0.0.0.0:15006"),
                true,
                "10.0.0.1:15006",
                &["direct", "mesh", "zone"],
            ),
            // It listens on loopback alone.
            (
                Some("0.0.0.0:15006"),
                false,
                "10.0.0.1:15006",
                &["mesh", "zone"],
            ),
        ] {
            let place = place(inbound);
            let served = |at: SocketAddr| serves && at == direct;
            let ((service, at), told) = place.instance(&provided, served);
            assert_eq!((&*service, at.to_string()), ("a.A", address.to_owned()));
            assert!(told.keys().eq(metadata), "{told:?}");
        }
    }
}
