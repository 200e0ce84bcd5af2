//! A pilot, a proxy that asks it, and providers, as processes: what happens to calls meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;

use mesh_tests::http;
use mesh_tests::peer::{Peer, text};
use mesh_tests::process::{Process, free_port};
use mesh_tests::proxy::{self, call};
use mesh_tests::wait::until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{WITHIN, load, provider};

const SERVICE: &str = "com.foo.Greeter:1.0.0";
/// What [`call`] calls.
const UNVERSIONED: &str = proxy::SERVICE;

/// A pilot and a proxy.
struct Mesh {
    pilot: Process,
    proxy: Process,
    xds: SocketAddr,
    registry: SocketAddr,
    outbound: SocketAddr,
    admin: SocketAddr,
    folder: TempDir,
}

impl Mesh {
    /// One whose proxy declares these services, and has `more` in its configuration.
    fn start(declared: &[&str], more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [xds, registry, outbound, admin] =
            [(); 4].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let pilot = format!("xds: {{ listen: '{xds}' }}\nhttp: {{ listen: '{registry}' }}\n");
        let proxy = format!(
            "node: {{ id: test, cluster: test }}
outbound: {{ listen: '{outbound}', own_addresses: false }}
admin: {{ listen: '{admin}' }}
xds: {{ servers: '{xds}' }}
dependencies: dependencies.json
{more}"
        );
        let dependencies = json!({ "version": 1, "services": declared }).to_string();
        for (name, text) in [
            ("pilot.yaml", pilot),
            ("proxy.yaml", proxy),
            ("dependencies.json", dependencies),
        ] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        Self {
            pilot: start_pilot(folder.path()),
            proxy: start_proxy(folder.path()),
            xds,
            registry,
            outbound,
            admin,
            folder,
        }
    }

    #[track_caller]
    fn registry(&self, method: &str, service: &str, address: SocketAddr, more: &Value) {
        let mut instance = json!({ "service": service, "address": address });
        if let Some(more) = more.as_object() {
            instance
                .as_object_mut()
                .expect("a map")
                .extend(more.clone());
        }
        let body = instance.to_string();
        let answer = http::send(self.registry, method, "/v1/instances", &body).expect("a pilot");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    #[track_caller]
    fn register(&self, service: &str, address: SocketAddr) {
        self.registry("PUT", service, address, &Value::Null);
    }

    /// How it stands with the control plane.
    #[track_caller]
    fn standing(&self) -> Value {
        let page = http::get(self.admin, "/config_dump")
            .expect("an admin")
            .body;
        let page: Value = serde_json::from_str(&page).expect("JSON");
        let mut parts = page["configs"].as_array().expect("parts").iter();
        let xds = parts.find(|part| part["name"] == "xds");
        xds.unwrap_or_else(|| panic!("{page:#}")).clone()
    }

    /// Waits until the proxy would call these addresses, and no others.
    #[track_caller]
    fn calls(&self, service: &str, addresses: &[SocketAddr]) {
        let mut wanted: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        wanted.sort();
        until("these providers", WITHIN, || {
            let path = format!("/failover?service={service}");
            let page = http::get(self.admin, &path).ok()?.body;
            let page: Value = serde_json::from_str(&page).ok()?;
            let known = page["services"].get(service);
            let known = known.and_then(Value::as_array).cloned().unwrap_or_default();
            let mut known: Vec<_> = known.iter().filter_map(Value::as_str).collect();
            known.sort_unstable();
            (known == wanted).then_some(())
        });
    }

    /// Makes calls for a while; how many failed, by how they did.
    fn load(&self, more: &[&str]) -> (u64, Value) {
        let target = self.outbound.to_string();
        let (_, told, printed) = load(&[&["--target", &target, "--allow-errors"], more].concat());
        let failed = told["failed_calls"]
            .as_u64()
            .unwrap_or_else(|| panic!("{printed}"));
        (failed, told["rounds"][0]["failures"].clone())
    }
}

fn start_pilot(folder: &Path) -> Process {
    let mut process = daemon("pilot", folder);
    process.expect("its HTTP", WITHIN, |line| {
        line.starts_with("http listening on ").then_some(())
    });
    process
}

fn start_proxy(folder: &Path) -> Process {
    let mut process = daemon("proxy", folder);
    let admin: SocketAddr = process.expect("its admin", WITHIN, |line| {
        line.strip_prefix("admin listening on ")?.parse().ok()
    });
    until("a proxy that is ready", WITHIN, || {
        let ready = http::get(admin, "/ready").ok()?;
        (ready.status == 200).then_some(())
    });
    process
}

fn daemon(name: &str, folder: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args([name, "--config"]);
    command.arg(folder.join(format!("{name}.yaml")));
    Process::start(name, command)
}

#[test]
fn no_call_is_lost_while_the_pilot_dies_and_providers_come_and_go() {
    let mut mesh = Mesh::start(&[SERVICE], "");
    let (_first, first) = provider(&[]);
    let (_second, second) = provider(&[]);
    mesh.register(SERVICE, first);
    mesh.calls(SERVICE, &[first]);
    thread::scope(|scope| {
        let under_load = scope.spawn({
            let target = mesh.outbound.to_string();
            move || {
                load(&[
                    "--target",
                    &target,
                    "--concurrency",
                    "8",
                    "--duration",
                    "3s",
                ])
            }
        });
        mesh.pilot.signal(Signal::SIGKILL);
        mesh.pilot.exit(WITHIN);
        until("that it is missed", WITHIN, || {
            mesh.standing()["connected"].is_null().then_some(())
        });
        mesh.pilot = start_pilot(mesh.folder.path());
        // What it knew is there again, and what is new arrives.
        mesh.register(SERVICE, second);
        mesh.calls(SERVICE, &[first, second]);
        mesh.registry("DELETE", SERVICE, first, &Value::Null);
        mesh.calls(SERVICE, &[second]);
        let (code, told, printed) = under_load.join().expect("a load");
        assert_eq!(
            (code, &told["failed_calls"]),
            (Some(0), &json!(0)),
            "{printed}"
        );
    });
    let standing = mesh.standing();
    assert_eq!(standing["connected"], mesh.xds.to_string(), "{standing:#}");
    assert_eq!(
        (&standing["services"], &standing["pending"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn a_proxy_starts_from_its_copy_while_the_pilot_is_away() {
    let mut mesh = Mesh::start(&[SERVICE], "");
    let (_provider, address) = provider(&[]);
    mesh.register(SERVICE, address);
    mesh.calls(SERVICE, &[address]);
    assert_eq!(mesh.load(&[]), (0, json!({})));
    mesh.pilot.signal(Signal::SIGTERM);
    assert!(mesh.pilot.exit(WITHIN).success());
    mesh.proxy.signal(Signal::SIGKILL);
    mesh.proxy.exit(WITHIN);
    mesh.proxy = start_proxy(mesh.folder.path());
    assert_eq!(mesh.load(&[]), (0, json!({})));
    let standing = mesh.standing();
    assert!(standing["age_seconds"].is_u64(), "{standing:#}");
    assert!(standing["lost"].is_string(), "{standing:#}");
}

#[test]
fn a_service_that_is_empty_fails_in_words_and_comes_back() {
    let mesh = Mesh::start(&[SERVICE], "");
    let (_provider, address) = provider(&[]);
    mesh.register(SERVICE, address);
    mesh.calls(SERVICE, &[address]);
    mesh.registry("DELETE", SERVICE, address, &Value::Null);
    mesh.calls(SERVICE, &[]);
    let (failed, how) = mesh.load(&["--concurrency", "1"]);
    let kinds: Vec<_> = how.as_object().expect("a map").keys().cloned().collect();
    assert!(failed > 0 && kinds == ["status 60 NR"], "{how:#}");
    mesh.register(SERVICE, address);
    mesh.calls(SERVICE, &[address]);
    assert_eq!(mesh.load(&[]), (0, json!({})));
}

/// Nobody declared it: the first call waits until the pilot has told, and the answer of what does not
/// exist comes at once.
#[test]
fn a_call_finds_what_nobody_declared() {
    let mesh = Mesh::start(&[], "");
    let (_provider, address) = provider(&[]);
    mesh.register(SERVICE, address);
    assert_eq!(mesh.load(&[]), (0, json!({})));
    assert_eq!(mesh.standing()["learned"], 1);
    let target = mesh.outbound.to_string();
    let (_, told, printed) = load(&[
        "--target",
        &target,
        "--service",
        "com.foo.Nobody:1.0.0",
        "--allow-errors",
        "--concurrency",
        "1",
    ]);
    let how = told["rounds"][0]["failures"].as_object().expect("failures");
    assert!(how.keys().eq(["status 60 NR"]), "{printed}");
}

/// Of one service, what the configuration says counts, whatever the pilot says.
#[test]
fn the_configuration_wins_over_the_pilot() {
    let (_provider, address) = provider(&[]);
    let fixed =
        format!("static: {{ services: [{{ key: '{SERVICE}', endpoints: ['{address}'] }}] }}\n");
    let mesh = Mesh::start(&[SERVICE], &fixed);
    // Nobody listens there.
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    mesh.register(SERVICE, nobody);
    until("that the pilot has told", WITHIN, || {
        let standing = mesh.standing();
        (standing["connected"].is_string() && standing["pending"] == 0).then_some(())
    });
    mesh.calls(SERVICE, &[address]);
    assert_eq!(mesh.load(&[]), (0, json!({})));
}

/// A call that brings no time of its own is bound by the one that the provider registered.
#[test]
fn the_registered_timeout_bounds_a_call_that_has_none() {
    let mesh = Mesh::start(&[UNVERSIONED], "");
    let (_provider, address) = provider(&["--delay", "5s"]);
    let more = json!({ "metadata": { "timeout": "200" } });
    mesh.registry("PUT", UNVERSIONED, address, &more);
    mesh.calls(UNVERSIONED, &[address]);
    let mut application = Peer::connect(mesh.outbound);
    application.send(&call(1, "find"));
    let text = text(&application.receive_call());
    assert!(text.starts_with("UT "), "{text}");
}
