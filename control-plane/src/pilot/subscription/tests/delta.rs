//! The incremental form, clause by clause.

use prost::Message;

use super::*;

const A: &str = "outbound|a";
const B: &str = "outbound|b";
const C: &str = "outbound|c";
const D: &str = "outbound|d";

fn ack(answer: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: answer.type_url.clone(),
        response_nonce: answer.nonce.clone(),
        ..Default::default()
    }
}

fn nack(answer: &DeltaDiscoveryResponse, reason: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        error_detail: Some(error(reason)),
        ..ack(answer)
    }
}

fn only(names: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
    Some((strings(names), Vec::new()))
}

fn gone(names: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
    Some((Vec::new(), strings(names)))
}

#[test]
fn what_is_subscribed_to_is_told_once_and_again_when_it_changes() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.provide("b", 1);
    client.ask(subscribe(Type::Endpoints, &[A]));
    let first = client.answer().expect("an answer");
    assert_eq!(Some(said(&first)), only(&[A]));
    client.ask(ack(&first));
    assert_eq!(client.told(), None);
    client.provide("b", 2);
    assert_eq!(client.told(), None, "nobody asked for b");
    client.provide("a", 2);
    let second = client.answer().expect("an answer");
    assert_eq!(Some(said(&second)), only(&[A]));
    assert_ne!(first.resources[0].version, second.resources[0].version);
    assert_ne!(first.nonce, second.nonce);
    client.machine.all_changed();
    assert_eq!(client.told(), None, "nothing changed");
}

#[test]
fn a_service_is_told_as_policy_cluster_and_endpoints_in_this_order() {
    let mut client = Client::default();
    client.ask(subscribe(Type::Endpoints, &[A]));
    client.ask(subscribe(Type::Cluster, &[A]));
    client.ask(subscribe(Type::Policy, &["a"]));
    assert_eq!(client.told(), None, "pending");
    client.provide_with("a", 1, &[("timeout", "1000")]);
    let answers = std::iter::from_fn(|| client.answer());
    let types: Vec<_> = answers.map(|answer| answer.type_url).collect();
    let order = [Type::Policy, Type::Cluster, Type::Endpoints];
    assert_eq!(types, order.map(|kind| kind.url().to_owned()));
    // Endpoints change without their cluster and policy.
    client.provide_with("a", 2, &[("timeout", "1000")]);
    let answer = client.answer().expect("an answer");
    assert_eq!(answer.type_url, Type::Endpoints.url());
    assert_eq!(client.told(), None);
}

#[test]
fn what_does_not_exist_is_said_and_stays_subscribed() {
    let mut client = Client::with(&["a"]);
    client.ask(subscribe(Type::Endpoints, &[A]));
    let absent = client.answer().expect("an answer");
    assert_eq!(Some(said(&absent)), gone(&[A]));
    client.ask(ack(&absent));
    assert_eq!(client.told(), None);
    client.provide("a", 1);
    assert_eq!(client.told(), only(&[A]));
    client.absent("a");
    assert_eq!(client.told(), gone(&[A]));
    client.provide("a", 2);
    assert_eq!(client.told(), only(&[A]));
}

#[test]
fn what_is_pending_is_never_said_to_be_absent() {
    let mut client = Client::default();
    client.ask(holding(
        subscribe(Type::Endpoints, &[A, B]),
        &HashMap::from([(B.into(), "of an older stream".into())]),
    ));
    assert_eq!(client.told(), None);
    assert_eq!(client.machine.summary()[0].pending, 2);
    client.absent("b");
    assert_eq!(client.told(), gone(&[B]));
    client.provide("a", 1);
    assert_eq!(client.told(), only(&[A]));
}

#[test]
fn names_that_stand_for_no_service_are_absent_at_once() {
    let mut client = Client::default();
    for (kind, name) in [
        (Type::Endpoints, "a"),
        (Type::Cluster, "outbound|a/b/c"),
        (Type::Policy, ""),
    ] {
        client.ask(subscribe(kind, &[name]));
        assert_eq!(client.told(), gone(&[name]), "{name:?}");
    }
    // So is everything of a type that we have nothing of.
    let mut listener = subscribe(Type::Cluster, &["x"]);
    listener.type_url = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
    client.ask(listener.clone());
    assert_eq!(client.told(), gone(&["x"]));
    let mut client = Client::default();
    listener.resource_names_subscribe.clear();
    client.ask(listener);
    assert_eq!(
        client.told(),
        only(&[]),
        "so that nobody waits for a first answer"
    );
}

#[test]
fn what_is_unsubscribed_is_told_no_more_and_leaves_the_registry() {
    let mut client = Client::default();
    client
        .machine
        .delta_request(SystemTime::UNIX_EPOCH, subscribe(Type::Endpoints, &[A, B]))
        .expect("within every bound");
    assert_eq!(client.needs(), [Need::Want(key("a")), Need::Want(key("b"))]);
    client.ask(subscribe(Type::Cluster, &[A]));
    let leave = |kind, name: &str| DeltaDiscoveryRequest {
        resource_names_unsubscribe: vec![name.into()],
        ..subscribe(kind, &[])
    };
    let mut request = |request| {
        let taken = client
            .machine
            .delta_request(SystemTime::UNIX_EPOCH, request);
        taken.expect("within every bound");
        client.needs()
    };
    assert_eq!(request(leave(Type::Endpoints, B)), [Need::Leave(key("b"))]);
    assert_eq!(
        request(leave(Type::Endpoints, A)),
        [],
        "the cluster wants it"
    );
    assert_eq!(request(leave(Type::Endpoints, "never")), []);
    client.provide("a", 1);
    assert_eq!(client.told(), only(&[A]), "the cluster");
    assert_eq!(client.told(), None);
    // Subscribed to anew, it is told anew.
    client.ask(subscribe(Type::Endpoints, &[A]));
    assert_eq!(client.told(), only(&[A]));
    client.ask(subscribe(Type::Endpoints, &[A]));
    assert_eq!(client.told(), only(&[A]), "asked for, it is answered");
}

#[test]
fn who_comes_back_is_told_the_difference() {
    let mut before = Client::default();
    for service in ["a", "b", "c"] {
        before.provide(service, 1);
    }
    before.ask(subscribe(Type::Endpoints, &[A, B, C]));
    let answer = before.answer().expect("an answer");
    let versions = answer.resources.iter();
    let versions = versions.map(|resource| (resource.name.clone(), resource.version.clone()));
    let versions = versions.collect();

    // Another pilot: it has nothing in common with the first but the registry.
    let mut client = Client::with(&["b", "d"]);
    client.provide("a", 1);
    client.provide("c", 2);
    let mut request = holding(subscribe(Type::Endpoints, &[A, B, C, D]), &versions);
    request.response_nonce = answer.nonce;
    client.ask(request);
    assert_eq!(client.told(), Some((strings(&[C]), strings(&[B, D]))));
    assert_eq!(client.told(), None);
    // Only the first request says what is held: later, whoever asks is answered.
    client.ask(holding(subscribe(Type::Endpoints, &[A]), &versions));
    assert_eq!(client.told(), only(&[A]));
}

/// Or it would never know that what it has is true still.
#[test]
fn who_comes_back_and_has_it_all_is_told_that_nothing_differs() {
    let mut before = Client::default();
    before.provide("a", 1);
    before.ask(subscribe(Type::Endpoints, &[A]));
    let answer = before.answer().expect("an answer");
    let resource = &answer.resources[0];
    let versions = HashMap::from([(resource.name.clone(), resource.version.clone())]);

    let mut client = Client::default();
    client.ask(holding(subscribe(Type::Endpoints, &[A]), &versions));
    assert_eq!(client.told(), None, "that is not known yet");
    client.provide("a", 1);
    let answer = client.answer().expect("an answer");
    assert_eq!(Some(said(&answer)), only(&[]));
    client.ask(ack(&answer));
    assert_eq!(client.told(), None);
    let summary = client.machine.summary().remove(0);
    assert!(summary.complete && summary.unanswered == 0);
}

#[test]
fn a_wildcard_means_what_the_node_depends_on() {
    let mut client = Client::with(&["b"]);
    client.provide("a", 1);
    client.provide("c", 1);
    let all = DeltaDiscoveryRequest {
        node: Some(node(&["a", "b"])),
        ..subscribe(Type::Cluster, &[])
    };
    client.ask(all.clone());
    assert_eq!(
        client.told(),
        only(&[A]),
        "what does not exist is not spoken of"
    );
    client.provide("b", 1);
    assert_eq!(client.told(), only(&[B]));
    // It depends on others now.
    client.ask(DeltaDiscoveryRequest {
        node: Some(node(&["b", "c"])),
        ..subscribe(Type::Cluster, &[])
    });
    assert_eq!(client.told(), Some((strings(&[C]), strings(&[A]))));
    // And back on a stream of its own, holding what it is not to hold.
    let mut client = Client::with(&["b"]);
    client.provide("a", 1);
    let held = [A, C].map(|name| (name.to_owned(), "x".to_owned()));
    client.ask(holding(all, &held.into()));
    assert_eq!(client.told(), Some((strings(&[A]), strings(&[C]))));
}

#[test]
fn a_wildcard_of_nothing_is_answered_by_nothing() {
    let mut client = Client::default();
    client.ask(subscribe(Type::Cluster, &[]));
    assert_eq!(client.told(), only(&[]));
    assert_eq!(client.told(), None);
    // Not before it is known.
    let mut client = Client::default();
    client.ask(DeltaDiscoveryRequest {
        node: Some(node(&["a"])),
        ..subscribe(Type::Cluster, &["*"])
    });
    assert_eq!(client.told(), None);
    client.absent("a");
    assert_eq!(client.told(), only(&[]));
}

#[test]
fn what_is_rejected_is_kept_with_its_reason_and_sent_again_when_it_changes() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.ask(subscribe(Type::Endpoints, &[A]));
    let answer = client.answer().expect("an answer");
    client.ask(nack(&answer, "no such weight"));
    assert_eq!(
        client.told(),
        None,
        "sent again, it would be rejected again"
    );
    let summary = client.machine.summary().remove(0);
    let rejected = Rejection {
        name: A.into(),
        reason: "no such weight".into(),
        since: SystemTime::UNIX_EPOCH,
    };
    assert_eq!(summary.rejected, [Arc::new(rejected)]);
    assert!(summary.complete, "nothing more can be done for it");
    client.provide("a", 2);
    let better = client.answer().expect("an answer");
    client.ask(ack(&better));
    assert_eq!(client.machine.summary()[0].rejected, []);
}

/// Ours names all that it rejects, and so does Envoy; what is not named has been taken.
#[test]
fn what_a_rejection_does_not_name_is_taken() {
    let services = ["a", "g/a:1", "b.a"];
    let rejected = |kind: Type, names: [&str; 3], reason: &str| -> Vec<String> {
        let mut client = Client::default();
        for service in services {
            client.provide_with(service, 1, &[("timeout", "1000")]);
        }
        client.ask(subscribe(kind, &names));
        let answer = client.answer().expect("an answer");
        client.ask(nack(&answer, reason));
        let rejected = client.machine.summary().remove(0).rejected;
        rejected.iter().map(|one| one.name.clone()).collect()
    };
    let clusters = ["outbound|a", "outbound|g/a:1", "outbound|b.a"];
    for (reason, named) in [
        ("endpoints \"outbound|a\": no weight", &["outbound|a"][..]),
        (
            "Error adding/updating cluster(s) outbound|g/a:1: no weight, outbound|b.a: no type.",
            &["outbound|b.a", "outbound|g/a:1"],
        ),
        (
            "no weight in outbound|aa",
            &["outbound|a", "outbound|b.a", "outbound|g/a:1"],
        ),
    ] {
        assert_eq!(rejected(Type::Endpoints, clusters, reason), named);
    }
    let policy = rejected(Type::Policy, services, "policy \"b.a\": retries: 11");
    assert_eq!(policy, ["b.a"]);
}

#[test]
fn a_rejection_and_a_stale_answer_subscribe_all_the_same() {
    let mut client = Client::default();
    ["a", "b", "c"]
        .iter()
        .for_each(|service| client.provide(service, 1));
    client.ask(subscribe(Type::Endpoints, &[A]));
    let answer = client.answer().expect("an answer");
    client.ask(DeltaDiscoveryRequest {
        resource_names_subscribe: strings(&[B]),
        ..nack(&answer, "no")
    });
    assert_eq!(client.told(), only(&[B]));
    client.ask(DeltaDiscoveryRequest {
        response_nonce: "of another stream".into(),
        ..subscribe(Type::Endpoints, &[C])
    });
    assert_eq!(client.told(), only(&[C]));
}

#[test]
fn a_reason_without_end_is_cut() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.ask(subscribe(Type::Endpoints, &[A]));
    let answer = client.answer().expect("an answer");
    client.ask(nack(&answer, &"é".repeat(10_000)));
    let summary = client.machine.summary();
    assert!(summary[0].rejected[0].reason.len() <= Rejection::MAX_REASON);
}

#[test]
fn who_does_not_answer_is_told_the_newest_when_it_does() {
    let mut client = Client::default();
    client.provide("a", 1);
    client.ask(subscribe(Type::Endpoints, &[A]));
    let mut answers = Vec::new();
    for port in 1..100 {
        client.provide("a", port);
        answers.extend(client.answer());
    }
    assert_eq!(answers.len(), MAX_IN_FLIGHT);
    assert_eq!(client.machine.summary()[0].unanswered, MAX_IN_FLIGHT);
    // The last is read after all others, so its acknowledgement stands for them.
    client.ask(ack(answers.last().expect("an answer")));
    let newest = client.answer().expect("an answer");
    let mut other = Client::default();
    other.provide("a", 99);
    other.ask(subscribe(Type::Endpoints, &[A]));
    let alone = other.answer().expect("an answer");
    assert_eq!(newest.resources[0].version, alone.resources[0].version);
    assert_eq!(client.told(), None);
}

#[test]
fn a_table_of_routes_follows_what_the_node_depends_on_and_nothing_else() {
    let mut client = Client::default();
    client.ask(subscribe(Type::Routes, &["dubbo-routes"]));
    assert_eq!(
        client.told(),
        only(&["dubbo-routes"]),
        "empty, rather than nothing"
    );
    client.ask(subscribe(Type::Cluster, &[A]));
    assert_eq!(client.told(), only(&["dubbo-routes"]));
    client.provide("a", 1);
    let answer = client.answer().expect("an answer");
    assert_eq!(answer.type_url, Type::Cluster.url());
    assert_eq!(client.told(), None, "providers come and go");
}

#[test]
fn long_answers_come_in_pieces() {
    let mut client = Client::default();
    let names: Vec<_> = (0..2_500)
        .map(|n| format!("outbound|com.foo.Shop{n}"))
        .collect();
    names
        .iter()
        .for_each(|name| client.absent(&name["outbound|".len()..]));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    client.ask(subscribe(Type::Endpoints, &names));
    let pieces: Vec<_> = std::iter::from_fn(|| client.told()).collect();
    let lengths: Vec<_> = pieces.iter().map(|(_, removed)| removed.len()).collect();
    assert_eq!(lengths, [1000, 1000, 500]);
}

#[test]
fn no_answer_is_longer_than_clients_take() {
    let mut client = Client::default();
    client.provide_much(&MUCH);
    let names = MUCH.map(|(service, _)| format!("outbound|{service}"));
    let asked = names.each_ref().map(String::as_str);
    client.ask(subscribe(Type::Endpoints, &asked));
    let mut told = Vec::new();
    while let Some(answer) = client.answer() {
        assert!(answer.encoded_len() < LONGEST);
        told.push(answer.resources.len());
        client.ask(ack(&answer));
    }
    assert_eq!(told, [2, 1, 2], "the third has one of its own");
}

#[test]
fn a_client_is_bounded() {
    let mut machine = Subscription::default();
    let mut ask = |request| machine.delta_request(SystemTime::UNIX_EPOCH, request);
    let names: Vec<_> = (0..=MAX_NAMES).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(ask(subscribe(Type::Policy, &names[1..])), Ok(()));
    assert_eq!(
        ask(subscribe(Type::Policy, &names[1..])),
        Ok(()),
        "the same ones"
    );
    let more = ask(subscribe(Type::Policy, &names[..1]));
    assert!(matches!(more, Err(Error::Names(_))), "{more:?}");
    let long = "x".repeat(MAX_NAME + 1);
    assert_eq!(ask(subscribe(Type::Cluster, &[&long])), Err(Error::Name));
    let of_type = |url: String| DeltaDiscoveryRequest {
        type_url: url,
        ..Default::default()
    };
    assert_eq!(ask(of_type(long)), Err(Error::Name));
    let taken = (0..)
        .map(|n| ask(of_type(n.to_string())))
        .take_while(Result::is_ok);
    assert_eq!(taken.count(), MAX_TYPES - 2);
}
