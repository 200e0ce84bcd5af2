//! The SDK and real Java providers, direct and by the sidecar.

use std::collections::BTreeMap;
use std::time::Duration;

use mesh_tests::wait::until_state;
use serde::{Deserialize, Serialize};
use thin_sdk::failover::Sidecar as Link;
use thin_sdk::{Client, Error, Object, Value};

use crate::peers::{Line, Provider};
use crate::sidecar::{Sidecar, service};

const SHOP: &str = "shop.Shop";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename = "shop.Order", rename_all = "camelCase")]
struct Order {
    id: Option<i64>,
    state: State,
    placed: Value,
    weight: f64,
    items: Vec<Item>,
    by_shop: BTreeMap<String, Vec<Item>>,
    parent: Option<Box<Self>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename = "shop.Item")]
struct Item {
    sku: String,
    quantity: i32,
    price: Value,
    tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename = "shop.State", rename_all = "UPPERCASE")]
enum State {
    New,
    Paid,
    Shipped,
}

fn order() -> Order {
    let item = Item {
        sku: "tea-7".into(),
        quantity: 2,
        price: Object::class("java.math.BigDecimal")
            .field("value", "12.50")
            .into(),
        tags: BTreeMap::from([("colour".into(), "grün 😀".into())]),
    };
    let parent = Order {
        id: Some(1),
        state: State::Shipped,
        placed: Value::Date(60_000),
        weight: 0.0,
        items: Vec::new(),
        by_shop: BTreeMap::new(),
        parent: None,
    };
    Order {
        id: Some(9_007_199_254_740_993),
        state: State::New,
        placed: Value::Date(1_700_000_000_123),
        weight: 1.25,
        items: vec![item.clone(), item.clone()],
        by_shop: BTreeMap::from([("east".into(), vec![item])]),
        parent: Some(Box::new(parent)),
    }
}

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn java_takes_what_we_write_and_we_take_what_it_answers() {
    for line in Line::ALL {
        let provider = Provider::java(line);
        let sidecar = Sidecar::outbound(&service(SHOP, &[provider.address()]));
        run(async {
            let direct = Client::builder().direct();
            let direct = direct.providers(SHOP, [provider.address()]);
            make_every_call(&direct.build().expect("a client")).await;
            let by_sidecar = client(&sidecar).build().expect("a client");
            make_every_call(&by_sidecar).await;
            assert_eq!(by_sidecar.state().counts.direct, 0);
        });
    }
}

async fn make_every_call(client: &Client) {
    let hello: Result<String, _> = client.call(SHOP, "hello").arg("x").send().await;
    assert_eq!(hello, Ok("hello x from plain".into()));

    let paid: Order = client
        .call(SHOP, "order")
        .arg(order())
        .send()
        .await
        .expect("an order");
    let state = State::Paid;
    assert_eq!(paid, Order { state, ..order() });

    let bytes = Value::Binary(vec![0, 127, 255]);
    let back: Result<Value, _> = client.call(SHOP, "bytes").arg(&bytes).send().await;
    assert_eq!(back, Ok(bytes));

    let map = BTreeMap::from([("a", 1i64), ("b", 1 << 40)]);
    let back: BTreeMap<String, i64> = client
        .call(SHOP, "map")
        .arg(&map)
        .send()
        .await
        .expect("a map");
    assert_eq!(back.len(), 2);
    assert_eq!(back["b"], 1 << 40);

    let context = client.call(SHOP, "context").attachment("tint", "blue");
    let context: BTreeMap<String, Option<String>> = context.send().await.expect("a context");
    assert_eq!(context["tint"].as_deref(), Some("blue"));

    assert_eq!(client.call(SHOP, "touch").send::<()>().await, Ok(()));

    let noted: i32 = client.call(SHOP, "notes").send().await.expect("a number");
    let note = client.call(SHOP, "note").arg("one way");
    assert_eq!(note.one_way().await, Ok(()));
    let heard = async {
        while client.call(SHOP, "notes").send::<i32>().await != Ok(noted + 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("a note");

    let sold = client.call(SHOP, "buy").arg("tea").send::<String>().await;
    let Err(Error::Exception(sold)) = sold else {
        panic!("{sold:?}")
    };
    assert_eq!(
        (&*sold.class, &*sold.message),
        ("shop.OutOfStock", "no tea")
    );

    // Objects as maps, there and back.
    let generic = client.call(SHOP, "label").arg(
        Object::class("shop.Label")
            .field("text", "t")
            .field("count", 1)
            .field("words", vec!["w"]),
    );
    let label = generic.invoke().await;
    let Ok(Value::Map { entries, .. }) = label else {
        panic!("{label:?}")
    };
    for (key, value) in [("text", Value::from("t!")), ("count", 2.into())] {
        assert!(entries.contains(&(key.into(), value)), "{entries:?}");
    }
    let failed = client.call(SHOP, "fail").arg("why").invoke().await;
    let Err(Error::Exception(failed)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(failed.class, "java.lang.IllegalStateException");
    assert!(failed.message.contains("why"), "{failed}");
}

/// No keeper of its sockets, so that it refuses until it is there again.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn a_sidecar_that_is_killed_costs_no_idempotent_call() {
    let provider = Provider::java(Line::V33);
    let mut sidecar = Sidecar::outbound(&service(SHOP, &[provider.address()]));
    run(async {
        let client = client(&sidecar).providers(SHOP, [provider.address()]);
        let client = client.build().expect("a client");
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (client, stopped) = (client.clone(), stopped.clone());
            callers.spawn(async move {
                while !*stopped.borrow() {
                    let call = client.call(SHOP, "hello").arg("x").idempotent(true);
                    let answer = call.send().await;
                    assert_eq!(answer, Ok("hello x from plain".to_owned()));
                }
            });
        }
        for round in 1..=3 {
            let before = client.state().counts;
            until_state("calls by the sidecar", &client, |state| {
                state.sidecar == Link::Up && state.counts.by_sidecar > before.by_sidecar + 100
            })
            .await;
            sidecar.kill();
            until_state("the loss", &client, |state| state.counts.losses == round).await;
            let before = client.state().counts;
            until_state("direct calls", &client, |state| {
                state.counts.direct > before.direct + 100
            })
            .await;
            sidecar.restart();
        }
        until_state("the return", &client, |state| state.sidecar == Link::Up).await;
        stop.send_replace(true);
        callers.join_all().await;
    });
}

fn client(sidecar: &Sidecar) -> thin_sdk::Builder {
    let client = Client::builder().sidecar(sidecar.address());
    client.admin(None).bonder(None).deadline(PATIENCE)
}

fn run(test: impl Future<Output = ()>) {
    // Two threads: tests start and stop processes meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

const PATIENCE: Duration = Duration::from_secs(20);
