use std::time::{Duration, UNIX_EPOCH};

use axum::{
    body::{Body, to_bytes},
    http::{Request, header::AUTHORIZATION},
};
use http_body_util::BodyExt;
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;
use crate::pilot::{
    clients::{Client, Protocol},
    subscription::{Node, Rejection, Summary},
};

struct Pilot {
    pages: Router,
    registry: Arc<Embedded>,
    discovery: Discovery,
    clients: Clients,
    _folder: TempDir,
}

impl Pilot {
    fn start(token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let token = token.map(|secret| {
            let file = folder.path().join("token");
            std::fs::write(&file, secret).expect("written");
            Token::read(&file).expect("a token")
        });
        let registry = Embedded::open(&folder.path().join("registry.redb")).expect("a registry");
        let registry = Arc::new(registry);
        let discovery = Discovery::new(Arc::<Embedded>::clone(&registry));
        let started = tokio::time::Instant::now().into_std();
        let clients = Clients::default();
        let state = State::new(
            Arc::clone(&registry),
            discovery.clone(),
            clients.clone(),
            started,
        );
        Self {
            pages: router(state, token),
            registry,
            discovery,
            clients,
            _folder: folder,
        }
    }

    async fn send(&self, request: Request<Body>) -> Response {
        self.pages
            .clone()
            .oneshot(request)
            .await
            .expect("an answer")
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let answer = self.send(request).await;
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }
}

#[tokio::test]
async fn one_or_many_are_registered_listed_and_removed() {
    let pilot = Pilot::start(None);
    let one = r#"{"service":"com.foo.A:1.0.0","address":"10.0.0.1:20880"}"#;
    let put = pilot.ask("PUT", "/v1/instances", one).await;
    assert_eq!(put, (200, json!({ "registered": 1 })));
    let two = r#" [
        {"service":"com.foo.A:1.0.0","address":"[::ffff:10.0.0.2]:20880","weight":7,
         "metadata":{"mesh":"true","direct":"10.0.0.9:1"},"ttl_s":30},
        {"service":"g/com.foo.B","address":"[2001:db8::1]:20880"}]"#;
    let put = pilot.ask("PUT", "/v1/instances", two).await;
    assert_eq!(put, (200, json!({ "registered": 2 })));

    let (_, list) = pilot
        .ask("GET", "/v1/instances?service=com.foo.A:1.0.0", "")
        .await;
    let wanted = json!({ "service": "com.foo.A:1.0.0", "instances": [
        { "service": "com.foo.A:1.0.0", "address": "10.0.0.1:20880", "weight": 100, "metadata": {} },
        { "service": "com.foo.A:1.0.0", "address": "10.0.0.2:20880", "weight": 7,
          "metadata": { "mesh": "true", "direct": "10.0.0.9:1" }, "ttl_s": 30.0 },
    ] });
    assert_eq!(list, wanted);
    let (_, services) = pilot.ask("GET", "/v1/services", "").await;
    let wanted = json!({ "services": [
        { "service": "com.foo.A:1.0.0", "instances": 2 },
        { "service": "g/com.foo.B", "instances": 1 },
    ] });
    assert_eq!(services, wanted);

    let both = r#"[{"service":"g/com.foo.B","address":"[2001:db8::1]:20880"},
        {"service":"g/com.foo.B","address":"10.9.9.9:1"}]"#;
    let removed = pilot.ask("DELETE", "/v1/instances", both).await;
    assert_eq!(removed, (200, json!({ "removed": 1 })));
    let (_, status) = pilot.ask("GET", "/v1/status", "").await;
    assert_eq!(
        status["registered"],
        json!({ "services": 1, "instances": 2 })
    );
}

#[tokio::test]
async fn the_status_says_that_the_registry_cannot_be_read() {
    let pilot = Pilot::start(None);
    let (_, status) = pilot.ask("GET", "/v1/status", "").await;
    assert_eq!(status["complete"], true);
    pilot.registry.fail();
    let (code, status) = pilot.ask("GET", "/v1/status", "").await;
    assert_eq!((code, &status["complete"]), (200, &json!(false)));
    let why = status["registered"]["error"].as_str().expect("a reason");
    assert!(why.contains("registry"), "{why}");
    assert_eq!(status["clients"]["connected"], 0);
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_cure_and_nothing_of_it_is_taken() {
    let pilot = Pilot::start(None);
    let put = |what: &str| {
        format!(r#"[{{"service":"a","address":"10.0.0.1:1"}},{{"service":"a",{what}}}]"#)
    };
    let long = "x".repeat(17 << 10);
    for (body, error) in [
        ("".into(), "the body is no JSON"),
        ("nonsense".into(), "the body is no JSON"),
        (
            put(r#""adress":"10.0.0.1:2""#),
            "unknown field `adress`, expected one of",
        ),
        (put(r#""weight":1"#), "missing field `address`"),
        (
            put(r#""address":"name:1""#),
            "instance 1: address \"name:1\" is none to call; write",
        ),
        (put(r#""address":"0.0.0.0:1""#), "is none to call"),
        (put(r#""address":"10.0.0.1:0""#), "is none to call"),
        (
            put(r#""address":"10.0.0.1:2","weight":0"#),
            "weight 0 is out of range; write 1 to",
        ),
        (
            put(r#""address":"10.0.0.1:2","ttl_s":0"#),
            "ttl_s 0 is out of range; write 1 to",
        ),
        (
            put(&format!(
                r#""address":"10.0.0.1:2","metadata":{{"k":"{long}"}}"#
            )),
            "metadata is too much",
        ),
        (
            put(r#""address":"10.0.0.1:2","metadata":{"direct":"shop-9:20880"}"#),
            "instance 1: metadata: direct: address \"shop-9:20880\" is none to call",
        ),
        (
            format!(
                r#"{{"service":"{}","address":"10.0.0.1:1"}}"#,
                "a".repeat(513)
            ),
            "instance 0: a service's key has at most 512 bytes",
        ),
        (
            r#"{"service":"a b","address":"10.0.0.1:1"}"#.into(),
            "instance 0: service key \"a b\" is malformed",
        ),
    ] {
        let (status, said) = pilot.ask("PUT", "/v1/instances", &body).await;
        let said = said["error"].as_str().expect("a text");
        assert!(
            status == 400 && said.contains(error),
            "{body}: {status} {said}"
        );
    }
    let (_, services) = pilot.ask("GET", "/v1/services", "").await;
    assert_eq!(services, json!({ "services": [] }));
    for (method, path, status, error) in [
        (
            "GET",
            "/v1/instances",
            400,
            "service: is missing; add ?service=KEY",
        ),
        ("GET", "/v1/watch?service=:", 400, "has no interface"),
        ("GET", "/v2", 404, "GET / lists all"),
        ("POST", "/v1/instances", 405, "GET / lists all"),
    ] {
        let (found, said) = pilot.ask(method, path, "").await;
        let said = said["error"].as_str().expect("a text");
        assert!(
            found == status && said.contains(error),
            "{path}: {found} {said}"
        );
    }
    let big = " ".repeat((2 << 20) + 1);
    let (status, said) = pilot.ask("PUT", "/v1/instances", &big).await;
    assert!(
        status == 413 && said["error"].is_string(),
        "{status} {said}"
    );
}

#[tokio::test]
async fn only_who_bears_the_token_is_heard() {
    let pilot = Pilot::start(Some("s3cret"));
    let with = |token: &str| {
        let request = Request::builder().uri("/v1/services");
        let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(pilot.send(with("s3cret")).await.status(), 200);
    assert_eq!(pilot.send(with("secret")).await.status(), 401);
    let (status, said) = pilot.ask("GET", "/v1/services", "").await;
    assert!(
        status == 401 && said["error"].is_string(),
        "{status} {said}"
    );
    let ready = Request::builder().uri("/ready").body(Body::empty());
    assert_eq!(pilot.send(ready.expect("a request")).await.status(), 200);
}

#[tokio::test]
async fn who_watches_sees_the_list_now_and_after_each_change() {
    let pilot = Pilot::start(None);
    let watch = || {
        let request = Request::builder().uri("/v1/watch?service=a");
        request.body(Body::empty()).expect("a request")
    };
    let mut events = pilot.send(watch()).await.into_body();
    let mut next = async || {
        let frame = events.frame().await.expect("an event").expect("a frame");
        let text = String::from_utf8(frame.into_data().expect("data").into()).expect("text");
        let (kind, data) = text.trim().split_once('\n').expect("two lines");
        assert_eq!(kind, "event: instances");
        let data = data.strip_prefix("data: ").expect("data");
        let list: Value = serde_json::from_str(data).expect("JSON");
        list["instances"].as_array().expect("a list").len()
    };
    assert_eq!(next().await, 0);
    let one = r#"{"service":"a","address":"10.0.0.1:1"}"#;
    pilot.ask("PUT", "/v1/instances", one).await;
    assert_eq!(next().await, 1);
    pilot.ask("DELETE", "/v1/instances", one).await;
    assert_eq!(next().await, 0);

    let mut others = Vec::new();
    while others.len() + 1 < watch::MAX_WATCHERS {
        others.push(pilot.send(watch()).await);
    }
    assert_eq!(pilot.send(watch()).await.status(), 503);
    others.pop();
    assert_eq!(pilot.send(watch()).await.status(), 200);
}

#[tokio::test]
async fn the_status_says_what_is_wanted_and_what_is_pending() {
    let pilot = Pilot::start(None);
    let one = r#"{"service":"a","address":"10.0.0.1:1"}"#;
    pilot.ask("PUT", "/v1/instances", one).await;
    let [a, b] = ["a", "b"].map(|key| key.parse().expect("a key"));
    let _wanted = [pilot.discovery.want(&a), pilot.discovery.want(&b)];
    let (_, status) = pilot.ask("GET", "/v1/status", "").await;
    assert_eq!(
        status["wanted"],
        json!({ "pending": 2, "present": 0, "absent": 0 })
    );
    assert_eq!(status["complete"], false);
    let mut changes = pilot.discovery.changes();
    tokio::spawn(pilot.discovery.clone().run());
    changes.recv().await.expect("a change");
    let (_, status) = pilot.ask("GET", "/v1/status", "").await;
    assert_eq!(
        status["wanted"],
        json!({ "pending": 0, "present": 1, "absent": 1 })
    );
    assert_eq!(status["complete"], true);
}

#[tokio::test]
async fn clients_are_shown_with_what_they_do_not_take() {
    let pilot = Pilot::start(None);
    let refused = Rejection {
        name: "outbound|a".into(),
        reason: "no such port".into(),
        since: UNIX_EPOCH + Duration::from_secs(7),
    };
    let endpoints = Summary {
        url: "endpoints".into(),
        wildcard: false,
        names: 3,
        pending: 1,
        unanswered: 0,
        sent: 2,
        rejected: vec![Arc::new(refused)],
        complete: false,
    };
    let client = |id: &str, types| Client {
        node: Arc::new(Node {
            id: id.into(),
            ..Node::default()
        }),
        peer: None,
        protocol: Protocol::Delta,
        since: UNIX_EPOCH + Duration::from_secs(5),
        types,
    };
    let enter = |client| pilot.clients.enter(client, 2).expect("a place");
    let _places = [
        enter(client("shop-1", vec![endpoints])),
        enter(client("shop-2", Vec::new())),
    ];

    let (_, status) = pilot.ask("GET", "/v1/status", "").await;
    let refused = json!({ "name": "outbound|a", "reason": "no such port", "since": 7 });
    let mut of_node = refused.clone();
    of_node["node"] = json!("shop-1");
    of_node["type"] = json!("endpoints");
    let shown = json!({ "connected": 2, "complete": 1, "rejections": 1, "rejected": [of_node] });
    assert_eq!(status["clients"], shown);

    let (_, page) = pilot.ask("GET", "/v1/clients?node=shop-1", "").await;
    let endpoints = json!({
        "type": "endpoints", "wildcard": false, "names": 3, "pending": 1, "unanswered": 0,
        "sent": 2, "complete": false, "rejected": [refused],
    });
    let shown = json!({
        "node": "shop-1", "cluster": "", "peer": null, "protocol": "delta", "since": 5,
        "services": 0, "complete": false, "types": [endpoints],
    });
    assert_eq!(page, json!({ "connected": 2, "clients": [shown] }));
    let (_, page) = pilot.ask("GET", "/v1/clients?limit=1", "").await;
    assert_eq!(page["clients"].as_array().map(Vec::len), Some(1));
    let (code, wrong) = pilot.ask("GET", "/v1/clients?limits=1", "").await;
    assert!(
        code == 400
            && wrong["error"]
                .as_str()
                .is_some_and(|text| text.contains("limits")),
        "{wrong}"
    );
}
