//! Where clients go when they cannot go through this proxy.
//!
//! A client asks while the proxy lives, keeps the answer, and calls these addresses when the proxy
//! is gone. So that it need not ask again and again, a request can wait for an answer other than the
//! one it has. While requests wait, one task asks the shards every [`PAUSE`] for all of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    extract::{Query as Asked, State as From},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use dubbo_proto::key::ServiceKey;
use mesh_proto::digest::Digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{State, json};
use crate::{
    config::{self, Config},
    metrics::{self, Gathered, HostState, HostStats, ServiceHost},
    model::Side,
    policy::preference::{Candidate, preferred},
};

/// The providers of every service as they were seen last. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Failover {
    seen: Arc<watch::Sender<Providers>>,
    /// Told when a request begins to wait.
    wanted: Arc<Notify>,
}

/// Who provides a service, by its key and by whether that, a bare interface, stands for every group
/// and version.
type Providers = Arc<BTreeMap<(ServiceKey, bool), Vec<Candidate>>>;

impl Failover {
    /// Asks the shards for as long as anybody waits for a change. Never ends.
    pub(super) async fn follow(self, shards: metrics::Shards) {
        loop {
            self.wanted.notified().await;
            while self.seen.receiver_count() > 0 {
                let begun = Instant::now();
                self.look(&shards).await;
                // However many services there are, at most one per cent of a shard's time.
                tokio::time::sleep(PAUSE.max(begun.elapsed() * 100)).await;
            }
        }
    }

    /// Shows what the shards say now.
    async fn look(&self, shards: &metrics::Shards) {
        let now = Arc::new(providers(&shards.refresh().await));
        self.seen.send_if_modified(|seen| {
            let changed = *seen != now;
            *seen = now;
            changed
        });
    }
}

/// What `GET /failover` asks for, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    limit: Option<String>,
    service: Option<String>,
    wait: Option<String>,
}

/// `GET /failover`: for each service, or the one asked for, the addresses that a client of this node
/// should call without it, best first.
///
/// The version is that of the content, as is the `etag`: the same after a restart. A request whose
/// `if-none-match` has it is answered 304, after `wait` at the latest, or anew when it changes.
pub(super) async fn failover(
    From(state): From<State>,
    Asked(query): Asked<Query>,
    headers: HeaderMap,
) -> Response {
    let wanted = match Wanted::new(query) {
        Ok(wanted) => wanted,
        Err(cure) => return (StatusCode::BAD_REQUEST, format!("{cure}\n")).into_response(),
    };
    let who = who(&state.config.load());
    let mut seen = state.failover.seen.subscribe();
    state.failover.look(&state.shards).await;
    let mut answer = wanted.answer(&who, &seen.borrow_and_update());
    if is_known(&headers, &answer.tag) && !wanted.wait.is_zero() {
        state.failover.wanted.notify_one();
        let _waiting = state.requests.waiting();
        let changed = async {
            while is_known(&headers, &answer.tag) && seen.changed().await.is_ok() {
                answer = wanted.answer(&who, &seen.borrow_and_update());
            }
        };
        let _ = tokio::time::timeout(wanted.wait, changed).await;
    }
    let head = [
        (header::ETAG, answer.tag.clone()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
    ];
    match is_known(&headers, &answer.tag) {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, json(&answer.body)).into_response(),
    }
}

/// What is asked for.
struct Wanted {
    limit: usize,
    service: Option<ServiceKey>,
    wait: Duration,
}

/// What a client gets, and the `etag` of it.
struct Answer {
    tag: String,
    body: Value,
}

impl Wanted {
    fn new(query: Query) -> Result<Self, String> {
        let limit = match query.limit.as_deref().map(str::parse) {
            None => DEFAULT_LIMIT,
            Some(Ok(limit @ 1..=MAX_LIMIT)) => limit,
            Some(_) => return Err(format!("limit is no number of 1 to {MAX_LIMIT}")),
        };
        let service = query.service.as_deref().map(str::parse).transpose();
        let wait = query.wait.as_deref().map(config::parse_time).transpose();
        Ok(Self {
            limit,
            service: service.map_err(|error: dubbo_proto::key::Error| error.to_string())?,
            wait: wait
                .map_err(|cure| format!("wait: {cure}"))?
                .unwrap_or_default()
                .min(MAX_WAIT),
        })
    }

    fn answer(&self, who: &str, providers: &Providers) -> Answer {
        let named: BTreeMap<_, _> = match &self.service {
            // Backwards, so that a key counts rather than the interface that is written like it.
            None => providers
                .iter()
                .rev()
                .map(|((key, _), hosts)| (key, hosts))
                .collect(),
            Some(key) => {
                let bare = || (ServiceKey::new("", key.interface(), ""), true);
                let exact = providers.get(&(key.clone(), false));
                let hosts = exact.or_else(|| providers.get(&bare()));
                hosts.map(|hosts| (key, hosts)).into_iter().collect()
            }
        };
        let mut digest = Digest::new();
        let mut services = serde_json::Map::new();
        for (key, hosts) in named {
            let key = key.to_string();
            let addresses = preferred(who, hosts.iter().copied(), self.limit);
            digest = digest.text(&key);
            digest = addresses.iter().fold(digest, |d, a| d.address(*a));
            let texts = addresses.iter().map(ToString::to_string);
            services.insert(key, texts.collect());
        }
        let version = format!("{:016x}", digest.finish());
        Answer {
            tag: format!("\"{version}\""),
            body: json!({ "version": version, "services": services }),
        }
    }
}

/// Whose clients ask: the sidecars of one host may have no other name than that of the host, but each
/// has a place of its own.
fn who(config: &Config) -> String {
    let outbound = config.outbound.iter().flat_map(|side| &side.listen);
    outbound.fold(config.node.id.clone(), |who, listen| {
        format!("{who} {listen}")
    })
}

/// Whether the client has what `tag` stands for.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = known.filter_map(|value| value.to_str().ok());
    tags.any(|tags| {
        tags.split(',').any(|known| {
            let known = known.trim();
            known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
        })
    })
}

/// Everybody to call without the proxy, by service.
fn providers(gathered: &Gathered) -> BTreeMap<(ServiceKey, bool), Vec<Candidate>> {
    let stats: BTreeMap<_, _> = gathered
        .hosts()
        .into_iter()
        .map(|host| (host.address, host))
        .collect();
    let outbound = gathered.services().into_iter();
    let outbound = outbound.filter(|service| service.side == Side::Outbound);
    outbound
        .map(|service| {
            let hosts = service.hosts.iter();
            let hosts = hosts.map(|host| candidate(host, stats.get(&host.address)));
            ((service.key, service.wildcard), merged(hosts))
        })
        .collect()
}

fn candidate(host: &ServiceHost, stats: Option<&HostStats>) -> Candidate {
    Candidate {
        address: host.profile.direct.unwrap_or(host.address),
        weight: host.profile.weight,
        healthy: host.profile.healthy && stats.is_none_or(is_healthy),
    }
}

/// Whether nothing speaks against a host. One that is dialed for the first time may yet be well; one
/// that is dialed again is not, or its place would change with each attempt.
fn is_healthy(host: &HostStats) -> bool {
    match host.state {
        HostState::Idle | HostState::Connected => true,
        HostState::Connecting => host.connected == 0 && host.connect_failures == 0,
        HostState::ReadOnly | HostState::Lost => false,
    }
}

/// With each address once, by address: one application may stand behind several sidecars.
fn merged(hosts: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
    let mut by_address: BTreeMap<_, Candidate> = BTreeMap::new();
    for host in hosts {
        let entry = by_address.entry(host.address);
        let merge = |one: &mut Candidate| {
            one.weight = one.weight.saturating_add(host.weight);
            one.healthy |= host.healthy;
        };
        entry.and_modify(merge).or_insert(host);
    }
    by_address.into_values().collect()
}

/// Addresses told of a service where the client does not say how many.
const DEFAULT_LIMIT: usize = 10;
/// Most addresses told of a service.
const MAX_LIMIT: usize = 1000;
/// Longest time that a request waits.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(60);
/// Pause between two looks at the shards while requests wait.
const PAUSE: Duration = Duration::from_millis(500);
