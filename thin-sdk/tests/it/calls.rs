//! Calls between a client and a server of this crate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use dubbo_proto::frame::Frame;
use dubbo_proto::head::{Kind, RequestId, Serialization};
use dubbo_proto::invocation;
use serde::{Deserialize, Serialize};
use thin_sdk::{Client, Error, Exception, Executed, Invocation, Object, Server, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::script::until;

const SERVICE: &str = "g/com.foo.Shop:1.0.0";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename = "com.foo.Item", rename_all = "camelCase")]
struct Item {
    name: String,
    unit_price: i64,
    tags: BTreeMap<String, i32>,
}

fn item() -> Item {
    Item {
        name: "ch😀ir".into(),
        unit_price: 1 << 40,
        tags: BTreeMap::from([("wood".into(), 1)]),
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A client of this server alone.
fn direct(server: &Server) -> Client {
    Client::builder()
        .direct()
        .providers(SERVICE, [server.address()])
        .build()
        .expect("a client")
}

async fn shop() -> (Server, Client) {
    let server = Server::builder()
        .method(SERVICE, "price", |call: Invocation| async move {
            let (item, count): (Item, i32) = call.arguments()?;
            Ok(item.unit_price * i64::from(count))
        })
        .and_then(|server| {
            server.method(SERVICE, "echo", |call: Invocation| async move {
                Ok(call.values()?.pop().unwrap_or(Value::Null))
            })
        })
        .and_then(|server| {
            server.method(SERVICE, "attached", |call: Invocation| async move {
                Ok(call.attachment("tint"))
            })
        })
        .and_then(|server| {
            server.method(SERVICE, "sell", |_: Invocation| async move {
                Err::<(), _>(Exception::new("com.foo.SoldOut", "none left").into())
            })
        })
        .and_then(|server| {
            server.method(SERVICE, "slow", |_: Invocation| async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(())
            })
        })
        .expect("a key")
        .listen(any_port())
        .await
        .expect("a port");
    let client = direct(&server);
    (server, client)
}

#[tokio::test]
async fn types_go_there_and_back() {
    let (_server, client) = shop().await;
    let price: i64 = client
        .call(SERVICE, "price")
        .arg(item())
        .arg(3)
        .send()
        .await
        .expect("a price");
    assert_eq!(price, 3 << 40);
    let back: Item = client
        .call(SERVICE, "echo")
        .arg(item())
        .send()
        .await
        .expect("an item");
    assert_eq!(back, item());
    let tint: Option<String> = client
        .call(SERVICE, "attached")
        .attachment("tint", "blue")
        .send()
        .await
        .expect("an attachment");
    assert_eq!(tint.as_deref(), Some("blue"));
}

#[tokio::test]
async fn a_value_keeps_its_class() {
    let (_server, client) = shop().await;
    let sent = Value::from(Object::class("com.foo.Any").field("id", 7));
    let back: Value = client
        .call(SERVICE, "echo")
        .arg(&sent)
        .send()
        .await
        .expect("a value");
    assert_eq!(back, sent);
}

#[tokio::test]
async fn a_generic_call_needs_no_class() {
    let (_server, client) = shop().await;
    let sent = Object::class("com.foo.Item")
        .field("name", "chair")
        .field("unitPrice", 5i64)
        .field("tags", Value::Null);
    let back = client.call(SERVICE, "echo").arg(&sent).invoke().await;
    let Ok(Value::Map { entries, .. }) = back else {
        panic!("{back:?}")
    };
    let class = (Value::from("class"), Value::from("com.foo.Item"));
    assert_eq!(entries.first(), Some(&class));
    assert_eq!(entries.len(), 4);
    let thrown = client.call(SERVICE, "sell").invoke().await;
    let sold = Exception::new("com.foo.SoldOut", "none left");
    assert_eq!(thrown, Err(Error::Exception(sold)));
}

#[tokio::test]
async fn errors_say_what_happened() {
    let (_server, client) = shop().await;
    let sold = client.call(SERVICE, "sell").send::<()>().await;
    let thrown = Exception::new("com.foo.SoldOut", "none left");
    assert_eq!(sold, Err(Error::Exception(thrown)));

    let late = client
        .call(SERVICE, "slow")
        .deadline(Duration::from_millis(50))
        .send::<()>()
        .await;
    let executed = Executed::Maybe;
    assert_eq!(late, Err(Error::Deadline { executed }));

    let missing = client.call(SERVICE, "nothing").send::<()>().await;
    let Err(Error::Provider { status: 40, text }) = missing else {
        panic!("{missing:?}")
    };
    assert!(
        text.contains("no such method: g/com.foo.Shop:1.0.0.nothing"),
        "{text}"
    );

    let wrong = client.call(SERVICE, "echo").arg("x").send::<i32>().await;
    assert!(matches!(wrong, Err(Error::Answer(_))), "{wrong:?}");

    let nowhere = client.call("com.foo.Other", "x").send::<()>().await;
    assert_eq!(nowhere.map_err(|error| error.executed()), Err(Executed::No));
    assert!(matches!(
        client.call("a b", "x").send::<()>().await,
        Err(Error::Key(_))
    ));
}

#[tokio::test]
async fn a_one_way_call_arrives() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let server = Server::builder()
        .method(SERVICE, "tell", move |call: Invocation| {
            let tell = tell.clone();
            async move {
                let (text,): (String,) = call.arguments()?;
                let _ = tell.try_send(text);
                Ok(())
            }
        })
        .expect("a key")
        .listen(any_port())
        .await
        .expect("a port");
    let client = direct(&server);
    let sent = client.call(SERVICE, "tell").arg("hello").one_way().await;
    assert_eq!(sent, Ok(()));
    assert_eq!(told.recv().await.as_deref(), Some("hello"));
}

/// A server whose `hold` waits to be released, then counts.
async fn holding() -> (Server, watch::Sender<bool>, watch::Receiver<u32>) {
    let (release, held) = watch::channel(false);
    let (count, counted) = watch::channel(0);
    let server = Server::builder()
        .method(SERVICE, "hold", move |_: Invocation| {
            let (mut held, count) = (held.clone(), count.clone());
            async move {
                let _ = held.wait_for(|released| *released).await;
                count.send_modify(|count| *count += 1);
                Ok(())
            }
        })
        .expect("a key")
        .listen(any_port())
        .await
        .expect("a port");
    (server, release, counted)
}

#[tokio::test]
async fn a_stopping_server_waits_for_one_way_calls() {
    for within in [Duration::from_secs(10), Duration::from_millis(10)] {
        let (server, release, counted) = holding().await;
        let client = direct(&server);
        let sent = client.call(SERVICE, "hold").one_way().await;
        assert_eq!(sent, Ok(()));
        until("the call", || release.receiver_count() == 2).await;
        // The end of its connection is not the end of the call.
        drop(client);
        let mut stop = tokio::spawn(server.stop(within));
        let patient = within > Duration::from_secs(1);
        if patient {
            let early = tokio::time::timeout(Duration::from_millis(50), &mut stop);
            assert!(early.await.is_err(), "it waits");
            release.send_replace(true);
        }
        stop.await.expect("no panic");
        assert_eq!(*counted.borrow(), u32::from(patient));
        until("its end", || release.receiver_count() == 0).await;
    }
}

#[tokio::test]
async fn one_way_calls_are_bounded() {
    const LIMIT: u32 = 65_536;
    let (server, release, counted) = holding().await;
    let mut stream = TcpStream::connect(server.address())
        .await
        .expect("it listens");
    let frame = |method, two_way| {
        let mut body = Vec::new();
        let call = invocation::Outgoing {
            path: "com.foo.Shop",
            version: "1.0.0",
            method,
            types: "",
            arguments: &[],
            attachments: &[("group", "g")],
        };
        invocation::write(&mut body, &call);
        let (kind, id) = (Kind::Request { two_way }, RequestId(1));
        let frame = Frame::new(kind, Serialization::HESSIAN2, id, body.into()).expect("short");
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out
    };
    let mut out = frame("hold", false).repeat(LIMIT as usize + 10);
    out.extend(frame("$echo", true));
    stream.write_all(&out).await.expect("it reads");
    assert_ne!(
        stream.read_u8().await.expect("an answer"),
        0,
        "it has read all"
    );
    assert_eq!(release.receiver_count(), LIMIT as usize + 1);
    release.send_replace(true);
    until("their end", || *counted.borrow() == LIMIT).await;
    // There is room again.
    stream
        .write_all(&frame("hold", false))
        .await
        .expect("it reads");
    until("another", || *counted.borrow() == LIMIT + 1).await;
}

#[tokio::test]
async fn a_stopping_server_answers_what_it_has() {
    let (release, held) = watch::channel(false);
    let server = Server::builder()
        .method(SERVICE, "hold", move |_: Invocation| {
            let mut held = held.clone();
            async move {
                let _ = held.wait_for(|released| *released).await;
                Ok("done")
            }
        })
        .expect("a key")
        .listen(any_port())
        .await
        .expect("a port");
    let client = direct(&server);
    let call = client.call(SERVICE, "hold").send::<String>();
    let call = tokio::spawn(call);
    while release.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    let stop = tokio::spawn(server.stop(Duration::from_secs(10)));
    release.send_replace(true);
    assert_eq!(call.await.expect("no panic"), Ok("done".into()));
    stop.await.expect("no panic");
    let after = client
        .call(SERVICE, "hold")
        .deadline(Duration::from_millis(50))
        .send::<String>()
        .await;
    assert_eq!(after.map_err(|e| e.executed()), Err(Executed::No));
}
