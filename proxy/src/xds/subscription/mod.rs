//! What is asked of a control plane and what it answered: the delta form of xDS, without I/O.
//!
//! A service is asked for by three resources. It is there once its cluster and its endpoints are,
//! and absent as soon as one of these is said to be; its policy may be missing. A lost stream takes
//! nothing away: the next one begins with the versions that are known, so that only what differs is
//! sent. A resource that is wrong is refused with the reason, and what was there before stays.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names::{self, Type},
    xds::{
        core::Node,
        discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        rpc,
    },
};

use super::translate::{self, Bounds, Policy, Resource};
use crate::{
    config::fixed,
    model::{Endpoint, Service},
};

/// What is asked for and what is known.
#[derive(Debug)]
pub(super) struct Subscription {
    bounds: Bounds,
    wanted: BTreeMap<ServiceKey, Wanted>,
    /// By place in [`KINDS`].
    kinds: [Kind; 3],
    connected: bool,
}

/// What became known of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Update {
    /// It is this.
    Present(Arc<Service>),
    /// There is none.
    Absent(ServiceKey),
}

/// What a message said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What changed of services.
    pub(super) updates: Vec<Update>,
    /// Why some of it was refused, if it was.
    pub(super) refused: Option<String>,
}

/// One service that is asked for.
#[derive(Debug, Default)]
struct Wanted {
    policy: Slot<Policy>,
    cluster: Slot<()>,
    endpoints: Slot<Vec<Endpoint>>,
    told: Option<Update>,
}

/// One resource of it.
#[derive(Debug, Default)]
enum Slot<T> {
    #[default]
    Asked,
    Present(T, String),
    Absent,
}

/// What is to be sent for one type of resources.
#[derive(Debug, Default)]
struct Kind {
    /// This stream has had a request of the type.
    begun: bool,
    /// This stream has had a message of the type.
    heard: bool,
    /// Services of which this stream brought something newer than what is known, and wrong.
    refused: BTreeSet<ServiceKey>,
    subscribe: BTreeSet<String>,
    unsubscribe: BTreeSet<String>,
    /// Of those to subscribe, the ones that this stream has subscribed already.
    again: BTreeSet<String>,
    /// Answers to messages: their nonces, with the reasons of those that are refused.
    answers: VecDeque<(String, Option<String>)>,
}

impl Subscription {
    /// That asks for nothing yet, and takes no resource beyond `bounds`.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            wanted: BTreeMap::new(),
            kinds: Default::default(),
            connected: false,
        }
    }

    /// Asks for a service. Whether that is new.
    pub(super) fn want(&mut self, key: &ServiceKey) -> bool {
        if self.wanted.contains_key(key) {
            return false;
        }
        self.wanted.insert(key.clone(), Wanted::default());
        for (kind, pending) in KINDS.iter().zip(&mut self.kinds) {
            let name = name(*kind, key);
            // What was not yet sent need not be taken back; but then nothing would be told anew.
            if pending.unsubscribe.remove(&name) {
                pending.again.insert(name.clone());
            }
            pending.subscribe.insert(name);
        }
        true
    }

    /// Asks for it no longer.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        if self.wanted.remove(key).is_none() {
            return;
        }
        for (kind, pending) in KINDS.iter().zip(&mut self.kinds) {
            let name = name(*kind, key);
            pending.refused.remove(key);
            let unknown = pending.subscribe.remove(&name) && !pending.again.remove(&name);
            if pending.begun && !unknown {
                pending.unsubscribe.insert(name);
            }
        }
    }

    /// What a service was told to be, if it was.
    pub(super) fn told(&self, key: &ServiceKey) -> Option<&Update> {
        self.wanted.get(key)?.told.as_ref()
    }

    /// Services that are asked for.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Services of which nothing is told yet.
    pub(super) fn pending(&self) -> usize {
        self.wanted
            .values()
            .filter(|one| one.told.is_none())
            .count()
    }

    /// Whether what is known is all that is asked for, and this stream said of it that it is so now.
    pub(super) fn is_current(&self) -> bool {
        let known = |kind| self.wanted.values().any(|wanted| wanted.knows(kind));
        let mut kinds = KINDS.iter().zip(&self.kinds);
        self.connected
            && self.pending() == 0
            && kinds.all(|(kind, said)| said.refused.is_empty() && (said.heard || !known(*kind)))
    }

    /// A stream begins: everything is asked for, and what is known is named.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        for (kind, pending) in KINDS.iter().zip(&mut self.kinds) {
            *pending = Kind::default();
            pending.subscribe = self.wanted.keys().map(|key| name(*kind, key)).collect();
        }
    }

    /// The stream is lost; nothing that is known is.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
    }

    /// Whether there is anything to send.
    pub(super) fn has_request(&self) -> bool {
        self.connected && self.kinds.iter().any(Kind::has_request)
    }

    /// The next message to send; `node` stands in the first one of a stream.
    pub(super) fn poll_request(&mut self, node: &Node) -> Option<DeltaDiscoveryRequest> {
        if !self.connected {
            return None;
        }
        let first = self.kinds.iter().all(|kind| !kind.begun);
        let at = self.kinds.iter().position(Kind::has_request)?;
        let kind = KINDS[at];
        let versions = match self.kinds[at].begun {
            true => HashMap::new(),
            false => self.versions(kind),
        };
        let pending = &mut self.kinds[at];
        pending.begun = true;
        let (nonce, refused) = pending.answers.pop_front().unwrap_or_default();
        pending.again.clear();
        Some(DeltaDiscoveryRequest {
            node: first.then(|| node.clone()),
            type_url: kind.url().into(),
            resource_names_subscribe: std::mem::take(&mut pending.subscribe).into_iter().collect(),
            resource_names_unsubscribe: std::mem::take(&mut pending.unsubscribe)
                .into_iter()
                .collect(),
            initial_resource_versions: versions,
            response_nonce: nonce,
            error_detail: refused.map(|message| rpc::Status {
                code: INVALID_ARGUMENT,
                message,
                ..rpc::Status::default()
            }),
            ..DeltaDiscoveryRequest::default()
        })
    }

    /// Takes a message over: what is right of it counts, whatever else is wrong.
    pub(super) fn receive(&mut self, response: DeltaDiscoveryResponse) -> Outcome {
        let kind = Type::from_url(&response.type_url);
        let at = kind.and_then(|kind| KINDS.iter().position(|known| *known == kind));
        let Some((at, kind)) = at.zip(kind) else {
            let url = cut(&response.type_url);
            return Outcome {
                refused: Some(format!("{url:?} was not asked for")),
                ..Outcome::default()
            };
        };
        self.kinds[at].heard = true;
        let mut touched = BTreeSet::new();
        let mut wrong = Vec::new();
        for resource in response.resources {
            let Ok(key) = names::service(kind, &resource.name) else {
                let name = cut(&resource.name);
                wrong.push((format!("{name:?} names no service"), name));
                continue;
            };
            // Nobody wants it any more.
            let Some(wanted) = self.wanted.get_mut(&key) else {
                continue;
            };
            let any = resource.resource.unwrap_or_default();
            match translate::resource(kind, &resource.name, &any, self.bounds) {
                Ok(value) => {
                    wanted.set(value, resource.version);
                    self.kinds[at].refused.remove(&key);
                    touched.insert(key);
                }
                Err(error) => {
                    wrong.push((error.to_string(), resource.name));
                    self.kinds[at].refused.insert(key);
                }
            }
        }
        for name in response.removed_resources {
            if let Ok(key) = names::service(kind, &name)
                && let Some(wanted) = self.wanted.get_mut(&key)
            {
                wanted.remove(kind);
                self.kinds[at].refused.remove(&key);
                touched.insert(key);
            }
        }
        let refused = reason(&wrong);
        let answer = refused.clone().map(|reason| reason + &others(&wrong));
        self.kinds[at].answers.push_back((response.nonce, answer));
        let updates = touched.into_iter().filter_map(|key| self.update(key));
        Outcome {
            updates: updates.collect(),
            refused,
        }
    }

    /// What is to be told of a service now, if that differs from what was told.
    fn update(&mut self, key: ServiceKey) -> Option<Update> {
        let wanted = self.wanted.get_mut(&key)?;
        let now = match (&wanted.cluster, &wanted.endpoints) {
            (Slot::Absent, _) | (_, Slot::Absent) => Update::Absent(key),
            (Slot::Present((), _), Slot::Present(endpoints, _)) => {
                let policy = match &wanted.policy {
                    Slot::Present(policy, _) => Some(policy),
                    Slot::Asked | Slot::Absent => None,
                };
                let service = translate::service(key, policy, endpoints.clone());
                Update::Present(service.into())
            }
            _ => return None,
        };
        let changed = wanted.told.as_ref() != Some(&now);
        changed.then(|| {
            wanted.told = Some(now.clone());
            now
        })
    }

    fn versions(&self, kind: Type) -> HashMap<String, String> {
        let known = self.wanted.iter().filter_map(|(key, wanted)| {
            let version = match kind {
                Type::Policy => wanted.policy.version(),
                Type::Cluster => wanted.cluster.version(),
                _ => wanted.endpoints.version(),
            };
            Some((name(kind, key), version?.to_owned()))
        });
        known.collect()
    }
}

impl Wanted {
    fn set(&mut self, value: Resource, version: String) {
        match value {
            Resource::Policy(policy) => self.policy = Slot::Present(policy, version),
            Resource::Cluster => self.cluster = Slot::Present((), version),
            Resource::Endpoints(list) => self.endpoints = Slot::Present(list, version),
        }
    }

    const fn knows(&self, kind: Type) -> bool {
        match kind {
            Type::Policy => self.policy.is_known(),
            Type::Cluster => self.cluster.is_known(),
            _ => self.endpoints.is_known(),
        }
    }

    fn remove(&mut self, kind: Type) {
        match kind {
            Type::Policy => self.policy = Slot::Absent,
            Type::Cluster => self.cluster = Slot::Absent,
            _ => self.endpoints = Slot::Absent,
        }
    }
}

impl<T> Slot<T> {
    const fn is_known(&self) -> bool {
        !matches!(self, Self::Asked)
    }

    fn version(&self) -> Option<&str> {
        match self {
            Self::Present(_, version) => Some(version),
            Self::Asked | Self::Absent => None,
        }
    }
}

impl Kind {
    fn has_request(&self) -> bool {
        !(self.subscribe.is_empty() && self.unsubscribe.is_empty() && self.answers.is_empty())
    }
}

fn name(kind: Type, key: &ServiceKey) -> String {
    match kind {
        Type::Policy => names::policy(key),
        _ => names::cluster(key),
    }
}

/// One text for all that is wrong with a message.
fn reason(wrong: &[(String, String)]) -> Option<String> {
    let reasons = wrong.iter().take(fixed::REASONS);
    let reasons: Vec<_> = reasons.map(|(reason, _)| reason.as_str()).collect();
    let mut text = reasons.join("; ");
    if wrong.len() > fixed::REASONS {
        text.push_str(&format!("; and {} more", wrong.len() - fixed::REASONS));
    }
    (!wrong.is_empty()).then_some(text)
}

/// The names of those whose reasons are not told: what is not named counts as taken.
fn others(wrong: &[(String, String)]) -> String {
    let others = wrong.iter().skip(fixed::REASONS).take(fixed::REFUSED);
    others.map(|(_, name)| format!(" {name:?}")).collect()
}

/// As much of a name as is told where it is none of ours.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}

/// The types that a service is asked for by, in the order in which they are of use.
const KINDS: [Type; 3] = [Type::Policy, Type::Cluster, Type::Endpoints];
/// `google.rpc.Code`.
const INVALID_ARGUMENT: i32 = 3;

#[cfg(test)]
mod tests;
