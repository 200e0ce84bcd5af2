//! Over real sockets.

mod failover;

use std::{net::SocketAddr, path::Path, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use super::*;
use crate::metrics::{
    Counts, HostState, HostStats, Outcome, ServiceHost, ServiceStats, Snapshot, Source,
};
use crate::model::{Profile, Side};

const HOST: ([u8; 4], u16) = ([127, 0, 0, 1], 20880);

/// An admin that runs over one shard.
struct Running {
    address: SocketAddr,
    state: State,
    folder: tempfile::TempDir,
}

/// What a shard shows; the test changes it.
type Shown = Arc<parking_lot::Mutex<Snapshot>>;

/// An answer: status and body.
type Answer = (u16, String);

impl Running {
    /// Starts one whose configuration is `text`, read in a folder with a token in `token`.
    async fn new(text: &str) -> Self {
        Self::showing(text, Arc::new(snapshot().into())).await
    }

    /// Starts one whose shard shows `shown`.
    async fn showing(text: &str, shown: Shown) -> Self {
        let (sender, mut requests) = mpsc::channel::<metrics::Request>(1);
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                let _ = request.send(Box::new(shown.lock().clone()));
            }
        });
        Self::over(text, sender).await
    }

    async fn over(text: &str, shard: mpsc::Sender<metrics::Request>) -> Self {
        let (running, listener) = Self::prepare(text, shard);
        tokio::spawn(server::serve(listener, running.state.clone()));
        running
    }

    /// One that does not run yet.
    fn prepare(text: &str, shard: mpsc::Sender<metrics::Request>) -> (Self, std::net::TcpListener) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), "s3cret").expect("written");
        let config = load(folder.path(), text);
        let registry = prometheus::Registry::new();
        let source = Source::new(vec![shard], config.limits.scrape_timeout);
        let listener = bind(&config.admin).expect("bound");
        let address = listener.local_addr().expect("an address");
        let unix = Listen::Unix("/run/mesh.sock".into());
        let state = State {
            shards: metrics::Shards::new(source, &registry).expect("metrics"),
            requests: metrics::AdminRequests::new(&registry).expect("metrics"),
            registry,
            ready: Readiness::default(),
            drain: Drain::new(),
            listeners: [("outbound", Listen::Tcp(HOST.into())), ("inbound", unix)].into(),
            levels: Levels::new(&config.logging.level).expect("a filter").1,
            failover: Failover::default(),
            control_plane: None,
            config: Arc::new(ArcSwap::from_pointee(config)),
            started: started(),
        };
        (
            Self {
                address,
                state,
                folder,
            },
            listener,
        )
    }

    async fn ask(&self, request: &str) -> Answer {
        self.ask_with(request, "").await
    }

    /// Sends `METHOD PATH` with further heads.
    async fn send(&self, request: &str, heads: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.expect("connected");
        let text = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{heads}\r\n");
        socket.write_all(text.as_bytes()).await.expect("sent");
        socket
    }

    /// Asks `METHOD PATH` with further heads.
    async fn ask_with(&self, request: &str, heads: &str) -> Answer {
        let mut socket = self.send(request, heads).await;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), body.into())
    }

    async fn json(&self, request: &str) -> Value {
        let (status, body) = self.ask(request).await;
        assert_eq!(status, 200, "{request}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

#[expect(clippy::disallowed_methods, reason = "when the test started")]
fn started() -> Instant {
    Instant::now()
}

fn load(folder: &Path, text: &str) -> Config {
    let file = folder.join("proxy.yaml");
    std::fs::write(&file, text).expect("written");
    Config::load(&file).expect(text)
}

/// A provider on loopback, perhaps with the port of the application behind it.
fn provider(port: u16, weight: u32, direct: Option<u16>) -> ServiceHost {
    let at = |port: u16| SocketAddr::from((HOST.0, port));
    ServiceHost {
        address: at(port),
        profile: Profile {
            weight,
            direct: direct.map(at),
            ..Profile::default()
        },
    }
}

/// What a shard shows of one service, one host it knows and one it does not know yet.
fn snapshot() -> Snapshot {
    let mut finished = Counts::default();
    finished[Outcome::Ok] = 5;
    finished[Outcome::Exception] = 1;
    finished[Outcome::Timeout] = 2;
    let service = ServiceStats {
        key: "a.B:1".parse().expect("a key"),
        side: Side::Outbound,
        wildcard: false,
        hosts: vec![provider(20880, 100, None), provider(20881, 50, Some(20882))],
        finished: finished.clone(),
    };
    let host = HostStats {
        address: HOST.into(),
        state: HostState::Connected,
        in_flight: 3,
        queued_bytes: 4,
        finished,
        connected: 1,
        connect_failures: 0,
    };
    Snapshot {
        hosts: vec![host],
        services: vec![service],
        ..Snapshot::default()
    }
}

const PORT_0: &str = "admin: { listen: 127.0.0.1:0 }\nnode: { id: shop-1 }\n";

#[tokio::test]
async fn ready_follows_the_life_of_the_proxy() {
    let admin = Running::new(PORT_0).await;
    assert_eq!(
        admin.ask("GET /ready").await,
        (503, "PRE_INITIALIZING\n".into())
    );
    admin.state.ready.set();
    assert_eq!(admin.ask("GET /ready").await, (200, "LIVE\n".into()));
    admin.state.drain.begin();
    admin
        .state
        .drain
        .pass(Phase::NotReady, Duration::from_secs(60), async {})
        .await;
    assert_eq!(admin.ask("GET /ready").await, (503, "DRAINING\n".into()));
}

#[tokio::test]
async fn server_info_says_who_we_are() {
    let info = Running::new(PORT_0).await.json("GET /server_info").await;
    assert_eq!(info["node"]["id"], "shop-1");
    assert_eq!(info["state"], "PRE_INITIALIZING");
    assert_eq!(info["drain_phase"], "running");
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn clusters_show_each_host_of_each_service() {
    let admin = Running::new(PORT_0).await;
    let (status, text) = admin.ask("GET /clusters").await;
    assert_eq!(status, 200);
    let expected = [
        "a.B:1::127.0.0.1:20880::weight::100",
        "a.B:1::127.0.0.1:20880::health_flags::healthy",
        "a.B:1::127.0.0.1:20880::state::connected",
        "a.B:1::127.0.0.1:20880::cx_active::1",
        "a.B:1::127.0.0.1:20880::cx_total::1",
        "a.B:1::127.0.0.1:20880::cx_connect_fail::0",
        "a.B:1::127.0.0.1:20880::rq_active::3",
        "a.B:1::127.0.0.1:20880::rq_total::8",
        "a.B:1::127.0.0.1:20880::rq_success::6",
        "a.B:1::127.0.0.1:20880::rq_error::2",
        "a.B:1::127.0.0.1:20880::rq_timeout::2",
        "a.B:1::127.0.0.1:20880::queued_bytes::4",
        "a.B:1::127.0.0.1:20881::weight::50",
        "a.B:1::127.0.0.1:20881::health_flags::healthy",
        "a.B:1::127.0.0.1:20881::state::idle",
        "a.B:1::127.0.0.1:20881::direct::127.0.0.1:20882",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let json = admin.json("GET /clusters?format=json").await;
    let host = &json["cluster_statuses"][0]["host_statuses"][0];
    assert_eq!(host["address"]["socket_address"]["port_value"], 20880);
    assert_eq!(
        host["finished"],
        serde_json::json!({ "ok": 5, "exception": 1, "UT": 2 })
    );
    assert_eq!(host["rq_success"], 6);
}

#[tokio::test]
async fn stats_are_shown_as_text_as_json_and_for_prometheus() {
    let admin = Running::new(PORT_0).await;
    let (_, text) = admin.ask("GET /stats?filter=host_in_flight").await;
    assert_eq!(text, "mesh_host_in_flight{host=\"127.0.0.1:20880\"}: 3\n");
    let json = admin
        .json("GET /stats?format=json&filter=service_finished&usedonly")
        .await;
    let stats = json["stats"].as_array().expect("a list");
    assert_eq!(stats.len(), 3, "{json}");
    let (_, text) = admin.ask("GET /stats/prometheus").await;
    assert!(
        text.contains("# TYPE mesh_call_duration_seconds histogram"),
        "{text}"
    );
    assert!(
        text.contains("mesh_admin_requests_total{code=\"200\"} 2"),
        "the two above: {text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_hangs_does_not_hang_the_page() {
    let (sender, _never_answered) = mpsc::channel(1);
    let admin = Running::over(PORT_0, sender).await;
    let (status, text) = admin.ask("GET /stats?filter=mesh_shard_stale").await;
    assert_eq!(
        (status, &*text),
        (200, "mesh_shard_stale: 1\nmesh_shard_stale_total: 1\n")
    );
}

#[tokio::test]
async fn listeners_tell_where_they_are_bound() {
    let admin = Running::new(PORT_0).await;
    let (_, text) = admin.ask("GET /listeners").await;
    assert_eq!(
        text,
        "outbound::127.0.0.1:20880\ninbound::unix:/run/mesh.sock\n"
    );
    let json = admin.json("GET /listeners?format=json").await;
    let listeners = &json["listener_statuses"];
    assert_eq!(listeners[0]["name"], "outbound");
    assert_eq!(
        listeners[0]["local_address"]["socket_address"]["address"],
        "127.0.0.1"
    );
    assert_eq!(
        listeners[1]["local_address"]["pipe"]["path"],
        "/run/mesh.sock"
    );
}

#[tokio::test]
async fn the_configuration_shown_is_the_one_in_force() {
    let admin = Running::new(PORT_0).await;
    let default = |dump: &Value| dump["configs"][0]["config"]["outbound"]["default"].clone();
    assert_eq!(default(&admin.json("GET /config_dump").await), Value::Null);
    let changed = load(
        admin.folder.path(),
        &format!("{PORT_0}outbound: {{ default: a.B }}"),
    );
    admin.state.config.store(Arc::new(changed));
    assert_eq!(default(&admin.json("GET /config_dump").await), "a.B");
}

#[tokio::test]
async fn draining_and_quitting_are_asked_for_by_post_alone() {
    let admin = Running::new(PORT_0).await;
    for path in ["/drain_listeners", "/quitquitquit"] {
        let (status, hint) = admin.ask(&format!("GET {path}")).await;
        assert_eq!(status, 405);
        assert!(hint.contains("GET /help"), "{hint}");
    }
    assert_eq!(admin.state.drain.wanted(), Phase::Running);
    assert_eq!(
        admin.ask("POST /drain_listeners").await,
        (200, "OK\n".into())
    );
    assert_eq!(admin.state.drain.wanted(), Phase::StopAccepting);
    assert_eq!(admin.ask("POST /quitquitquit").await, (200, "OK\n".into()));
    assert_eq!(admin.state.drain.wanted(), Phase::Ended);
}

#[tokio::test]
async fn the_log_level_changes() {
    let admin = Running::new(PORT_0).await;
    assert_eq!(admin.ask("GET /logging").await, (200, "info\n".into()));
    let (status, cure) = admin.ask("POST /logging?level=inof").await;
    assert_eq!(status, 400);
    assert!(
        cure.starts_with("\"inof\" is no level; write off, error,"),
        "{cure}"
    );
    assert_eq!(admin.ask("POST /logging").await.0, 400);
    assert_eq!(admin.ask("GET /logging").await.1, "info\n");
}

#[test]
fn a_changed_filter_is_in_force() {
    let (layer, levels) = Levels::new("info").expect("a filter");
    let subscriber =
        tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
    tracing::subscriber::with_default(subscriber, || {
        assert!(!tracing::enabled!(tracing::Level::DEBUG));
        levels.set("debug").expect("a filter");
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        assert!(levels.set("x").is_err());
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        assert_eq!(levels.text(), "debug");
    });
}

#[tokio::test]
async fn every_listed_page_is_there_and_no_other() {
    let admin = Running::new(PORT_0).await;
    let (_, help) = admin.ask("GET /help").await;
    assert_eq!(admin.ask("GET /").await.1, help);
    assert_eq!(help.lines().count(), PAGES.len());
    for (path, method, _) in PAGES {
        let (status, body) = admin.ask(&format!("{method} {path}")).await;
        assert!(
            status == 200 || path == "/ready",
            "{method} {path}: {status} {body}"
        );
        assert_eq!(admin.ask(&format!("DELETE {path}")).await.0, 405, "{path}");
    }
    let (status, hint) = admin.ask("GET /metrics").await;
    assert_eq!(
        (status, &*hint),
        (404, "no page /metrics; GET /help lists all\n")
    );
}

#[tokio::test]
async fn without_the_token_nothing_but_ready_is_answered() {
    let admin = Running::new("admin: { listen: 127.0.0.1:0, token_file: token }").await;
    assert_eq!(admin.ask("GET /ready").await.0, 503);
    for heads in [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: Basic s3cret\r\n",
        "authorization: Bearer\r\n",
        "authorization: s3cret\r\n",
    ] {
        for request in [
            "GET /config_dump",
            "POST /quitquitquit",
            "GET /nowhere",
            "PUT /ready/",
        ] {
            let (status, body) = admin.ask_with(request, heads).await;
            assert_eq!(status, 401, "{request} {heads}");
            assert!(!body.contains("s3cret"), "{body}");
        }
    }
    assert_eq!(admin.state.drain.wanted(), Phase::Running);
    let right = "authorization: bearer s3cret\r\n";
    let (status, dump) = admin.ask_with("GET /config_dump", right).await;
    assert_eq!(status, 200);
    assert!(!dump.contains("s3cret"), "{dump}");
}

#[tokio::test]
async fn more_requests_than_the_limit_are_refused() {
    let (sender, mut asked) = mpsc::channel(1);
    let limits = "limits: { admin_requests: 1, scrape_timeout: 1m, admin_timeout: 10m }";
    let admin = Running::over(&format!("{PORT_0}{limits}"), sender).await;
    let (slow, refused) = tokio::join!(admin.ask("GET /stats"), async {
        // The slow one is at work when it asks the shard, and ends when that answers.
        let request = asked.recv().await.expect("asked");
        let refused = admin.ask("GET /help").await;
        assert_eq!(
            admin.ask("GET /ready").await.0,
            503,
            "by its state, not by the limit"
        );
        admin.state.ready.set();
        assert_eq!(admin.ask("GET /ready").await.0, 200);
        request.send(Box::default()).expect("awaited");
        refused
    });
    assert_eq!(slow.0, 200);
    assert_eq!(
        refused,
        (503, "as many requests as limits.admin_requests\n".into())
    );
}

#[test]
fn a_taken_port_names_address_key_and_cure() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let listen = taken.local_addr().expect("an address");
    let error = bind(&crate::config::Admin {
        listen,
        token: None,
    })
    .expect_err("taken")
    .to_string();
    let expected = format!("admin.listen: cannot listen on {listen}: Address already in use");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn on_its_thread_it_serves_until_the_drain_has_ended() {
    let (admin, listener) = Running::prepare(PORT_0, mpsc::channel(1).0);
    let thread = start(listener, admin.state.clone()).expect("a thread");
    assert_eq!(admin.ask("POST /quitquitquit").await, (200, "OK\n".into()));
    assert_eq!(admin.state.drain.wanted(), Phase::Ended);
    assert_eq!(
        admin.ask("GET /ready").await.0,
        503,
        "still there while it drains"
    );
    admin.state.drain.skip();
    tokio::task::spawn_blocking(|| thread.join())
        .await
        .expect("joined")
        .expect("no panic");
    assert!(TcpStream::connect(admin.address).await.is_err());
}
