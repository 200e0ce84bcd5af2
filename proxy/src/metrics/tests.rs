//! What a registry shows.

use std::{net::SocketAddr, time::Duration};

use prometheus::{Registry, TextEncoder};
use tokio::sync::mpsc;

use super::*;
use crate::model::{Profile, Side};

const HOST: ([u8; 4], u16) = ([127, 0, 0, 1], 20880);

/// A snapshot in which something happened.
fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let calls = &mut snapshot.shard.calls.outbound;
    calls.finished[Outcome::Ok] = 3;
    calls.finished[Outcome::NoRoute] = 2;
    calls.duration.observe(Duration::from_millis(2));
    snapshot.sessions.outbound = 4;
    let mut finished = Counts::default();
    finished[Outcome::Timeout] = 5;
    snapshot.hosts.push(HostStats {
        address: SocketAddr::from(HOST),
        state: HostState::Connected,
        in_flight: 6,
        queued_bytes: 7,
        finished: finished.clone(),
        connected: 8,
        connect_failures: 9,
    });
    snapshot.services.push(ServiceStats {
        key: "a.B:1".parse().expect("a key"),
        side: Side::Outbound,
        wildcard: false,
        hosts: vec![ServiceHost {
            address: SocketAddr::from(HOST),
            profile: Profile::default(),
        }],
        finished,
    });
    snapshot
}

/// A registry of every component, over shards that show [`snapshot`].
async fn registry(shards: usize) -> Registry {
    let mut senders = Vec::new();
    for _ in 0..shards {
        let (sender, mut requests) = mpsc::channel::<Request>(1);
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                let _ = request.send(Box::new(snapshot()));
            }
        });
        senders.push(sender);
    }
    let registry = Registry::new();
    let source = Source::new(senders, Duration::from_secs(60));
    let shown = Shards::new(source, &registry).expect("shards");
    shown.refresh().await;
    Listeners::new(&registry).expect("listeners");
    Reloads::new(&registry).expect("reloads");
    CopyOnDisk::new(&registry).expect("the copy");
    ControlPlane::new(&registry).expect("the control plane");
    AdminRequests::new(&registry)
        .expect("admin")
        .by_code
        .with_label_values(&["200"]);
    registry
}

#[tokio::test]
async fn what_shards_count_is_shown_together() {
    let text = TextEncoder::new()
        .encode_to_string(&registry(2).await.gather())
        .expect("text");
    for line in [
        "mesh_call_finished_total{side=\"outbound\",outcome=\"ok\"} 6",
        "mesh_call_finished_total{side=\"outbound\",outcome=\"NR\"} 4",
        "mesh_call_finished_total{side=\"inbound\",outcome=\"ok\"} 0",
        "mesh_call_duration_seconds_bucket{side=\"outbound\",le=\"0.001\"} 0",
        "mesh_call_duration_seconds_bucket{side=\"outbound\",le=\"0.0025\"} 2",
        "mesh_call_duration_seconds_bucket{side=\"outbound\",le=\"+Inf\"} 2",
        "mesh_call_duration_seconds_sum{side=\"outbound\"} 0.004",
        "mesh_session_open{side=\"outbound\"} 8",
        "mesh_host_in_flight{host=\"127.0.0.1:20880\"} 12",
        "mesh_host_count{state=\"connected\"} 1",
        "mesh_service_finished_total{service=\"a.B:1\",outcome=\"UT\"} 10",
        "mesh_service_hosts{service=\"a.B:1\"} 1",
        "mesh_shard_count 2",
        "mesh_listener_errors_total{side=\"inbound\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("outcome=\"UT\",side") && !text.contains("a.B:1\",outcome=\"ok"));
}

/// The rows of docs/metrics.md: name, type, labels.
fn documented() -> Vec<(String, String, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let text = std::fs::read_to_string(file).expect("docs/metrics.md");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `mesh_")?.split(" | ");
        let name = format!("mesh_{}", cells.next()?.trim_end_matches('`'));
        Some((name, cells.next()?.into(), cells.next()?.replace('`', "")))
    });
    rows.collect()
}

#[tokio::test]
async fn the_documentation_lists_every_family() {
    let families = registry(1).await.gather();
    let mut code: Vec<_> = families
        .iter()
        .map(|family| {
            let labels = family.get_metric()[0].get_label().iter();
            let labels: Vec<_> = labels.map(|label| label.name().to_owned()).collect();
            let kind = format!("{:?}", family.get_field_type()).to_lowercase();
            (family.name().to_owned(), kind, labels.join(", "))
        })
        .collect();
    let mut docs = documented();
    code.sort();
    docs.sort();
    assert_eq!(
        docs, code,
        "docs/metrics.md on the left, the code on the right"
    );
}

#[tokio::test]
async fn names_follow_the_rule() {
    for family in registry(1).await.gather() {
        let name = family.name();
        let counter = family.get_field_type() == prometheus::proto::MetricType::COUNTER;
        assert!(name.starts_with("mesh_"), "{name}");
        assert_eq!(name.ends_with("_total"), counter, "{name}");
        assert!(family.help().ends_with('.'), "{name}");
    }
}
