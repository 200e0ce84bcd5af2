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
            let url: String = response.type_url.chars().take(100).collect();
            return Outcome {
                refused: Some(format!("{url:?} was not asked for")),
                ..Outcome::default()
            };
        };
        let mut touched = BTreeSet::new();
        let mut wrong = Vec::new();
        for resource in response.resources {
            let Ok(key) = names::service(kind, &resource.name) else {
                wrong.push(format!("{:?} names no service", resource.name));
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
                    touched.insert(key);
                }
                Err(error) => wrong.push(error.to_string()),
            }
        }
        for name in response.removed_resources {
            if let Ok(key) = names::service(kind, &name)
                && let Some(wanted) = self.wanted.get_mut(&key)
            {
                wanted.remove(kind);
                touched.insert(key);
            }
        }
        let refused = reason(&wrong);
        let answer = (response.nonce, refused.clone());
        self.kinds[at].answers.push_back(answer);
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

    fn remove(&mut self, kind: Type) {
        match kind {
            Type::Policy => self.policy = Slot::Absent,
            Type::Cluster => self.cluster = Slot::Absent,
            _ => self.endpoints = Slot::Absent,
        }
    }
}

impl<T> Slot<T> {
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
fn reason(wrong: &[String]) -> Option<String> {
    let more = wrong
        .len()
        .checked_sub(fixed::REASONS)
        .filter(|more| *more > 0);
    let mut text = wrong
        .iter()
        .take(fixed::REASONS)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if let Some(more) = more {
        text.push_str(&format!("; and {more} more"));
    }
    (!wrong.is_empty()).then_some(text)
}

/// The types that a service is asked for by, in the order in which they are of use.
const KINDS: [Type; 3] = [Type::Policy, Type::Cluster, Type::Endpoints];
/// `google.rpc.Code`.
const INVALID_ARGUMENT: i32 = 3;

#[cfg(test)]
mod tests {
    use mesh_proto::xds::{
        cluster::{Cluster, cluster},
        discovery::Resource as Sent,
        endpoint::ClusterLoadAssignment,
        protobuf::Any,
    };
    use prost::Message;

    use super::*;
    use crate::config::Limits;

    const KEY: &str = "a.A:1";

    fn key() -> ServiceKey {
        KEY.parse().expect("a key")
    }

    fn sent(kind: Type, version: &str, value: Vec<u8>) -> DeltaDiscoveryResponse {
        let any = Any {
            type_url: kind.url().into(),
            value,
        };
        DeltaDiscoveryResponse {
            type_url: kind.url().into(),
            nonce: format!("n{version}"),
            resources: vec![Sent {
                name: name(kind, &key()),
                version: version.into(),
                resource: Some(any),
                ..Sent::default()
            }],
            ..DeltaDiscoveryResponse::default()
        }
    }

    fn cluster_of() -> Vec<u8> {
        let cluster = Cluster {
            name: names::cluster(&key()),
            cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
                cluster::DiscoveryType::Eds.into(),
            )),
            ..Cluster::default()
        };
        cluster.encode_to_vec()
    }

    fn load() -> Vec<u8> {
        let load = ClusterLoadAssignment {
            cluster_name: names::cluster(&key()),
            ..ClusterLoadAssignment::default()
        };
        load.encode_to_vec()
    }

    fn removed(kind: Type) -> DeltaDiscoveryResponse {
        DeltaDiscoveryResponse {
            type_url: kind.url().into(),
            removed_resources: vec![name(kind, &key())],
            ..DeltaDiscoveryResponse::default()
        }
    }

    fn requests(of: &mut Subscription) -> Vec<DeltaDiscoveryRequest> {
        std::iter::from_fn(|| of.poll_request(&Node::default())).collect()
    }

    /// A subscription that knows the service.
    fn known() -> Subscription {
        let mut asked = Subscription::new(Bounds::of(&Limits::default()));
        assert!(asked.want(&key()) && !asked.want(&key()));
        assert!(requests(&mut asked).is_empty(), "there is no stream");
        asked.connected();
        assert_eq!(requests(&mut asked).len(), 3);
        let first = asked.receive(sent(Type::Cluster, "1", cluster_of()));
        assert_eq!(first, Outcome::default());
        let both = asked.receive(sent(Type::Endpoints, "2", load()));
        let service = Arc::new(Service::new(key()));
        assert_eq!(both.updates, [Update::Present(service)]);
        assert_eq!(asked.pending(), 0);
        asked
    }

    #[test]
    fn every_message_is_answered_and_nothing_is_asked_twice() {
        let mut asked = known();
        let nonces: Vec<_> = requests(&mut asked)
            .into_iter()
            .map(|r| {
                (
                    r.response_nonce,
                    r.error_detail.is_some(),
                    r.resource_names_subscribe.len(),
                )
            })
            .collect();
        assert_eq!(nonces, [("n1".into(), false, 0), ("n2".into(), false, 0)]);
        assert!(
            asked
                .receive(sent(Type::Endpoints, "2", load()))
                .updates
                .is_empty()
        );
    }

    /// Whatever was changed in between: the server ends up with what is wanted.
    #[test]
    fn what_is_not_wanted_after_all_is_taken_back() {
        let mut asked = known();
        requests(&mut asked);
        asked.forget(&key());
        assert!(asked.want(&key()));
        asked.forget(&key());
        let sent = requests(&mut asked);
        let names = sent.iter().map(|request| {
            let left = request.resource_names_unsubscribe.len();
            (request.resource_names_subscribe.len(), left)
        });
        assert_eq!(names.collect::<Vec<_>>(), [(0, 1); 3]);
        assert!(asked.want(&key()));
        asked.forget(&key());
        assert!(requests(&mut asked).is_empty(), "it was not asked for");
    }

    #[test]
    fn a_new_stream_names_what_is_known_and_loses_nothing() {
        let mut asked = known();
        asked.disconnected();
        assert!(!asked.has_request() && asked.told(&key()).is_some());
        asked.connected();
        let again = requests(&mut asked);
        let names: Vec<_> = again
            .iter()
            .map(|r| r.resource_names_subscribe.len())
            .collect();
        assert_eq!(names, [1, 1, 1]);
        assert!(again[0].node.is_some() && again[1].node.is_none());
        let versions = |r: &DeltaDiscoveryRequest| -> Vec<String> {
            r.initial_resource_versions.values().cloned().collect()
        };
        let versions: Vec<_> = again.iter().map(versions).collect();
        assert_eq!(
            versions,
            [vec![], vec!["1".to_owned()], vec!["2".to_owned()]]
        );
    }

    #[test]
    fn what_is_wrong_is_refused_and_what_was_known_stays() {
        let mut asked = known();
        requests(&mut asked);
        let outcome = asked.receive(sent(Type::Endpoints, "3", vec![0xff]));
        assert!(outcome.updates.is_empty());
        let refused = outcome.refused.expect("refused");
        assert!(
            refused.starts_with("endpoints \"outbound|a.A:1\": value: "),
            "{refused}"
        );
        let answers = requests(&mut asked);
        let detail = answers[0].error_detail.as_ref().expect("a reason");
        assert_eq!((detail.code, &detail.message), (3, &refused));
        asked.connected();
        let versions = requests(&mut asked)
            .pop()
            .expect("endpoints")
            .initial_resource_versions;
        assert_eq!(
            versions.into_values().collect::<Vec<_>>(),
            ["2"],
            "not the refused one"
        );
    }

    #[test]
    fn absent_is_told_and_stays_asked_for() {
        let mut asked = known();
        let gone = asked.receive(removed(Type::Cluster));
        assert_eq!(gone.updates, [Update::Absent(key())]);
        assert!(asked.receive(removed(Type::Endpoints)).updates.is_empty());
        asked.receive(sent(Type::Cluster, "5", cluster_of()));
        let back = asked.receive(sent(Type::Endpoints, "6", load()));
        assert!(matches!(back.updates.as_slice(), [Update::Present(_)]));
        assert!(asked.receive(removed(Type::Policy)).updates.is_empty());
    }

    #[test]
    fn what_nobody_wants_is_unsubscribed_and_not_taken_over() {
        let mut asked = known();
        requests(&mut asked);
        asked.forget(&key());
        let taken_back = requests(&mut asked);
        assert!(
            taken_back
                .iter()
                .all(|r| r.resource_names_unsubscribe.len() == 1)
        );
        assert_eq!(taken_back.len(), 3);
        let late = asked.receive(sent(Type::Endpoints, "7", load()));
        assert_eq!((late.updates.len(), asked.len()), (0, 0));
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let mut asked = known();
        let mut other = sent(Type::Cluster, "1", cluster_of());
        other.type_url = "x".into();
        assert!(asked.receive(other).refused.is_some());
        let mut odd = sent(Type::Cluster, "1", cluster_of());
        odd.resources[0].name = "a.A:1".into();
        assert!(asked.receive(odd).refused.is_some());
    }
}
