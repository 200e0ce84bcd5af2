//! What a client learns from the sidecar's admin, and tells bonder: both scripted here.

use std::time::Duration;

use crate::script::http::Desk;
use crate::script::{Mode, Script, client, provider, until};
use thin_sdk::{Client, Error};

const SERVICE: &str = "com.foo.Shop";

async fn who(client: &Client) -> Result<String, Error> {
    client.call(SERVICE, "who").send().await
}

/// A sidecar that refuses calls.
async fn gone() -> Script {
    let mut sidecar = Script::start(Mode::Serve).await;
    sidecar.refuse().await;
    sidecar
}

#[tokio::test]
async fn addresses_are_learned_and_outlive_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roster.json");
    let provider = provider("provider", None).await;
    let document = format!(
        r#"{{"version":"1","services":{{"{SERVICE}":["{}"]}}}}"#,
        provider.address()
    );
    let admin = Desk::open(move |request| {
        let known = request.header("if-none-match") == Some("\"1\"");
        match known {
            true => ("304 Not Modified", String::new()),
            false => ("200 OK\r\netag: \"1\"", document.clone()),
        }
    })
    .await;
    let sidecar = gone().await;
    let first = client(&sidecar)
        .admin(Some(admin.address()))
        .admin_token("secret")
        .roster(&file)
        .build()
        .expect("a client");
    // It waits until an address is known.
    assert_eq!(who(&first).await, Ok("provider".into()));
    until("a further question", || admin.requests().len() >= 2).await;
    let asked = admin.requests();
    assert_eq!(asked[0].line, "GET /failover?limit=10&wait=30s HTTP/1.1");
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(asked[1].header("if-none-match"), Some("\"1\""));
    until("the file", || file.exists()).await;
    drop(first);

    let second = client(&sidecar).roster(&file).build().expect("a client");
    assert_eq!(who(&second).await, Ok("provider".into()));
}

#[tokio::test]
async fn a_sick_sidecar_takes_no_address_away() {
    let provider = provider("provider", None).await;
    let good = format!(
        r#"{{"services":{{"{SERVICE}":["{}"]}}}}"#,
        provider.address()
    );
    let answers = [
        ("200 OK", good),
        ("200 OK", r#"{"services":{}}"#.to_owned()),
        ("200 OK", format!(r#"{{"services":{{"{SERVICE}":[]}}}}"#)),
        ("200 OK", "no JSON".to_owned()),
        ("500 Oh", String::new()),
    ];
    let next = std::sync::atomic::AtomicUsize::new(0);
    let admin = Desk::open(move |_| {
        let next = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answers[next.min(answers.len() - 1)].clone()
    })
    .await;
    let sidecar = gone().await;
    let client = client(&sidecar)
        .admin(Some(admin.address()))
        .build()
        .expect("a client");
    until("every answer", || admin.requests().len() > 5).await;
    assert_eq!(who(&client).await, Ok("provider".into()));
}

#[test]
fn a_token_is_never_printed() {
    let builder = Client::builder().admin_token("secret");
    assert!(!format!("{builder:?}").contains("secret"));
}

#[tokio::test]
async fn declarations_are_repeated_until_bonder_has_heard_and_again() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let bonder =
        Desk::open(
            move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => ("503 Not Yet", String::new()),
                _ => ("204 No Content", String::new()),
            },
        )
        .await;
    let sidecar = gone().await;
    let client = client(&sidecar)
        .bonder(Some(bonder.address()))
        .name("shop")
        .lease(Duration::from_secs(1))
        .build()
        .expect("a client");
    assert!(client.declare(["com.foo.Good", "not a key"]).is_err());
    client
        .declare(["com.foo.B:0.0.0", "com.foo.A"])
        .expect("keys");
    until("a refusal and a success", || bonder.requests().len() >= 2).await;
    for request in &bonder.requests()[..2] {
        assert_eq!(request.line, "PUT /v1/dependencies HTTP/1.1");
        let pid = std::process::id();
        let wanted = format!(
            r#"{{"client":"shop","pid":{pid},"ttl_s":1,"services":["com.foo.A","com.foo.B"]}}"#
        );
        assert_eq!(request.body, wanted);
    }
    client.declare(["com.foo.C"]).expect("a key");
    let all = r#""services":["com.foo.A","com.foo.B","com.foo.C"]"#;
    // Told at once, and then again and again before the lease is over.
    until("repetitions", || {
        let requests = bonder.requests();
        let told = requests.iter().filter(|request| request.body.contains(all));
        told.count() >= 3
    })
    .await;
}

#[tokio::test]
async fn clients_of_one_process_never_take_back_what_another_declared() {
    let bonder = Desk::open(|_| ("204 No Content", String::new())).await;
    let sidecar = gone().await;
    let another = |name: &str, seconds| {
        client(&sidecar)
            .bonder(Some(bonder.address()))
            .name(name)
            .lease(Duration::from_secs(seconds))
            .build()
            .expect("a client")
    };
    let document = |name, seconds, services| {
        let pid = std::process::id();
        format!(r#"{{"client":"{name}","pid":{pid},"ttl_s":{seconds},"services":[{services}]}}"#)
    };
    let (one, two, other) = (another("shop", 2), another("shop", 1), another("stock", 1));
    one.declare(["com.foo.A"]).expect("a key");
    until("the first", || !bonder.requests().is_empty()).await;
    two.declare(["com.foo.B"]).expect("a key");
    other.declare(["com.foo.C"]).expect("a key");
    // The longest lease counts: who is dropped must not leave the others with a shorter one.
    let both = document("shop", 2, r#""com.foo.A","com.foo.B""#);
    let alone = document("stock", 1, r#""com.foo.C""#);
    let told = |of: &String| {
        let requests = bonder.requests();
        requests.iter().filter(|told| told.body == *of).count()
    };
    until("both, by each", || told(&both) >= 6 && told(&alone) >= 2).await;
    let requests = bonder.requests();
    let later = requests.iter().skip_while(|told| told.body != both);
    assert!(
        later
            .map(|told| &told.body)
            .all(|body| [&both, &alone].contains(&body))
    );
    // What all of them have forgotten is not declared any more.
    drop((one, two));
    let three = another("shop", 1);
    three.declare(["com.foo.D"]).expect("a key");
    let new = document("shop", 1, r#""com.foo.D""#);
    until("the new one", || told(&new) > 0).await;
}
