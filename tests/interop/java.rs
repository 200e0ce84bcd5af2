//! Java consumers and providers through one sidecar and through two.

use std::net::SocketAddr;

use dubbo_proto::head::{Kind, Status};
use mesh_tests::peer::{Peer, frame, hello_up_to_attachments, status, text};

use crate::peers::{Consumer, Line, Provider};
use crate::sidecar::{Sidecar, service};

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn each_line_calls_through_one_sidecar() {
    for line in Line::ALL {
        let provider = Provider::java(line);
        let sidecar = Sidecar::outbound(&shop_at(provider.address()));
        make_every_call(line, sidecar.address());
    }
}

/// Outbound of one, inbound of the other, and consumer and provider of different lines.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn lines_call_each_other_through_two_sidecars() {
    for (consumer, provider) in [
        (Line::V27, Line::V33),
        (Line::V33, Line::V27),
        (Line::V26, Line::V32),
    ] {
        let provider = Provider::java(provider);
        let inbound = Sidecar::inbound(provider.address());
        let outbound = Sidecar::outbound(&shop_at(inbound.address()));
        make_every_call(consumer, outbound.address());
    }
}

/// A key with group and version takes these and no others.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn group_and_version_choose_the_service() {
    let provider = Provider::java(Line::V33);
    let sidecar = Sidecar::outbound(&service("g1/shop.Shop:1.0.0", &[provider.address()]));
    for line in [Line::V27, Line::V33] {
        let mut consumer = Consumer::java(line, sidecar.address());
        consumer.gets("group x", "hello x from plain-g1");
        consumer.fails("hello x", &["NR ", "shop.Shop"]);
        consumer.fails("wrong-version x", &["NR ", "g1/shop.Shop:9.9.9"]);
    }
}

/// Some proxies write a null where the attachments belong. Java takes it, and so do we; without
/// even that the call is broken.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn a_call_with_null_for_attachments_is_answered() {
    let provider = Provider::java(Line::V33);
    let sidecar = Sidecar::outbound(&shop_at(provider.address()));
    let broken = hello_up_to_attachments("shop.Shop");
    let body = [&broken[..], b"N"].concat();
    for to in [provider.address(), sidecar.address()] {
        let mut consumer = Peer::connect(to);
        consumer.send(&frame(Kind::Request { two_way: true }, 7, &broken));
        assert_eq!(status(&consumer.receive_call()), Status::BAD_REQUEST);
        consumer.send(&frame(Kind::Request { two_way: true }, 8, &body));
        assert_eq!(text(&consumer.receive_call()), "hello x from plain");
    }
}

/// Every kind of call that the peers know, with the answer that a direct connection gives too.
#[track_caller]
fn make_every_call(line: Line, through: SocketAddr) {
    make_calls(line, &mut Consumer::java(line, through));
}

/// The same of a consumer of `line` that is there.
#[track_caller]
pub(crate) fn make_calls(line: Line, consumer: &mut Consumer) {
    consumer.gets("hello w", "hello w from plain");
    consumer.gets("bytes 1048576", "1048576 equal bytes");
    consumer.gets("map", "equal map");
    consumer.gets("order", ORDER);
    consumer.gets("buy", "no tea, left 3");
    consumer.fails("fail bang", &["java.lang.IllegalStateException - bang"]);
    consumer.gets("nap 20", "napped 20");
    consumer.fails("timeout 1000", &["RpcException 2 "]);
    consumer.gets("oneway", "1");
    // 2.7 hides the attachments of an answer from a consumer with one direct URL.
    let back = |value| if line == Line::V27 { "null" } else { value };
    consumer.gets("attachments", &format!("there=t-1 back={}", back("b-1")));
    consumer.gets("touch", &format!("back={}", back("b-2")));
    consumer.gets(
        "emoji",
        "attachment=true argument=true chunks=true lone=true",
    );
    consumer.gets("group x", "hello x from plain-g1");
    consumer.gets("label", "tea! 42 [green, black]");
    consumer.gets("invoke x", "hello x from plain");
    consumer.gets("invoke-order", "id=5 state=PAID");
    consumer.fails(
        "invoke-fail bang",
        &["GenericException", "java.lang.IllegalStateException: bang"],
    );
    consumer.gets("echo x", "x");
    consumer.gets("async x", "hello x from plain");
    if line != Line::V26 {
        consumer.gets("later x", "later x");
        consumer.gets("later-fail bang", "java.lang.IllegalStateException: bang");
    }
    consumer.gets("hello again", "hello again from plain");
}

fn shop_at(address: SocketAddr) -> String {
    service("shop.Shop", &[address]) + &service("shop.LaterShop", &[address])
}

const ORDER: &str = "id=9007199254740993 state=PAID placed=1700000000123 weight=1.25 items=2 \
    same=true price=12.50 quantity=2 colour=grün parent=1/SHIPPED/60000";
