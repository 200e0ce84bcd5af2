//! Puts what serves here into the registry, by leases that are renewed while it does, and takes it
//! out when it does not, or when bonder ends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use hyper::Method;
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    backoff::Backoff,
    config::Token,
    http::{self, ask},
    provided::Provided,
};

/// Where the mesh finds what is provided here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// This host, as others reach it.
    pub host: IpAddr,
    /// Where the sidecar takes the calls of others; none: they go to the application.
    pub inbound: Option<SocketAddr>,
}

/// What is registered, or shall be: the metadata of each service and address.
pub(super) type Instances = BTreeMap<(String, SocketAddr), BTreeMap<String, String>>;

impl Place {
    /// Where others reach an application directly that listens at `address`.
    pub(super) fn direct(&self, address: SocketAddr) -> SocketAddr {
        let ip = address.ip();
        // Dubbo listens on every address; what is written is how we reach it.
        match ip.is_loopback() || ip.is_unspecified() {
            true => SocketAddr::new(self.host, address.port()),
            false => address,
        }
    }

    /// What is registered of `provided`. `serves` says whether somebody serves an address: nobody is
    /// sent to one where nobody does.
    pub(super) fn instance(
        &self,
        provided: &Provided,
        serves: impl Fn(SocketAddr) -> bool,
    ) -> ((String, SocketAddr), BTreeMap<String, String>) {
        let direct = self.direct(provided.address);
        let mut metadata = provided.metadata.clone();
        let address = match self.inbound {
            None => direct,
            Some(inbound) => {
                metadata.insert(MESH.into(), "true".into());
                if serves(direct) {
                    metadata.insert(DIRECT.into(), direct.to_string());
                }
                SocketAddr::new(self.host, inbound.port())
            }
        };
        ((provided.service.to_string(), address), metadata)
    }
}

/// How far the registry has followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Progress {
    /// What stands there, or may stand there.
    pub registered: Vec<String>,
    /// Why it is behind, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What bonder has told the registry.
#[derive(Debug)]
pub(super) struct Registrar {
    /// Where the pilot's HTTP is, as soon as that is known.
    pub(super) pilot: watch::Receiver<Option<SocketAddr>>,
    /// What it wants to see.
    pub(super) token: Option<Token>,
    /// What is to stand there.
    pub(super) wanted: watch::Receiver<Instances>,
    /// How far it is.
    pub(super) progress: watch::Sender<Progress>,
    /// What stands there. A request that got no answer may have been carried out.
    pub(super) registered: Instances,
}

impl Registrar {
    /// Keeps the registry as it is wanted, until `end` is told; then takes everything out, once.
    pub(super) async fn keep(mut self, mut end: watch::Receiver<bool>) {
        let mut backoff = Backoff::new(PAUSE, MAX_PAUSE);
        let mut renew = Instant::now();
        while !*end.borrow_and_update() {
            let wanted = self.wanted.borrow_and_update().clone();
            let known = self.pilot.borrow_and_update().is_some();
            let due = Instant::now() >= renew || wanted != self.registered;
            if known && due {
                // Not cut off by the end: what is registered must be known then.
                match self.follow(&wanted).await {
                    Ok(()) => {
                        backoff.reset();
                        renew = Instant::now() + renewal(fastrand::u64(..));
                    }
                    Err(error) => {
                        let problem = error.to_string();
                        tracing::warn!(problem, "the registry does not follow");
                        self.show(Some(problem));
                        renew = Instant::now() + backoff.next(fastrand::u64(..));
                        // A change would be no cure: it waits with the rest.
                        tokio::select! {
                            () = sleep_until(renew) => {}
                            _ = end.changed() => {}
                            _ = self.pilot.changed() => {}
                        }
                        continue;
                    }
                }
            }
            tokio::select! {
                () = sleep_until(renew.max(Instant::now() + PAUSE)), if known => {}
                changed = self.wanted.changed() => if changed.is_err() { break },
                changed = self.pilot.changed() => if changed.is_err() { break },
                changed = end.changed() => if changed.is_err() { break },
            }
        }
        if let Err(error) = self.follow(&Instances::new()).await {
            tracing::warn!(%error, "not taken out of the registry: the leases run out instead");
        }
    }

    /// Takes out what is not wanted, and puts in, or renews, what is.
    async fn follow(&mut self, wanted: &Instances) -> Result<(), http::Error> {
        let Some(pilot) = *self.pilot.borrow() else {
            return Ok(());
        };
        let token = self.token.as_ref();
        let gone = self
            .registered
            .keys()
            .filter(|at| !wanted.contains_key(*at));
        let gone: Vec<_> = gone.cloned().collect();
        for some in gone.chunks(BATCH) {
            let removed = some.iter().map(|(service, address)| Removed {
                service,
                address: *address,
            });
            let body = json(&removed.collect::<Vec<_>>());
            ask(
                pilot,
                token,
                (Method::DELETE, INSTANCES),
                Some(body),
                PATIENCE,
            )
            .await?;
            tracing::info!(instances = some.len(), "deregistered");
            for place in some {
                self.registered.remove(place);
            }
        }
        let leased = wanted.iter().map(|((service, address), metadata)| Leased {
            service,
            address: *address,
            metadata,
            ttl_s: TTL.as_secs(),
        });
        let before = self.registered.len();
        // Also if no answer comes.
        self.registered.extend(wanted.clone());
        for some in leased.collect::<Vec<_>>().chunks(BATCH) {
            let put = (Method::PUT, INSTANCES);
            ask(pilot, token, put, Some(json(&some)), PATIENCE).await?;
        }
        if self.registered.len() > before {
            tracing::info!(instances = self.registered.len(), "registered");
        }
        self.show(None);
        Ok(())
    }

    fn show(&self, problem: Option<String>) {
        let shown = self.registered.keys();
        let shown = shown.map(|(service, address)| format!("{service} {address}"));
        self.progress.send_replace(Progress {
            registered: shown.collect(),
            problem,
        });
    }
}

/// Until the next renewal: up to a fifth earlier than it must be, so that bonders that were started
/// together do not all come together for ever. `random` is any number.
fn renewal(random: u64) -> Duration {
    RENEW - (RENEW / 5).mul_f64(random as f64 / u64::MAX as f64)
}

#[derive(Debug, Serialize)]
struct Leased<'a> {
    service: &'a str,
    address: SocketAddr,
    metadata: &'a BTreeMap<String, String>,
    ttl_s: u64,
}

#[derive(Debug, Serialize)]
struct Removed<'a> {
    service: &'a str,
    address: SocketAddr,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers and maps of texts are JSON")
}

/// The pilot's page.
const INSTANCES: &str = "/v1/instances";
/// Metadata: a sidecar listens at the address.
pub(super) const MESH: &str = "mesh";
/// Metadata: the application behind it.
pub(super) const DIRECT: &str = "direct";
/// Instances of one request.
const BATCH: usize = 1000;
/// How long an instance stays when bonder is gone without a word.
const TTL: Duration = Duration::from_secs(30);
/// Between two renewals: two may fail.
const RENEW: Duration = Duration::from_secs(10);
/// Longest wait for an answer of the pilot.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before what failed is tried again, doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use axum::{Router, body::Bytes, http::StatusCode, routing::put};
    use tokio::sync::mpsc;

    use super::*;
    use crate::bonder::provided::tests::whole;

    /// A registrar with what it is told and tells.
    struct Bench {
        pilot: watch::Sender<Option<SocketAddr>>,
        wanted: watch::Sender<Instances>,
        progress: watch::Receiver<Progress>,
        end: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Bench {
        fn start() -> Self {
            let (pilot, known) = watch::channel(None);
            let (wanted, wants) = watch::channel(Instances::new());
            let (progress, shown) = watch::channel(Progress::default());
            let (end, ended) = watch::channel(false);
            let registrar = Registrar {
                pilot: known,
                token: None,
                wanted: wants,
                progress,
                registered: Instances::new(),
            };
            Self {
                pilot,
                wanted,
                progress: shown,
                end,
                task: tokio::spawn(registrar.keep(ended)),
            }
        }

        fn want(&self, services: &[&str]) {
            let at = "10.0.0.1:1".parse().expect("an address");
            let services = services.iter().map(|service| (service.to_string(), at));
            let wanted = services.map(|place| (place, BTreeMap::new()));
            self.wanted.send_replace(wanted.collect());
        }
    }

    /// A pilot that refuses its first requests; what it was asked.
    async fn pilot(refused: usize) -> (SocketAddr, mpsc::Receiver<(Method, String)>) {
        let (sender, requests) = mpsc::channel(16);
        let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(refused));
        let take = move |method: Method, body: Bytes| async move {
            let text = String::from_utf8(body.into()).expect("text");
            sender.send((method, text)).await.expect("the test reads");
            let order = std::sync::atomic::Ordering::Relaxed;
            let refuse = left.fetch_update(order, order, |left| left.checked_sub(1));
            match refuse {
                Ok(_) => StatusCode::SERVICE_UNAVAILABLE,
                Err(_) => StatusCode::OK,
            }
        };
        let pages = Router::new().route(INSTANCES, put(take.clone()).delete(take));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bound");
        let address = listener.local_addr().expect("an address");
        let listener = listener.into_std().expect("a listener");
        tokio::spawn(crate::server::serve(listener, pages));
        (address, requests)
    }

    #[tokio::test]
    async fn the_registry_follows_what_serves_though_it_was_away() {
        let bench = Bench::start();
        bench.want(&["a.A", "b.B"]);
        let (address, mut requests) = pilot(2).await;
        bench.pilot.send_replace(Some(address));
        for _ in 0..3 {
            let (method, body) = requests.recv().await.expect("a request");
            assert_eq!(method, Method::PUT);
            assert!(body.contains("a.A") && body.contains("b.B") && body.contains("\"ttl_s\":30"));
        }
        let mut progress = bench.progress.clone();
        let done = progress.wait_for(|now| now.problem.is_none() && now.registered.len() == 2);
        drop(done.await.expect("it goes on"));
        bench.want(&["b.B"]);
        let (method, body) = requests.recv().await.expect("a request");
        assert_eq!(method, Method::DELETE);
        assert_eq!(body, "[{\"service\":\"a.A\",\"address\":\"10.0.0.1:1\"}]");
        assert_eq!(requests.recv().await.expect("a request").0, Method::PUT);
        bench.end.send_replace(true);
        bench.task.await.expect("it ends");
        let (method, body) = requests.recv().await.expect("a request");
        assert!(method == Method::DELETE && body.contains("b.B"));
    }

    #[test]
    fn renewals_of_those_who_began_together_spread() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut tenths = BTreeMap::new();
        for _ in 0..1000 {
            let wait = renewal(rng.u64(..));
            assert!(wait <= RENEW && wait >= RENEW * 4 / 5);
            *tenths.entry(wait.as_millis() / 100).or_insert(0) += 1;
        }
        assert!(tenths.values().all(|count| *count < 100), "{tenths:?}");
        assert_eq!(renewal(0), RENEW);
        assert_eq!(renewal(u64::MAX), RENEW * 4 / 5);
    }

    #[tokio::test]
    async fn an_end_without_a_pilot_is_an_end() {
        let bench = Bench::start();
        bench.want(&["a.A"]);
        bench.end.send_replace(true);
        bench.task.await.expect("it ends");
        let bench = Bench::start();
        // Nobody listens there.
        bench
            .pilot
            .send_replace(Some("127.0.0.1:1".parse().expect("an address")));
        bench.want(&["a.A"]);
        let mut progress = bench.progress.clone();
        let refused = progress.wait_for(|now| now.problem.is_some());
        drop(refused.await.expect("it goes on"));
        bench.end.send_replace(true);
        bench.task.await.expect("it ends");
    }

    #[test]
    fn others_are_sent_where_somebody_serves() {
        let place = |inbound: Option<&str>| Place {
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
