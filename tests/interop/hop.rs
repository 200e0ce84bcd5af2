//! What one hop through the sidecar costs, as ratios within one run, and how it bears load.
//!
//! Loader and provider share one core, what stands between them has the other, unless a test says
//! otherwise.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use mesh_tests::process::{Process, free_port};
use mesh_tests::tcp::{self, State};
use mesh_tests::wait::until;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::load::{Load, number, provide};
use crate::sidecar::{Sidecar, service};

/// 128 bytes, 100 in flight on one connection: calls a second beside those of a direct connection.
/// The sidecar shares the core of its application, the provider has another, as it has elsewhere.
#[test]
#[ignore = "measures: needs two quiet cores; .ci/run runs it"]
fn calls_per_second_are_two_fifths_of_direct_ones() {
    let course = Course {
        application: BETWEEN,
        ..Course::new()
    };
    let through = course.sidecar.address().to_string();
    let told = course.load(
        course.provider.address,
        &[
            "--compare",
            &through,
            "--rounds",
            "5",
            "--duration",
            "2s",
            "--concurrency",
            "100",
        ],
    );
    let ratio = number(&told["ratios"]["calls_per_s"]);
    assert!(
        ratio >= 0.4,
        "{ratio:.2} of the direct calls a second\n{told:#}"
    );
    assert_eq!(course.upstream_connections(), 1);
}

#[test]
#[ignore = "measures: needs two quiet cores and HAProxy; .ci/run runs it"]
fn a_call_costs_at_most_half_as_much_again_as_through_haproxy() {
    let course = Course::new();
    let haproxy = HaProxy::new(course.provider.address);
    let (theirs, ours) = (haproxy.process.pid(), course.sidecar.process().pid());
    let told = course.load(
        haproxy.address,
        &[
            "--compare",
            &course.sidecar.address().to_string(),
            "--rounds",
            "5",
            "--duration",
            "2s",
            "--concurrency",
            "100",
            "--cpu-of",
            &theirs.to_string(),
            "--cpu-of",
            &ours.to_string(),
        ],
    );
    let cost = |target: usize, pid: u32| {
        number(&told["medians"][target]["figures"][format!("cpu_of_{pid}_us_per_call")])
    };
    let (theirs, ours) = (cost(0, theirs), cost(1, ours));
    assert!(
        ours <= 1.5 * theirs,
        "{ours:.3} us a call, HAProxy {theirs:.3}\n{told:#}"
    );
}

#[test]
#[ignore = "measures: needs two quiet cores; .ci/run runs it"]
fn an_even_stream_of_calls_loses_none() {
    let course = Course::new();
    for rate in ["20000", "50000"] {
        course.load(
            course.sidecar.address(),
            &["--rate", rate, "--duration", "5s"],
        );
    }
    assert_eq!(course.upstream_connections(), 1);
}

/// Of the hundred calls in flight when the provider is killed some may have run, and only they
/// fail: those that come while it is away wait for it.
#[test]
#[ignore = "measures: needs two quiet cores; .ci/run runs it"]
fn a_killed_provider_fails_only_the_calls_that_it_had() {
    let mut course = Course::new();
    let loader = course.loader(
        course.sidecar.address(),
        &["--concurrency", "100", "--duration", "6s", "--allow-errors"],
    );
    for _ in 0..2 {
        course.provider.works();
        course.provider.restart();
    }
    course.provider.works();
    let told = loader.figures();
    let failures = told["rounds"][0]["failures"].as_object().expect("failures");
    let failed: u64 = failures
        .values()
        .map(|n| n.as_u64().expect("a count"))
        .sum();
    assert!(
        (1..=200).contains(&failed),
        "{failed} calls failed\n{told:#}"
    );
    assert!(
        failures.keys().all(|kind| kind == "status 80 UC"),
        "{told:#}"
    );
}

/// A thousand connections, a hundred calls on each, and then nothing. What stays is the pools' share.
#[test]
#[ignore = "measures: needs two quiet cores; .ci/run runs it"]
fn memory_returns_after_a_burst() {
    let course = Course::new();
    let sidecar = course.sidecar.process();
    let idle = sidecar.resident();
    assert!(idle <= 15 * MIB, "{} KiB idle", idle / 1024);
    course.load(
        course.sidecar.address(),
        &[
            "--connections",
            "1000",
            "--concurrency",
            "1000",
            "--serial",
            "100",
            "--duration",
            "1s",
        ],
    );
    let mut least = u64::MAX;
    let returned = || {
        least = least.min(sidecar.resident());
        (least <= idle + 8 * MIB).then_some(())
    };
    until("memory given back", PATIENCE, returned);
}

/// Provider and sidecar, on a core each.
struct Course {
    /// The core of the loader.
    application: &'static str,
    provider: Provider,
    sidecar: Sidecar,
}

impl Course {
    fn new() -> Self {
        let provider = Provider::new();
        let sidecar = Sidecar::outbound(&service(SERVICE, &[provider.address]));
        pin(sidecar.process(), BETWEEN);
        Self {
            application: ENDS,
            provider,
            sidecar,
        }
    }

    /// Runs the loader, which has to succeed, and returns what it tells.
    #[track_caller]
    fn load(&self, target: SocketAddr, options: &[&str]) -> Value {
        self.loader(target, options).figures()
    }

    fn loader(&self, target: SocketAddr, options: &[&str]) -> Load {
        let place = |command| pinned(&command, self.application);
        Load::start(target, SERVICE, options, place)
    }

    /// Connections that the provider has now; the loader's own are gone when it is.
    fn upstream_connections(&self) -> usize {
        let to_provider = |socket: &&tcp::Socket| {
            socket.local == self.provider.address && socket.state == State::Established
        };
        tcp::sockets().iter().filter(to_provider).count()
    }
}

/// Our own provider, always at the same address.
struct Provider {
    process: Process,
    address: SocketAddr,
}

impl Provider {
    fn new() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        Self {
            process: Self::start(address),
            address,
        }
    }

    fn start(address: SocketAddr) -> Process {
        provide(address, |command| pinned(&command, ENDS))
    }

    /// Kills it and starts another in its place.
    fn restart(&mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.exit(PATIENCE);
        self.process = Self::start(self.address);
    }

    /// Waits until it has been busy with calls for a while.
    fn works(&self) {
        let before = self.process.cpu();
        let busy = Duration::from_millis(200);
        until("busy provider", PATIENCE, || {
            (self.process.cpu() >= before + busy).then_some(())
        });
    }
}

/// HAProxy with one thread, relaying bytes.
struct HaProxy {
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl HaProxy {
    fn new(provider: SocketAddr) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("haproxy.cfg");
        let config = format!(
            "global\n  nbthread 1\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen relay\n  bind {address}\n  server provider {provider}\n"
        );
        fs::write(&path, config).expect("a file");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(path);
        let mut process = Process::start("HAProxy", pinned(&command, BETWEEN));
        until("listening HAProxy", PATIENCE, || {
            assert!(process.is_running(), "{}", process.output());
            std::net::TcpStream::connect(address).ok()
        });
        Self {
            process,
            address,
            _folder: folder,
        }
    }
}

/// `command` on one core.
fn pinned(command: &Command, core: &str) -> Command {
    let mut taskset = Command::new("taskset");
    taskset
        .args(["-c", core])
        .arg(command.get_program())
        .args(command.get_args());
    taskset
}

/// Moves all threads of a running process to one core.
fn pin(process: &Process, core: &str) {
    let pid = process.pid().to_string();
    let output = Command::new("taskset")
        .args(["-a", "-p", "-c", core, &pid])
        .output();
    let output = output.expect("util-linux is installed");
    assert!(output.status.success(), "{output:?}");
}

const SERVICE: &str = "shop.Hop";
/// The core of what is measured.
const BETWEEN: &str = "0";
/// The core of loader and provider.
const ENDS: &str = "1";
const MIB: u64 = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);
