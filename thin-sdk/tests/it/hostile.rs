//! Peers that do not do as they should.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use dubbo_proto::frame::{Frame, Limits};
use dubbo_proto::head::{Kind, Serialization, Status};
use dubbo_proto::reply;
use thin_sdk::{Client, Error, Executed, Server, Unsent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::script::{Mode, Script, provider};

const SERVICE: &str = "com.foo.Shop";

/// A provider that answers each call with what `answer` makes of it.
async fn odd(answer: impl Fn(Frame) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("a bound socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut input = BytesMut::new();
            while stream.read_buf(&mut input).await.is_ok_and(|n| n > 0) {
                while let Ok(Some(frame)) = Frame::decode(&mut input, Limits::default()) {
                    if matches!(frame.head.kind, Kind::Request { .. }) {
                        let _ = stream.write_all(&answer(frame)).await;
                    }
                }
            }
        }
    });
    address
}

/// The answer to `call`, whose body is as given.
fn raw_reply(call: &Frame, status: Status, serialization: Serialization, body: &[u8]) -> Vec<u8> {
    let kind = Kind::Response { status };
    let body = body.to_vec().into();
    let frame = Frame::new(kind, serialization, call.head.id, body).expect("short");
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.to_vec()
}

fn client(providers: impl IntoIterator<Item = SocketAddr>) -> Client {
    let client = Client::builder().direct().seed(1);
    client
        .providers(SERVICE, providers)
        .build()
        .expect("a client")
}

async fn who(client: &Client) -> Result<String, Error> {
    client.call(SERVICE, "who").send().await
}

#[tokio::test]
async fn a_body_that_cannot_be_read_costs_its_call() {
    let hessian = Serialization::HESSIAN2;
    let bodies: [&[u8]; 7] = [
        b"",
        b"\x91",
        b"\x91\x58\x49\x7f\xff\xff\xff\x90",
        b"\x91\x60",
        b"\x91\x51\x95",
        b"\x99\x90",
        b"\x90\x05",
    ];
    for body in bodies {
        let address = odd(move |call| raw_reply(&call, Status::OK, hessian, body)).await;
        let answer = who(&client([address])).await;
        assert!(
            matches!(answer, Err(Error::Answer(_))),
            "{body:x?}: {answer:?}"
        );
    }
    let address = odd(|call| raw_reply(&call, Status::OK, Serialization::JAVA, b"\x91\x01x")).await;
    assert!(matches!(
        who(&client([address])).await,
        Err(Error::Answer(_))
    ));
    // An error without a text, or in the serialization of Java 3.2.
    let address = odd(|call| raw_reply(&call, Status(70), Serialization::FASTJSON2, b"what")).await;
    let answer = who(&client([address])).await;
    assert!(
        matches!(answer, Err(Error::Provider { status: 70, .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn bytes_that_are_no_frame_cost_the_connection() {
    let address = odd(|_| b"HTTP/1.1 400 what\r\n\r\n".to_vec()).await;
    assert_eq!(who(&client([address])).await, Err(Error::Lost));
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_connection() {
    let server = Server::builder()
        .method(SERVICE, "who", |_| async move {
            tokio::task::yield_now().await;
            match true {
                true => panic!("a handler fails"),
                false => Ok(()),
            }
        })
        .expect("a key")
        .listen(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .expect("a port");
    let call = client([server.address()]).call(SERVICE, "who").send::<()>();
    assert_eq!(call.await, Err(Error::Lost));
}

/// A provider that answers with an error, and counts the calls.
async fn declining(status: Status, text: &'static str) -> (SocketAddr, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let address = odd(move |call| {
        counted.fetch_add(1, Ordering::Relaxed);
        let mut out = Vec::new();
        reply::error(
            &mut out,
            Serialization::HESSIAN2,
            call.head.id,
            status,
            text,
        );
        out
    });
    (address.await, calls)
}

#[tokio::test]
async fn a_call_that_a_provider_declines_goes_to_another() {
    for status in [Status::SERVICE_NOT_FOUND, Status::THREADPOOL_EXHAUSTED] {
        let ((one, calls), (two, more)) =
            (declining(status, "no").await, declining(status, "no").await);
        let provider = provider("provider", None).await;
        let among = client([one, two, provider.address()]);
        for _ in 0..6 {
            assert_eq!(who(&among).await, Ok("provider".into()));
        }
        let before = [&calls, &more].map(|calls| calls.load(Ordering::Relaxed));
        assert!(before.iter().all(|calls| *calls > 0), "{before:?}");
        drop(among);
        // With nobody else, each is asked once.
        let (status, text) = (status.0, "no".to_owned());
        let answer = who(&client([one, two])).await;
        assert_eq!(answer, Err(Error::Provider { status, text }));
        let after = [&calls, &more].map(|calls| calls.load(Ordering::Relaxed));
        assert_eq!(after, before.map(|calls| calls + 1));
    }
    // What one finds wrong, all do.
    let (one, _) = declining(Status::BAD_REQUEST, "no").await;
    let provider = provider("provider", None).await;
    let client = client([one, provider.address()]);
    let answers = [who(&client).await, who(&client).await];
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
}

#[tokio::test]
async fn a_call_that_a_connection_has_no_room_for_goes_to_another() {
    let mute = Script::start(Mode::Mute).await;
    let provider = provider("provider", None).await;
    let client = Client::builder()
        .direct()
        .providers(SERVICE, [mute.address(), provider.address()])
        .providers("com.foo.Stock", [mute.address()])
        .build()
        .expect("a client");
    // It reads nothing: what is sent to it stays in the connection.
    let long = "x".repeat(4 * 1024 * 1024);
    loop {
        let call = client.call("com.foo.Stock", "who").arg(&long);
        let sent = call.deadline(Duration::from_millis(100)).send::<()>().await;
        if sent == Err(Error::NotSent(Unsent::Overloaded)) {
            break;
        }
        let executed = Executed::Maybe;
        assert_eq!(sent, Err(Error::Deadline { executed }));
    }
    for _ in 0..6 {
        assert_eq!(who(&client).await, Ok("provider".into()));
    }
}

/// A socket whose queue is full: the kernel drops who wants to connect.
struct Silent {
    address: SocketAddr,
    _listener: socket2::Socket,
    _waiting: std::net::TcpStream,
}

fn silent() -> Silent {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let listener = listener.expect("a socket");
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any_port.into()).expect("a port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("a bound socket").as_socket();
    let address = address.expect("an IP address");
    Silent {
        address,
        _waiting: std::net::TcpStream::connect(address).expect("room for one"),
        _listener: listener,
    }
}

#[tokio::test]
async fn a_dial_that_nobody_answers_ends_with_the_deadline() {
    let silent = silent();
    let call = client([silent.address]).call(SERVICE, "who");
    let answer = call
        .deadline(Duration::from_millis(100))
        .send::<String>()
        .await;
    let executed = Executed::No;
    let text = format!("still connecting to {}", silent.address);
    let wanted = [
        Err(Error::Deadline { executed }),
        Err(Error::NotSent(Unsent::Unreachable(text))),
    ];
    assert!(wanted.contains(&answer), "{answer:?}");
}

#[tokio::test]
async fn a_dial_that_nobody_answers_leaves_time_for_another_provider() {
    let (silent, provider) = (silent(), provider("provider", None).await);
    let client = client([silent.address, provider.address()]);
    for _ in 0..2 {
        let call = client
            .call(SERVICE, "who")
            .deadline(Duration::from_millis(800));
        assert_eq!(call.send().await, Ok("provider".to_owned()));
    }
}
