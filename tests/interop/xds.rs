//! Clients of the pilot that nobody here wrote: go-control-plane's, and Envoy with its own Dubbo
//! proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mesh_tests::pilot::{Pilot, Scripted};
use mesh_tests::process::{Process, free_port};
use mesh_tests::wait::until;
use tempfile::TempDir;

use crate::peers::{Consumer, Provider, built};

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_foreign_client_follows_its_services_in_both_forms() {
    for mode in ["delta", "sotw"] {
        let pilot = Pilot::start(Scripted::default());
        pilot.registry.provide("a", 20_001);
        pilot.registry.absent("b");
        let mut client = client(&pilot, mode, &["-services", "a,b", "cds", "eds"]);
        saw(&mut client, &["cds", "outbound|a"]);
        saw(&mut client, &["eds", "outbound|a", "127.0.0.1:20001"]);
        pilot.registry.provide("a", 20_002);
        saw(&mut client, &["eds", "outbound|a", "127.0.0.1:20002"]);
        pilot.registry.provide("b", 20_003);
        saw(&mut client, &["cds", "outbound|b"]);
        saw(&mut client, &["eds", "outbound|b", "127.0.0.1:20003"]);
    }
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_foreign_client_hears_of_absence_and_of_what_comes_after() {
    let pilot = Pilot::start(Scripted::default());
    pilot.registry.absent("a");
    let mut client = client(&pilot, "delta", &["eds=outbound|a"]);
    saw(&mut client, &["response eds", "removed=[\"outbound|a\"]"]);
    pilot.registry.provide("a", 20_001);
    saw(&mut client, &["eds", "outbound|a", "127.0.0.1:20001"]);
    pilot.registry.absent("a");
    saw(&mut client, &["response eds", "removed=[\"outbound|a\"]"]);
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_foreign_client_that_rejects_is_sent_each_version_once() {
    for mode in ["delta", "sotw"] {
        let pilot = Pilot::start(Scripted::default());
        pilot.registry.provide("a", 20_001);
        let mut client = client(&pilot, mode, &["-nack", "eds", "eds=outbound|a"]);
        for port in 20_001..20_004 {
            pilot.registry.provide("a", port);
            saw(&mut client, &["eds", &format!("127.0.0.1:{port}")]);
            saw(&mut client, &["NACK eds"]);
            until("its reason in the status", PATIENCE, || {
                let clients = pilot.clients().all();
                let endpoints = clients.first()?.types.first()?.clone();
                let reason = &endpoints.rejected.first()?.reason;
                (reason == "rejected by the test client" && endpoints.unanswered == 0).then_some(())
            });
            let sent = pilot.clients().all()[0].types[0].sent;
            assert_eq!(sent, u64::from(port - 20_000), "each version once");
        }
    }
}

#[test]
#[ignore = "needs Go; .ci/run runs it"]
fn a_foreign_client_that_comes_back_is_sent_the_difference() {
    let pilot = Pilot::start(Scripted::default());
    pilot.registry.provide("a", 20_001);
    let arguments = ["-reconnect", "1s", "eds=outbound|a,outbound|b"];
    let mut client = client(&pilot, "delta", &arguments);
    saw(&mut client, &["eds", "outbound|a", "127.0.0.1:20001"]);
    saw(&mut client, &["dropping the stream"]);
    saw(&mut client, &["subscribe eds", "known=map[outbound|a:"]);
    // What is not yet known of b comes now; a, which it has, would stand in the same answer.
    pilot.registry.provide("b", 20_002);
    saw(&mut client, &["response eds", "resources=1"]);
    saw(&mut client, &["eds", "outbound|b", "127.0.0.1:20002"]);
}

#[test]
#[ignore = "needs Go and Envoy; .ci/run runs it"]
fn envoy_routes_calls_by_what_the_pilot_tells() {
    for api_type in ["DELTA_GRPC", "GRPC"] {
        let provider = Provider::go();
        let pilot = Pilot::start(Scripted::default());
        pilot.registry.provide(KEY, provider.address().port());
        let envoy = Envoy::start(&pilot, api_type);
        let mut consumer = Consumer::go(envoy.address());
        consumer.gets("hello w", "hello w from go");
        consumer.gets("label", "{tea! 42 [green]}");

        // The provider moves, and calls with it; nothing is rejected on the way.
        let other = Provider::go();
        pilot.registry.provide(KEY, other.address().port());
        envoy.knows(other.address());
        drop(provider);
        consumer.gets("hello again", "hello again from go");
        let clients = pilot.clients().all();
        let types = clients.first().map(|client| &client.types[..]);
        let rejected = types
            .unwrap_or_default()
            .iter()
            .flat_map(|kind| &kind.rejected);
        assert_eq!(rejected.count(), 0, "{types:?}");
    }
}

/// Stock Envoy, whose clusters, endpoints and routes come from a pilot.
struct Envoy {
    _process: Process,
    _folder: TempDir,
    port: u16,
    admin: SocketAddr,
}

impl Envoy {
    fn start(pilot: &Pilot, api_type: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let (port, admin) = (free_port(), free_port());
        let template = fs::read_to_string(source().join("envoy.yaml")).expect("a template");
        let config = template
            .replace("API_TYPE", api_type)
            .replace("XDS_PORT", &pilot.address().port().to_string())
            .replace("LISTEN_PORT", &port.to_string())
            .replace("ADMIN_PORT", &admin.to_string())
            .replace("SERVICE", KEY);
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, config).expect("a file");
        let mut command = Command::new(peer("envoy/envoy/_bin/envoy"));
        command.arg("-c").arg(file);
        command.args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "warning",
        ]);
        let process = Process::start("Envoy", command);
        let this = Self {
            _process: process,
            _folder: folder,
            port,
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, admin)),
        };
        until("an Envoy that is ready", PATIENCE, || {
            this.page("/ready").map(drop)
        });
        this
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// A page of its admin, with its head, if it answers with one. It takes no HTTP/1.0.
    fn page(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.starts_with("HTTP/1.1 200").then_some(page)
    }

    /// Waits until it sends calls there, and nowhere else.
    fn knows(&self, provider: SocketAddr) {
        until("its new endpoint", PATIENCE, || {
            let clusters = self.page("/clusters")?;
            let ours = clusters
                .lines()
                .filter(|line| line.starts_with("outbound|"));
            let hosts: Vec<_> = ours
                .filter(|line| line.contains("::health_flags::"))
                .collect();
            let [only] = hosts[..] else { return None };
            only.contains(&provider.to_string()).then_some(())
        });
    }
}

/// go-control-plane's client, which prints what it is told.
fn client(pilot: &Pilot, mode: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(peer("xds-client"));
    command.args(["-addr", &pilot.address().to_string(), "-mode", mode]);
    command.args(["-for", "10m"]).args(arguments);
    Process::start("xDS client", command)
}

/// Reads on to a line with all of these.
#[track_caller]
fn saw(client: &mut Process, words: &[&str]) {
    client.expect(&format!("{words:?}"), PATIENCE, |line| {
        words.iter().all(|word| line.contains(word)).then_some(())
    });
}

fn peer(path: &str) -> PathBuf {
    let path = built().join(path);
    assert!(
        path.is_file(),
        "no {}: run tests/peers/build",
        path.display()
    );
    path
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/xds")
}

const KEY: &str = "g1/shop.Shop:1.0.0";
const PATIENCE: Duration = Duration::from_secs(60);
