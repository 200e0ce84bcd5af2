//! `dubbo-mesh demo` as a newcomer runs it, interrupted, and killed.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mesh_tests::http;
use mesh_tests::process::Process;
use mesh_tests::wait::until;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::evaluate::{left_behind, running};
use crate::sidecar::PROGRAM;

#[test]
fn the_demo_loses_nothing_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, report] = ["figures.json", "report.html"].map(|name| folder.path().join(name));
    let ran = demo(folder.path())
        .args(["--duration", "3s", "--json"])
        .arg(&file)
        .arg("--report")
        .arg(&report)
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{printed}{ran:?}");
    for act in [
        "a provider is killed",
        "the sidecar is killed",
        "the pilot is killed",
        "a service that nobody declared is called",
        "page of 21 calls",
    ] {
        assert!(printed.contains(act), "no {act:?} in {printed}");
    }
    let told = fs::read(&file).expect("figures");
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(told["failed"], 0, "{told:#}");
    let payments = &told["non_idempotent"];
    for none in ["failed_otherwise", "run_twice", "never_run"] {
        assert_eq!(payments[none], 0, "{told:#}");
    }
    let number = |name: &str| payments[name].as_u64().expect("a number");
    let failed = number("failed") - number("failed_unaware");
    assert!(failed <= number("in_flight_at_kill"), "{told:#}");
    let positive = |path: &str| {
        let number = told.pointer(path).and_then(Value::as_f64);
        assert!(number > Some(0.0), "{path} in {told:#}");
    };
    for path in ["/calls", "/direct_calls", "/non_idempotent/calls"] {
        positive(path);
    }
    for path in ["/switch_ms", "/back_ms", "/first_undeclared_call_ms"] {
        positive(path);
    }
    for way in ["direct", "mesh"] {
        positive(&format!("/page_rt_ms/{way}/p50"));
        positive(&format!("/page_rt_ms/{way}/p99"));
        positive(&format!("/cpu_us_per_call/app_{way}"));
        positive(&format!("/cpu_us_per_call/provider_{way}"));
    }
    positive("/cpu_us_per_call/proxy");
    let page = fs::read_to_string(&report).expect("a report");
    for part in ["<svg", "the sidecar is killed", "switch_ms"] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    assert_eq!(running(folder.path()), 0);
    let mut left = left_behind(folder.path());
    left.sort();
    assert_eq!(left, ["figures.json", "report.html"]);
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = under_load(folder.path());
        process.signal(signal);
        assert!(!process.exit(WITHIN).success());
        let said = process.output();
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(running(folder.path()), 0);
        assert_eq!(left_behind(folder.path()), [""; 0]);
    }
}

#[test]
fn a_demo_that_is_kept_runs_on_until_it_is_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = demo(folder.path());
    command.args(["--duration", "3s", "--keep"]);
    let mut process = Process::start("demo", command);
    let application: SocketAddr = process.expect("its address", WITHIN, |line| {
        let address = line.strip_prefix("  application  http://")?;
        address.strip_suffix("/report")?.parse().ok()
    });
    process.expect("its figures", WITHIN, |line| {
        line.contains("everything runs on").then_some(())
    });
    let calls = || {
        let page = http::get(application, "/report").ok()?;
        serde_json::from_str::<Value>(&page.body).ok()?["calls"].as_u64()
    };
    let before = calls().expect("a number");
    until("more calls", WITHIN, || {
        calls().filter(|calls| *calls > before)
    });
    process.signal(Signal::SIGINT);
    assert!(process.exit(WITHIN).success(), "{}", process.output());
    assert_eq!(running(folder.path()), 0);
    assert_eq!(left_behind(folder.path()), [""; 0]);
}

#[test]
fn a_killed_demo_leaves_no_process_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = under_load(folder.path());
    process.signal(Signal::SIGKILL);
    process.exit(WITHIN);
    until("the end of all", WITHIN, || {
        (running(folder.path()) == 0).then_some(())
    });
}

/// One that makes its load.
fn under_load(folder: &Path) -> Process {
    let mut command = demo(folder);
    command.args(["--duration", "60s"]);
    let mut process = Process::start("demo", command);
    process.expect("its load", WITHIN, |line| {
        line.contains("load: ").then_some(())
    });
    // Itself, two providers, bonder, pilot, proxy, application.
    assert_eq!(running(folder), 7);
    process
}

/// With `folder` for everything temporary, by which its processes are known too.
fn demo(folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("demo").env("TMPDIR", folder);
    command
}

const WITHIN: Duration = Duration::from_secs(60);
