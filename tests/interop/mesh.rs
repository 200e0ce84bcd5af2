//! The whole mesh around real Java applications: bonder starts pilot, sidecar and application, the
//! provider's sidecar registers what it provides, and parts of it are killed and stopped under load.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use mesh_tests::http;
use mesh_tests::process::free_port;
use mesh_tests::wait::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::java::make_calls;
use crate::peers::{Consumer, Line, Provider};
use crate::sidecar::PROGRAM;

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn java_calls_java_through_the_whole_mesh() {
    for (consumer, provider) in [(Line::V27, Line::V33), (Line::V33, Line::V27)] {
        let here = Consuming::new();
        let there = Providing::start(provider, &here);
        let mut calls = here.start(consumer);
        there.is_registered(&here);
        let _witness = Witness([here.container.admin, there.container.admin]);
        make_calls(consumer, &mut calls);
        survives_its_sidecar(&mut calls, &here);
        make_calls(consumer, &mut calls);
    }
}

/// The sidecar dies under load. Java takes the connection for lost, and what it makes of that until it
/// has another is its own; bonder's sockets are there for that one at once. Others may need the
/// processor at that moment: of a few deaths, one shows what is possible.
#[track_caller]
fn survives_its_sidecar(consumer: &mut Consumer, here: &Consuming) {
    let pauses = [(); 3].map(|()| {
        consumer.gets("load 200", "200");
        until("load", WITHIN, || (answered(consumer) > 100).then_some(()));
        let dead = here.container.pid("proxy");
        kill(Pid::from_raw(dead), Signal::SIGKILL).expect("it ran");
        until("another sidecar", WITHIN, || {
            (here.container.pid("proxy") != dead).then_some(())
        });
        let before = answered(consumer);
        until("load goes on", WITHIN, || {
            (answered(consumer) > before + 100).then_some(())
        });
        let report = consumer.ask("unload");
        println!("sidecar killed: {report}");
        let (_, pause) = report.split_once("pause=").expect("a pause");
        let pause = pause.strip_suffix("ms").expect("milliseconds");
        pause.parse().expect("a number")
    });
    let best: u64 = pauses.into_iter().min().expect("three");
    assert!(best < 1000, "nobody was answered for {best} ms");
}

fn answered(consumer: &mut Consumer) -> u64 {
    let said = consumer.ask("answered");
    let count = said.strip_prefix("ok ").expect("an answer");
    count.parse().expect("a number")
}

#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn a_provider_that_is_stopped_with_its_sidecar_loses_no_call() {
    let here = Consuming::new();
    let mut consumer = here.start(Line::V33);
    let mut first = Providing::start(Line::V33, &here);
    first.is_registered(&here);
    let second = Providing::start(Line::V27, &here);
    second.is_registered(&here);
    let mut calls_well = || consumer.gets("hello w", "hello w from plain");
    (0..20).for_each(|_| calls_well());
    // Deregistered, drained, and then ended: nobody notices.
    first.provider.terminate();
    until("the end of the first provider", WITHIN, || {
        calls_well();
        (!first.provider.is_running()).then_some(())
    });
    (0..20).for_each(|_| calls_well());
    assert_eq!(here.registered().len(), 1);
}

/// What runs beside an application: bonder and its configuration.
struct Container {
    folder: TempDir,
    /// Where its bonder is asked.
    bonder: SocketAddr,
    /// Where its sidecar is.
    admin: SocketAddr,
}

impl Container {
    fn new(proxy: &str, bonder: &str) -> Self {
        let this = Self {
            folder: tempfile::tempdir().expect("a folder"),
            bonder: address(),
            admin: address(),
        };
        let proxy = format!("{proxy}admin: {{ listen: '{}' }}\n", this.admin);
        let bonder = format!(
            "http: {{ listen: '{}' }}\nproxy: proxy.yaml\n{bonder}",
            this.bonder
        );
        this.write("proxy.yaml", &proxy);
        this.write("bonder.yaml", &bonder);
        this
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("written");
    }

    /// What starts `application` in it.
    fn around(&self, application: &Command) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("bonder").arg("--config");
        command
            .arg(self.folder.path().join("bonder.yaml"))
            .arg("--");
        command
            .arg(application.get_program())
            .args(application.get_args());
        for (name, value) in application.get_envs() {
            command.env(name, value.expect("a value"));
        }
        command
    }

    /// The process of a child, once it is ready.
    #[track_caller]
    fn pid(&self, name: &str) -> i32 {
        until("a child that is ready", WITHIN, || {
            let status = http::get(self.bonder, "/v1/status").ok()?.body;
            let status: Value = serde_json::from_str(&status).expect("JSON");
            let mut children = status["children"].as_array().expect("children").iter();
            let child = children.find(|child| child["name"] == name)?;
            let pid = child["pid"].as_i64().filter(|_| child["ready"] == true)?;
            i32::try_from(pid).ok()
        })
    }
}

/// The consumer's container, with the pilot of all.
struct Consuming {
    container: Container,
    outbound: SocketAddr,
    /// The pilot's HTTP.
    pilot: SocketAddr,
}

impl Consuming {
    fn new() -> Self {
        let (xds, pilot, outbound) = (address(), address(), address());
        let proxy = format!(
            "node: {{ id: consumer, cluster: test }}
outbound: {{ listen: '{outbound}', own_addresses: false }}
xds: {{ servers: '{xds}' }}
dependencies: dependencies.json
"
        );
        let bonder = "pilot: pilot.yaml\ndependencies: [shop.Shop]\n";
        let container = Container::new(&proxy, bonder);
        let pilot_yaml = format!("xds: {{ listen: '{xds}' }}\nhttp: {{ listen: '{pilot}' }}\n");
        container.write("pilot.yaml", &pilot_yaml);
        Self {
            container,
            outbound,
            pilot,
        }
    }

    /// Starts it, with a consumer of `line` as its application.
    fn start(&self, line: Line) -> Consumer {
        Consumer::java_within(line, self.outbound, |mut java| {
            // Dubbo 3 looks a second later for an address that it lost, unless told otherwise.
            java.env(
                "JAVA_TOOL_OPTIONS",
                "-Ddubbo.reconnect.reconnectTaskPeriod=100",
            );
            self.container.around(&java)
        })
    }

    /// What the registry knows of the service.
    fn registered(&self) -> Vec<Value> {
        let page = http::get(self.pilot, "/v1/instances?service=shop.Shop").expect("a pilot");
        let page: Value = serde_json::from_str(&page.body).expect("JSON");
        page["instances"].as_array().expect("instances").clone()
    }
}

/// A provider's container.
struct Providing {
    provider: Provider,
    inbound: SocketAddr,
    container: Container,
}

impl Providing {
    /// Starts it, with a provider of `line` as its application.
    fn start(line: Line, consuming: &Consuming) -> Self {
        let (inbound, own) = (address(), address());
        let proxy = format!(
            "node: {{ id: provider, cluster: test }}
inbound: {{ listen: '{inbound}', provider: '{own}' }}
outbound: {{ listen: '{}', own_addresses: false }}
",
            address()
        );
        let services = ["shop.Shop", "g1/shop.Shop:1.0.0", "shop.LaterShop"];
        let provided = services.map(|key| format!("{{ service: '{key}', address: '{own}' }}"));
        let bonder = format!(
            "pilot: {{ address: '{}' }}\nadvertise: 127.0.0.1\nproviders: [{}]\n",
            consuming.pilot,
            provided.join(", ")
        );
        let container = Container::new(&proxy, &bonder);
        let provider = Provider::java_within(line, own, |java| container.around(&java));
        Self {
            provider,
            inbound,
            container,
        }
    }

    /// Waits until it stands in the registry: with its sidecar's address, and its own.
    #[track_caller]
    fn is_registered(&self, consuming: &Consuming) {
        let (at, own) = (
            self.inbound.to_string(),
            self.provider.address().to_string(),
        );
        let instance = until("a registration", WITHIN, || {
            let instances = consuming.registered();
            let mut instances = instances.into_iter();
            instances.find(|instance| instance["address"] == at.as_str())
        });
        let metadata = serde_json::json!({ "mesh": "true", "direct": own });
        assert_eq!(instance["metadata"], metadata, "{instance:#}");
    }
}

/// Where a call went that failed is known to the sidecars alone: says it while they still run.
struct Witness([SocketAddr; 2]);

impl Drop for Witness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for admin in self.0 {
            for page in ["/clusters", "/stats?usedonly"] {
                match http::get(admin, page) {
                    Ok(said) => eprintln!("--- {page} of {admin}\n{}", said.body),
                    Err(error) => eprintln!("--- {page} of {admin}: {error}"),
                }
            }
        }
    }
}

/// One of loopback that is free.
fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

const WITHIN: Duration = Duration::from_secs(60);
