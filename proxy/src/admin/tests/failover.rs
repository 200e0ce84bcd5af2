//! `GET /failover`.

use super::*;

/// A service on loopback hosts of these ports, and nothing known of them.
fn service(key: &str, ports: &[u16]) -> ServiceStats {
    ServiceStats {
        key: key.parse().expect("a key"),
        side: Side::Outbound,
        wildcard: false,
        hosts: ports.iter().map(|p| provider(*p, 100, None)).collect(),
        finished: Counts::default(),
    }
}

fn host(port: u16, state: HostState) -> HostStats {
    HostStats {
        address: SocketAddr::from((HOST.0, port)),
        state,
        in_flight: 0,
        queued_bytes: 0,
        finished: Counts::default(),
        connected: 0,
        connect_failures: 0,
    }
}

fn shown(services: Vec<ServiceStats>, hosts: Vec<HostStats>) -> Shown {
    let snapshot = Snapshot {
        services,
        hosts,
        ..Snapshot::default()
    };
    Arc::new(snapshot.into())
}

/// The ports told of a service, in order.
fn ports(answer: &Value, key: &str) -> Vec<u16> {
    let told = answer["services"][key].as_array().expect("a list");
    let address = |text: &Value| text.as_str().expect("a text").parse::<SocketAddr>();
    told.iter()
        .map(|text| address(text).expect("an address").port())
        .collect()
}

fn version(answer: &Value) -> String {
    answer["version"].as_str().expect("a version").to_owned()
}

#[tokio::test]
async fn the_applications_own_addresses_are_told_the_sick_last() {
    let mut greeter = service("a.B:1", &[1, 2, 3, 4, 5, 6]);
    greeter.hosts[1].profile.direct = Some(([127, 0, 0, 1], 9).into());
    greeter.hosts[4].profile.weight = 0;
    greeter.hosts[5].profile.healthy = false;
    let mut inbound = service("inbound", &[7]);
    inbound.side = Side::Inbound;
    let mut again = host(3, HostState::Connecting);
    again.connect_failures = 1;
    let hosts = vec![
        host(1, HostState::Lost),
        host(2, HostState::Connecting),
        again,
        host(4, HostState::Connected),
        host(6, HostState::Connected),
    ];
    let all = shown(vec![greeter, inbound, service("c.D", &[8])], hosts);
    let admin = Running::showing(PORT_0, all).await;
    let answer = admin.json("GET /failover").await;
    let told = ports(&answer, "a.B:1");
    let (mut well, mut sick) = (told[..2].to_vec(), told[2..].to_vec());
    well.sort_unstable();
    sick.sort_unstable();
    assert_eq!((well, sick), (vec![4, 9], vec![1, 3, 6]), "{answer}");
    assert_eq!(ports(&answer, "c.D"), [8]);
    assert_eq!(answer["services"].as_object().expect("a map").len(), 2);
    let one = admin.json("GET /failover?limit=1").await;
    assert_eq!(ports(&one, "a.B:1"), told[..1]);
}

#[tokio::test]
async fn a_service_is_found_by_its_key_or_its_interface() {
    let mut every = service("c.D", &[8]);
    every.wildcard = true;
    let admin = Running::showing(PORT_0, shown(vec![service("a.B:1", &[1]), every], vec![])).await;
    for (asked, key, told) in [
        ("a.B:1", "a.B:1", Some(1)),
        ("a.B:2", "a.B:2", None),
        ("g/c.D:3", "g/c.D:3", Some(8)),
        ("x.Y", "x.Y", None),
    ] {
        let answer = admin.json(&format!("GET /failover?service={asked}")).await;
        let services = answer["services"].as_object().expect("a map");
        assert_eq!(services.len(), usize::from(told.is_some()), "{answer}");
        if let Some(port) = told {
            assert_eq!(ports(&answer, key), [port]);
        }
    }
    for wrong in ["limit=0", "limit=many", "service=a/b/c", "wait=30"] {
        let (status, cure) = admin.ask(&format!("GET /failover?{wrong}")).await;
        assert_eq!(status, 400, "{wrong}: {cure}");
    }
}

#[tokio::test]
async fn a_bare_key_is_never_taken_for_the_interface() {
    let mut every = service("c.D", &[8]);
    every.wildcard = true;
    let all = || vec![service("c.D", &[1]), every.clone()];
    for services in [all(), all().into_iter().rev().collect()] {
        let admin = Running::showing(PORT_0, shown(services, vec![])).await;
        for (query, key, told) in [
            ("", "c.D", 1),
            ("?service=c.D", "c.D", 1),
            ("?service=c.D:0.0.0", "c.D", 1),
            ("?service=c.D:2", "c.D:2", 8),
        ] {
            let answer = admin.json(&format!("GET /failover{query}")).await;
            assert_eq!(ports(&answer, key), [told], "{query}");
        }
    }
}

/// Without a name of their own they have that of the host.
#[tokio::test]
async fn sidecars_of_one_host_send_their_clients_to_different_providers() {
    let many: Vec<u16> = (1..=30).collect();
    let told = async |listen: &str| {
        let text = format!("{PORT_0}outbound: {{ listen: {listen} }}\n");
        let all = shown(vec![service("a.B:1", &many)], vec![]);
        let admin = Running::showing(&text, all).await;
        ports(&admin.json("GET /failover").await, "a.B:1")
    };
    let first = told("127.0.0.1:15001").await;
    assert_eq!(told("127.0.0.1:15001").await, first);
    for other in ["127.0.0.1:15011", "[unix:/run/mesh.sock]"] {
        assert_ne!(told(other).await, first, "{other}");
    }
}

#[tokio::test]
async fn the_version_is_the_contents() {
    let services = || vec![service("a.B:1", &[1, 2, 3])];
    let admin = Running::showing(PORT_0, shown(services(), vec![])).await;
    let answer = admin.json("GET /failover").await;
    let restarted = Running::showing(PORT_0, shown(services(), vec![])).await;
    assert_eq!(restarted.json("GET /failover").await, answer);
    let other_node = PORT_0.replace("shop-1", "shop-4");
    let elsewhere = Running::showing(&other_node, shown(services(), vec![])).await;
    let other = elsewhere.json("GET /failover").await;
    assert_ne!(ports(&other, "a.B:1"), ports(&answer, "a.B:1"));
    assert_ne!(version(&other), version(&answer));
    let tag = version(&answer);
    for known in [&format!("\"{tag}\""), &format!("\"x\", W/\"{tag}\""), "*"] {
        let heads = format!("if-none-match: {known}\r\n");
        let answer = admin.ask_with("GET /failover", &heads).await;
        assert_eq!(answer, (304, String::new()), "{known}");
    }
    for unknown in ["\"x\"".to_owned(), tag] {
        let heads = format!("if-none-match: {unknown}\r\n");
        assert_eq!(admin.ask_with("GET /failover", &heads).await.0, 200);
    }
}

#[tokio::test]
async fn who_has_it_waits_for_a_change_or_for_the_time() {
    let all = shown(vec![service("a.B:1", &[1, 2])], vec![]);
    let admin = Running::showing(PORT_0, Arc::clone(&all)).await;
    let answer = admin.json("GET /failover").await;
    let heads = format!("if-none-match: \"{}\"\r\n", version(&answer));
    let same = admin.ask_with("GET /failover?wait=1ms", &heads).await;
    assert_eq!(same.0, 304);
    let waiting = admin.ask_with("GET /failover?wait=60s", &heads);
    let (changed, ()) = tokio::join!(waiting, async {
        admin.waiters(1).await;
        let first = ports(&answer, "a.B:1")[0];
        all.lock().hosts = vec![host(first, HostState::Lost)];
    });
    assert_eq!(changed.0, 200);
    let changed: Value = serde_json::from_str(&changed.1).expect("JSON");
    let mut turned = ports(&answer, "a.B:1");
    turned.reverse();
    assert_eq!(ports(&changed, "a.B:1"), turned);
    admin.waiters(0).await;
}

#[tokio::test]
async fn who_waits_is_bounded_and_keeps_nobody_from_other_pages() {
    let limits = "limits: { admin_waiters: 1, admin_requests: 1, admin_timeout: 10m }";
    let admin = Running::showing(&format!("{PORT_0}{limits}"), shown(vec![], vec![])).await;
    let tag = version(&admin.json("GET /failover").await);
    let heads = format!("if-none-match: \"{tag}\"\r\n");
    let waiting = admin.send("GET /failover?wait=60s", &heads).await;
    admin.waiters(1).await;
    let refused = admin.ask("GET /failover").await;
    assert_eq!(
        refused,
        (503, "as many requests as limits.admin_waiters\n".into())
    );
    // A client that leaves gives its place back.
    drop(waiting);
    admin.waiters(0).await;
    assert_eq!(admin.ask("GET /failover").await.0, 200);
}

impl Running {
    /// Waits until so many requests wait.
    async fn waiters(&self, count: u32) {
        let page = format!("mesh_admin_waiting: {count}\n");
        while self.ask("GET /stats?filter=admin_waiting").await.1 != page {
            tokio::task::yield_now().await;
        }
    }
}
