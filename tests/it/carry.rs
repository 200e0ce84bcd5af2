//! What is carried: over real sockets, in any portion, of any length.

use std::{io::Write, net::Shutdown, os::unix::net::UnixStream, time::Duration};

use dubbo_proto::head::{Kind, RequestId, Serialization, Status};
use dubbo_proxy::model::Side;
use mesh_tests::http;
use mesh_tests::peer::{Listener, Peer, answer, frame, request, text};
use mesh_tests::wait::until;

use mesh_tests::proxy::{Proxy, SERVICE, call, outbound, trio};

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_call_goes_through_outbound_and_inbound_of_two_sidecars() {
    let listener = Listener::bind();
    let theirs = Proxy::start(&format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}\ninbound: {{ listen: 127.0.0.1:0, provider: \"{}\" }}\nadmin: {{ listen: 127.0.0.1:0 }}",
        listener.address()
    ));
    let ours = Proxy::outbound(&[theirs.address(Side::Inbound)], "");
    let mut application = ours.connect();
    application.send(&call(u64::MAX, "find"));
    let mut provider = listener.accept();
    let seen = provider.receive_call();
    assert_eq!(seen.body, call(u64::MAX, "find")[16..]);
    provider.send(&answer(seen.head.id, "world"));
    let back = application.receive_call();
    assert_eq!(
        (back.head.id, text(&back)),
        (RequestId(u64::MAX), "world".into())
    );
}

#[test]
fn inbound_takes_every_service_and_serialization() {
    let listener = Listener::bind();
    let sidecar = Proxy::start(&format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}\ninbound: {{ listen: 127.0.0.1:0, provider: \"{}\" }}\nadmin: {{ listen: 127.0.0.1:0 }}",
        listener.address()
    ));
    let mut peer = Peer::connect(sidecar.address(Side::Inbound));
    let mut kryo = frame(Kind::Request { two_way: true }, 5, b"whatever kryo writes");
    kryo[2] = (kryo[2] & 0xe0) | 8;
    peer.send(&kryo);
    peer.send(&request(
        6,
        "org.apache.dubbo.metadata.MetadataService",
        "getMetadataInfo",
        "r1",
    ));
    let mut provider = listener.accept();
    let seen = [provider.receive_call(), provider.receive_call()];
    assert_eq!(seen[0].body, kryo[16..]);
    assert_eq!(seen[0].head.serialization, Serialization::from_bits(8));
    for frame in seen {
        provider.send(&answer(frame.head.id, "fine"));
    }
    assert_eq!(peer.receive_call().head.id, RequestId(5));
    assert_eq!(peer.receive_call().head.id, RequestId(6));
}

#[test]
fn a_call_that_cannot_be_read_goes_to_the_default_or_nowhere() {
    let mut kryo = frame(Kind::Request { two_way: true }, 5, b"whatever kryo writes");
    kryo[2] = (kryo[2] & 0xe0) | 8;
    let (_proxy, mut application, _listener, _provider) = trio("");
    application.send(&kryo);
    let refused = application.receive_call();
    assert_eq!(
        refused.head.kind,
        Kind::Response {
            status: Status::SERVICE_NOT_FOUND
        }
    );
    assert_eq!(
        refused.head.serialization,
        Serialization::from_bits(8),
        "as the request's"
    );

    let listener = Listener::bind();
    let config = outbound(&[listener.address()], "");
    let config = config.replace(
        "own_addresses: false",
        &format!("own_addresses: false, default: {SERVICE}"),
    );
    let proxy = Proxy::start(&config);
    let mut provider = listener.accept();
    let mut application = proxy.connect();
    application.send(&kryo);
    assert_eq!(provider.receive_call().body, kryo[16..]);
}

#[test]
fn frames_may_come_in_any_portion() {
    let (_proxy, mut application, _listener, mut provider) = trio("");
    let calls: Vec<u8> = (0..3).flat_map(|id| call(id, "find")).collect();
    for byte in &calls {
        application.send(&[*byte]);
    }
    let seen: Vec<_> = (0..3).map(|_| provider.receive_call()).collect();
    let answers: Vec<u8> = seen
        .iter()
        .flat_map(|f| answer(f.head.id, "world"))
        .collect();
    for byte in &answers {
        provider.send(&[*byte]);
    }
    for id in 0..3 {
        assert_eq!(application.receive_call().head.id, RequestId(id));
    }
}

/// Long bodies both ways at once, beside short calls, from several connections.
#[test]
fn long_bodies_are_carried_whole() {
    let (proxy, mut application, _listener, mut provider) = trio("");
    let lengths = [60_000, 65_536, 70_000, 262_144, 1 << 20, 5 << 20];
    let body = |len: usize| -> String {
        (0..len)
            .map(|i| char::from(b'a' + (i % 23) as u8))
            .collect()
    };
    let echo = std::thread::spawn(move || {
        for _ in 0..2 * lengths.len() {
            let seen = provider.receive_call();
            let id = seen.head.id;
            let long = seen.body.len();
            provider.send(&answer(id, &body(long)));
        }
        provider
    });
    for len in lengths {
        let sent = request(len as u64, SERVICE, "find", &body(len));
        application.send(&sent);
        let mut other = proxy.connect();
        other.send(&call(7, "find"));
        let back = application.receive_call();
        assert_eq!(back.head.id, RequestId(len as u64));
        assert_eq!(text(&back), body(sent.len() - 16));
        assert_eq!(other.receive_call().head.id, RequestId(7));
    }
    drop(echo.join().expect("the provider answered all"));
}

/// Two long bodies at a time are one too many here: that call fails, alone.
#[test]
fn long_bodies_over_the_budget_fail_alone() {
    let limits = "limits: { max_body: 1MiB, big_bodies: 1MiB }\n";
    let (proxy, mut application, _listener, mut provider) = trio(limits);
    let long = request(1, SERVICE, "find", &"x".repeat(900_000));
    let (front, back) = long.split_at(600_000);
    application.send(front);
    until("the first part of the first body", PATIENCE, || {
        let path = "/stats?filter=mesh_session_read_bytes_total{side=%22outbound";
        let read = http::get(proxy.admin, path).expect("an admin").body;
        let read = read.trim().rsplit(' ').next().and_then(|n| n.parse().ok());
        (read >= Some(front.len())).then_some(())
    });
    let mut other = proxy.connect();
    other.send(&[long.clone(), call(2, "find")].concat());
    let refused = other.receive_call();
    assert_eq!(refused.head.id, RequestId(1));
    let overflow = Status::THREADPOOL_EXHAUSTED;
    assert_eq!(refused.head.kind, Kind::Response { status: overflow });
    let told = text(&refused);
    assert!(
        told.starts_with("UO ") && told.contains("limits.big_bodies"),
        "{told}"
    );
    // What follows the refused body is carried, while the other body is still on its way.
    let mut carries = |body: &[u8]| {
        let seen = provider.receive_call();
        assert!(seen.body == body, "{} bytes", seen.body.len());
        provider.send(&answer(seen.head.id, "world"));
    };
    carries(&call(2, "find")[16..]);
    application.send(back);
    carries(&long[16..]);
    assert_eq!(other.receive_call().head.id, RequestId(2));
    assert_eq!(application.receive_call().head.id, RequestId(1));
    // There is room again.
    other.send(&long);
    let seen = provider.receive_call();
    provider.send(&answer(seen.head.id, "world"));
    assert_eq!(other.receive_call().head.id, RequestId(1));
}

#[test]
fn an_application_may_come_over_a_unix_socket_and_close_its_side() {
    let listener = Listener::bind();
    let config = outbound(&[listener.address()], "")
        .replace("127.0.0.1:0, own", "unix:FOLDER/mesh.sock, own");
    let proxy = Proxy::start(&config);
    let mut provider = listener.accept();
    let path = proxy.file.with_file_name("mesh.sock");
    let mut stream = UnixStream::connect(path).expect("it listens there");
    stream.write_all(&call(3, "find")).expect("written");
    stream.shutdown(Shutdown::Write).expect("shut");
    let seen = provider.receive_call();
    provider.send(&answer(seen.head.id, "world"));
    let mut bytes = vec![];
    std::io::Read::read_to_end(&mut stream, &mut bytes).expect("read to its end");
    assert_eq!(bytes[4..12], 3u64.to_be_bytes());
    assert_eq!(
        bytes[..16],
        [
            &[0xda, 0xbb, 2, 20][..],
            &3u64.to_be_bytes(),
            &bytes[12..16]
        ]
        .concat()
    );
}

#[test]
fn who_does_not_speak_dubbo_is_told_and_nobody_else_notices() {
    let (proxy, mut application, _listener, mut provider) = trio("");
    for (hello, told) in [
        (
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &b"HTTP/1.1 400 Bad Request"[..],
        ),
        (
            b"ls\r\n",
            b"DPE bad request: this port speaks the Dubbo protocol",
        ),
        (b"\x16\x03\x01\x02\x00\x01", b""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""),
    ] {
        let mut stream =
            std::net::TcpStream::connect(proxy.address(Side::Outbound)).expect("connected");
        stream.write_all(hello).expect("written");
        let mut bytes = vec![];
        std::io::Read::read_to_end(&mut stream, &mut bytes).expect("closed");
        assert!(
            bytes.starts_with(told),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        assert_eq!(bytes.is_empty(), told.is_empty());
    }
    application.send(&call(1, "find"));
    let seen = provider.receive_call();
    provider.send(&answer(seen.head.id, "world"));
    assert_eq!(text(&application.receive_call()), "world");
}
