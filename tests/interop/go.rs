//! dubbo-go, with itself and with Java.

use std::net::SocketAddr;

use crate::peers::{Consumer, Line, Provider};
use crate::sidecar::{Sidecar, service};

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn go_calls_go_through_one_sidecar() {
    let provider = Provider::go();
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    make_every_call(sidecar.address());
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn go_calls_go_through_two_sidecars() {
    let provider = Provider::go();
    let inbound = Sidecar::inbound(provider.address());
    let outbound = Sidecar::outbound(&service(KEY, &[inbound.address()]));
    make_every_call(outbound.address());
}

#[test]
#[ignore = "needs Go and a JDK; .ci/run runs it"]
fn go_and_java_call_each_other() {
    let provider = Provider::java(Line::V33);
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    let mut consumer = Consumer::go(sidecar.address());
    consumer.gets("hello w", "hello w from plain-g1");
    consumer.gets("label", "{tea! 42 [green]}");
    consumer.gets("attachments", "t-1");
    consumer.fails("fail bang", &["java.lang.IllegalStateException - bang"]);

    let provider = Provider::go();
    let sidecar = Sidecar::outbound(&service(KEY, &[provider.address()]));
    for line in [Line::V27, Line::V33] {
        let mut consumer = Consumer::java(line, sidecar.address());
        consumer.gets("group x", "hello x from go");
        consumer.gets("label", "tea! 42 [green, black]");
    }
}

/// With the answers that a direct connection gives too.
#[track_caller]
fn make_every_call(through: SocketAddr) {
    let mut consumer = Consumer::go(through);
    consumer.gets("hello w", "hello w from go");
    consumer.gets("label", "{tea! 42 [green]}");
    consumer.gets("attachments", "t-1");
    consumer.fails("fail bang", &["java.lang.Throwable - bang"]);
    consumer.fails(
        "refuse bang",
        &["java.lang.IllegalArgumentException - bang"],
    );
    consumer.gets("nap 20", "napped 20");
    consumer.fails("missing-method x", &["cannot find method [missing-method]"]);
    consumer.fails("absent x", &["NR ", "shop.Absent"]);
    // An answer after the caller gave up would break its connection: the calls after it show none came.
    consumer.fails("timeout 600", &[]);
    consumer.gets("nap 700", "napped 700");
    consumer.gets("hello again", "hello again from go");
}

const KEY: &str = "g1/shop.Shop:1.0.0";
