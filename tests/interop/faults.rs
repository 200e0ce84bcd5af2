//! What a Java application sees when something is missing, restarts, or is written as people write it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mesh_tests::namespace::Namespace;
use mesh_tests::process::free_port;
use mesh_tests::wait::until;

use crate::peers::{Consumer, Line, Loopback, Provider};
use crate::sidecar::{Sidecar, service};

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn an_unknown_service_and_a_dead_provider_are_told_in_words() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let sidecar = Sidecar::outbound(&service("shop.Shop", &[nobody]));
    for line in Line::ALL {
        let mut consumer = Consumer::java(line, sidecar.address());
        consumer.fails("invoke-absent x", &["RpcException", "NR ", "shop.Absent"]);
        let dead = consumer.ask("hello x");
        let told = dead.contains("UF ") || dead.contains("UH ");
        assert!(told && dead.contains("RpcException"), "{line:?}: {dead}");
    }
}

/// `dubbo://127.0.0.1:15001`, which Java dials at the host's own address.
#[test]
#[ignore = "needs a JDK, Maven, iproute2 and root; .ci/run runs it"]
fn a_loopback_url_reaches_the_sidecar_at_the_own_address() {
    Namespace::new().run(|| {
        let provider = Provider::java(Line::V33);
        let _sidecar =
            Sidecar::outbound_everywhere(15001, &service("shop.Shop", &[provider.address()]));
        for line in Line::ALL {
            let mut consumer =
                Consumer::java_at(line, "dubbo://127.0.0.1:15001", Loopback::Replaced);
            consumer.gets("hello w", "hello w from plain");
        }
    });
}

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn a_restarted_sidecar_is_found_again() {
    let provider = Provider::java(Line::V33);
    let mut sidecar = Sidecar::outbound(&service("shop.Shop", &[provider.address()]));
    let mut consumers = Line::ALL.map(|line| Consumer::java(line, sidecar.address()));
    for consumer in &mut consumers {
        consumer.gets("hello 1", "hello 1 from plain");
    }
    for end in [Sidecar::kill, Sidecar::stop] {
        end(&mut sidecar);
        sidecar.restart();
        for consumer in &mut consumers {
            finds_back(consumer, "ok hello back from plain");
        }
    }
}

/// One of two providers ends in its own way: Java with READONLY, Go with `closing` in its answers.
/// Neither is the application's business, which has one address for both.
#[test]
#[ignore = "needs a JDK, Maven and Go; .ci/run runs it"]
fn a_provider_that_is_stopped_loses_no_call() {
    for line in [Line::V27, Line::V33] {
        let providers = [Provider::java(line), Provider::java(line)];
        let addresses = providers.each_ref().map(Provider::address);
        let sidecar = Sidecar::outbound(&service("shop.Shop", &addresses));
        let consumer = Consumer::java(line, sidecar.address());
        outlives_the_first(consumer, providers);
    }
    let providers = [Provider::go(), Provider::go()];
    let addresses = providers.each_ref().map(Provider::address);
    let sidecar = Sidecar::outbound(&service("g1/shop.Shop:1.0.0", &addresses));
    let consumer = Consumer::go(sidecar.address());
    outlives_the_first(consumer, providers);
}

#[track_caller]
fn outlives_the_first(mut consumer: Consumer, mut providers: [Provider; 2]) {
    // Java takes its services and threads away a moment before it says READONLY, and refuses calls
    // so meanwhile: answers of its own to calls that it got, which are passed on. None of ours.
    let mut calls_well = |stopping: bool| {
        let answer = consumer.ask("hello w");
        let ours = ["NR ", "UH ", "UF ", "UC ", "UT ", "UO "];
        let refused =
            answer.contains("RemotingException") && !ours.iter().any(|c| answer.contains(c));
        let well = answer.starts_with("ok hello w from ") || (stopping && refused);
        assert!(well, "{answer}");
    };
    (0..20).for_each(|_| calls_well(false));
    let first = &mut providers[0];
    first.terminate();
    let gone = || {
        calls_well(true);
        (!first.is_running()).then_some(())
    };
    until("end of the first provider", Duration::from_secs(60), gone);
    (0..20).for_each(|_| calls_well(false));
}

/// Calls may fail while the connection is made again, and Java 3.x does without a provider that it
/// missed for a moment longer; then they go through, one after the other.
#[track_caller]
pub(crate) fn finds_back(consumer: &mut Consumer, good: &str) {
    until(
        "row of calls that go through",
        Duration::from_secs(90),
        || {
            let row = (0..20).all(|_| consumer.ask("hello back") == good);
            row.then_some(())
        },
    );
}
