//! The state of the world, clause by clause.

use mesh_proto::xds::endpoint::ClusterLoadAssignment;
use mesh_proto::xds::{cluster::Cluster, protobuf::Any};
use prost::Message;

use super::*;

const A: &str = "outbound|a";
const B: &str = "outbound|b";

fn request(kind: Type, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: kind.url().into(),
        resource_names: strings(names),
        ..Default::default()
    }
}

fn ack(answer: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: answer.type_url.clone(),
        version_info: answer.version_info.clone(),
        response_nonce: answer.nonce.clone(),
        resource_names: strings(names),
        ..Default::default()
    }
}

fn names_of(resources: &[Any]) -> Vec<String> {
    let name = |any: &Any| match Type::from_url(&any.type_url) {
        Some(Type::Cluster) => Cluster::decode(&*any.value).expect("a cluster").name,
        Some(Type::Endpoints) => {
            let endpoints = ClusterLoadAssignment::decode(&*any.value).expect("endpoints");
            let hosts = endpoints.endpoints.iter().map(|at| at.lb_endpoints.len());
            format!("{} {}", endpoints.cluster_name, hosts.sum::<usize>())
        }
        kind => format!("{kind:?}"),
    };
    resources.iter().map(name).collect()
}

impl Client {
    fn told_sotw(&mut self) -> Option<Vec<String>> {
        self.answer_sotw().map(|answer| names_of(&answer.resources))
    }
}

#[test]
fn endpoints_that_change_are_told_alone_and_none_are_an_empty_list() {
    let mut client = Client::with(&["b"]);
    client.provide("a", 1);
    client.ask_sotw(request(Type::Endpoints, &[A, B]));
    let answer = client.answer_sotw().expect("an answer");
    assert_eq!(
        names_of(&answer.resources),
        ["outbound|a 1", "outbound|b 0"]
    );
    client.ask_sotw(ack(&answer, &[A, B]));
    assert_eq!(client.told_sotw(), None);
    client.provide("b", 1);
    assert_eq!(client.told_sotw(), Some(strings(&["outbound|b 1"])));
    assert_eq!(client.told_sotw(), None);
}

#[test]
fn clusters_are_told_all_at_once_so_that_a_missing_one_is_gone() {
    let mut client = Client::default();
    client.provide("a", 1);
    let all = DiscoveryRequest {
        node: Some(node(&["a", "b"])),
        ..request(Type::Cluster, &[])
    };
    client.ask_sotw(all);
    assert_eq!(
        client.told_sotw(),
        None,
        "b is pending, and would be missing"
    );
    client.provide("b", 1);
    let both = client.answer_sotw().expect("an answer");
    assert_eq!(names_of(&both.resources), [A, B]);
    client.ask_sotw(ack(&both, &[]));
    assert_eq!(client.told_sotw(), None);
    client.absent("b");
    let one = client.answer_sotw().expect("an answer");
    assert_eq!(names_of(&one.resources), [A]);
    assert_ne!(one.version_info, both.version_info);
    // It depends on less.
    client.ask_sotw(DiscoveryRequest {
        node: Some(node(&[])),
        ..ack(&one, &[])
    });
    assert_eq!(client.told_sotw(), Some(Vec::new()));
    assert_eq!(client.told_sotw(), None);
}

#[test]
fn who_comes_back_is_told_nothing_that_it_has() {
    let mut before = Client::default();
    before.provide("a", 1);
    before.ask_sotw(request(Type::Cluster, &[A]));
    let version = before.answer_sotw().expect("an answer").version_info;
    let back = DiscoveryRequest {
        version_info: version,
        response_nonce: "of another stream".into(),
        ..request(Type::Cluster, &[A])
    };

    let mut same = Client::default();
    same.provide("a", 2);
    same.ask_sotw(back.clone());
    assert_eq!(same.told_sotw(), None);
    assert!(same.machine.summary()[0].complete);
    same.absent("a");
    assert_eq!(same.told_sotw(), Some(Vec::new()));

    let mut changed = Client::with(&["a"]);
    changed.ask_sotw(back.clone());
    assert_eq!(changed.told_sotw(), Some(Vec::new()));

    let mut pending = Client::default();
    pending.ask_sotw(back);
    assert_eq!(pending.told_sotw(), None, "it is not known to be gone");
}

/// It acknowledged what came after, and so names a version that came after too.
#[test]
fn who_comes_back_is_told_what_it_may_have_rejected() {
    let names = ["outbound|a 1", "outbound|b 1"];
    for judges_first in [true, false] {
        let mut before = Client::default();
        before.provide("a", 1);
        before.ask_sotw(request(Type::Endpoints, &[A]));
        let first = before.answer_sotw().expect("an answer");
        let reject = DiscoveryRequest {
            error_detail: Some(error("no")),
            version_info: String::new(),
            ..ack(&first, &[A, B])
        };
        before.provide("b", 1);
        if judges_first {
            before.ask_sotw(reject);
        } else {
            before.ask_sotw(request(Type::Endpoints, &[A, B]));
        }
        let second = before.answer_sotw().expect("an answer");
        assert_eq!(names_of(&second.resources), names[1..]);

        let mut client = Client::default();
        client.provide("a", 1);
        client.provide("b", 1);
        let back = DiscoveryRequest {
            version_info: second.version_info,
            ..request(Type::Endpoints, &[A, B])
        };
        client.ask_sotw(back);
        assert_eq!(client.told_sotw(), Some(strings(&names)), "{judges_first}");
    }
}

#[test]
fn no_answer_is_longer_than_clients_take() {
    let mut client = Client::default();
    client.provide_much(&MUCH);
    let names = MUCH.map(|(service, _)| format!("outbound|{service}"));
    let asked = names.each_ref().map(String::as_str);
    client.ask_sotw(request(Type::Endpoints, &asked));
    let (mut told, mut version) = (Vec::new(), String::new());
    while let Some(answer) = client.answer_sotw() {
        assert!(answer.encoded_len() < LONGEST);
        told.push(answer.resources.len());
        version.clone_from(&answer.version_info);
        client.ask_sotw(ack(&answer, &asked));
    }
    assert_eq!(told, [2, 1, 2], "the third has one of its own");

    let mut client = Client::default();
    client.provide_much(&MUCH);
    client.ask_sotw(DiscoveryRequest {
        version_info: version,
        ..request(Type::Endpoints, &asked)
    });
    assert_eq!(client.told_sotw(), None, "it has it all");
}

#[test]
fn names_that_are_missing_in_a_request_are_unsubscribed() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.provide("b", 1);
    client.ask_sotw(request(Type::Endpoints, &[A, B]));
    let answer = client.answer_sotw().expect("an answer");
    client
        .machine
        .sotw_request(SystemTime::UNIX_EPOCH, ack(&answer, &[B]))
        .expect("within every bound");
    assert_eq!(client.needs(), [Need::Leave(key("a"))]);
    client.ask_sotw(ack(&answer, &[A, B]));
    client.provide("a", 1);
    assert_eq!(client.told_sotw(), Some(strings(&["outbound|a 1"])));
}

#[test]
fn a_rejection_is_known_by_its_error_and_a_stale_request_asks_for_nothing() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.provide("b", 1);
    client.ask_sotw(request(Type::Endpoints, &[A]));
    let first = client.answer_sotw().expect("an answer");
    client.ask_sotw(DiscoveryRequest {
        error_detail: Some(error("no")),
        ..ack(&first, &[A, B])
    });
    assert_eq!(client.machine.summary()[0].rejected[0].reason, "no");
    assert_eq!(
        client.told_sotw(),
        Some(strings(&["outbound|b 1"])),
        "not a again"
    );
    client.ask_sotw(ack(&first, &[]));
    assert_eq!(client.machine.summary()[0].names, 2);
    client.provide("a", 2);
    assert_eq!(client.told_sotw(), Some(strings(&["outbound|a 1"])));
}
