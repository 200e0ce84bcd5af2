//! A subscription that is told what a control plane says.

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

fn policy() -> Vec<u8> {
    let policy = mesh_proto::v1::ServicePolicy {
        name: KEY.into(),
        ..mesh_proto::v1::ServicePolicy::default()
    };
    policy.encode_to_vec()
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

/// Of each type on its own: a policy that is refused keeps no service from being known.
#[test]
fn what_is_refused_leaves_the_rest_out_of_date_until_it_comes_good_or_goes() {
    let broken = || sent(Type::Policy, "3", vec![0xff]);
    let good: [fn(&mut Subscription); 3] = [
        |asked| drop(asked.receive(sent(Type::Policy, "4", policy()))),
        |asked| drop(asked.receive(removed(Type::Policy))),
        |asked| asked.forget(&key()),
    ];
    for good in good {
        let mut asked = known();
        assert!(asked.is_current());
        assert!(asked.receive(broken()).refused.is_some());
        assert!(asked.pending() == 0 && !asked.is_current());
        // Another message of the type says nothing of it.
        asked.receive(DeltaDiscoveryResponse {
            type_url: Type::Policy.url().into(),
            ..DeltaDiscoveryResponse::default()
        });
        assert!(!asked.is_current());
        good(&mut asked);
        assert!(asked.is_current());
    }
}

/// What was known, present or absent, may have changed while nobody listened.
#[test]
fn a_new_stream_has_to_speak_of_all_that_is_known() {
    let empty = |kind: Type| DeltaDiscoveryResponse {
        type_url: kind.url().into(),
        ..DeltaDiscoveryResponse::default()
    };
    let mut asked = known();
    asked.disconnected();
    assert!(!asked.is_current());
    asked.connected();
    requests(&mut asked);
    asked.receive(empty(Type::Cluster));
    assert!(!asked.is_current());
    asked.receive(empty(Type::Endpoints));
    assert!(asked.is_current(), "of policies nothing was known");
    asked.receive(removed(Type::Cluster));
    asked.receive(removed(Type::Endpoints));
    asked.connected();
    assert!(asked.pending() == 0 && !asked.is_current());
    asked.forget(&key());
    assert!(asked.is_current(), "nothing is asked for");
}

/// What is not named counts as taken, so that even what has no reason is; in the log it is counted.
#[test]
fn all_that_is_refused_is_named_to_whoever_sent_it() {
    let mut asked = Subscription::new(Bounds::of(&Limits::default()));
    let keys: Vec<ServiceKey> = (0..fixed::REASONS + 2)
        .map(|n| format!("a.A{n}").parse().expect("a key"))
        .collect();
    let mut broken = sent(Type::Endpoints, "1", vec![0xff]);
    let one = broken.resources.remove(0);
    for key in &keys {
        asked.want(key);
        broken.resources.push(Sent {
            name: names::cluster(key),
            ..one.clone()
        });
    }
    asked.connected();
    requests(&mut asked);
    let refused = asked.receive(broken).refused.expect("a reason");
    assert!(refused.ends_with("; and 2 more"), "{refused}");
    let answer = requests(&mut asked).remove(0);
    let told = answer.error_detail.expect("a reason").message;
    for key in &keys {
        assert!(told.contains(&format!("\"outbound|{key}\"")), "{told}");
    }
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
