//! The pilot as a process: its options, its end, and what a crash leaves in its registry.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use mesh_tests::http;
use mesh_tests::process::Process;
use mesh_tests::wait::until;
use nix::sys::signal::Signal;

use super::WITHIN;

fn pilot(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["pilot", "--config"]).arg(config);
    command
}

/// One that serves, and where.
fn start(config: &Path) -> (Process, SocketAddr) {
    let mut process = Process::start("pilot", pilot(config));
    let http = process.expect("its HTTP", WITHIN, |line| {
        line.strip_prefix("http listening on ")?.parse().ok()
    });
    (process, http)
}

fn configure(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("pilot.yaml");
    std::fs::write(
        &file,
        "http: { listen: 127.0.0.1:0 }\nxds: { listen: 127.0.0.1:0 }",
    )
    .expect("written");
    file
}

fn instance(port: u16, more: &str) -> String {
    format!(r#"{{"service":"com.foo.A:1.0.0","address":"10.0.0.1:{port}"{more}}}"#)
}

/// What is registered, as it is shown.
fn registered(http: SocketAddr) -> String {
    let page = http::get(http, "/v1/instances?service=com.foo.A:1.0.0").expect("a pilot");
    assert_eq!(page.status, 200, "{}", page.body);
    page.body
}

#[test]
fn what_was_answered_survives_a_kill_in_the_middle_of_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = configure(folder.path());
    let last = AtomicU16::new(0);
    for round in 0..3_u16 {
        let (mut process, http) = start(&config);
        let before = last.load(Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                for port in before + 1.. {
                    // A list is whole or not there at all: ports and their twins.
                    let body = format!("[{},{}]", instance(port, ""), instance(40_000 + port, ""));
                    match http::send(http, "PUT", "/v1/instances", &body) {
                        Ok(answer) if answer.status == 200 => last.store(port, Ordering::Relaxed),
                        _ => return,
                    }
                }
            });
            until("writes", WITHIN, || {
                (last.load(Ordering::Relaxed) > before + 20 + round).then_some(())
            });
            process.signal(Signal::SIGKILL);
        });
        let (process, http) = start(&config);
        let (found, answered) = (registered(http), last.load(Ordering::Relaxed));
        let has = |port: u16| found.contains(&format!("\"10.0.0.1:{port}\""));
        for port in 1..=answered {
            assert!(has(port) && has(40_000 + port), "{port} of {answered}");
        }
        // The one that was not answered may be there, but whole.
        assert_eq!(has(answered + 1), has(40_001 + answered));
        assert!(!has(answered + 2));
        // Otherwise the next round would begin with one that is there.
        last.store(answered + 1, Ordering::Relaxed);
        let body = format!(
            "[{},{}]",
            instance(answered + 1, ""),
            instance(40_001 + answered, "")
        );
        http::send(http, "PUT", "/v1/instances", &body).expect("put");
        assert!(process.stop(WITHIN).success());
    }
}

#[test]
fn leases_run_on_from_a_restart_and_end_if_nobody_renews_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = configure(folder.path());
    let (mut process, http) = start(&config);
    let leased = instance(1, r#","ttl_s":1"#);
    let put = http::send(http, "PUT", "/v1/instances", &leased).expect("a pilot");
    assert_eq!(put.status, 200, "{}", put.body);
    process.signal(Signal::SIGKILL);
    process.exit(WITHIN);
    let (process, http) = start(&config);
    assert!(
        registered(http).contains("10.0.0.1:1"),
        "it was away, the instance was not"
    );
    until("the end of the lease", WITHIN, || {
        (!registered(http).contains("10.0.0.1:1")).then_some(())
    });
    assert!(process.stop(WITHIN).success());
}

#[test]
fn it_says_what_is_wrong_and_two_never_share_a_registry() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = configure(folder.path());
    let output = |more: &[&str]| -> Output { pilot(&config).args(more).output().expect("it runs") };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let checked = output(&["--check"]);
    assert!(checked.status.success() && text(&checked.stdout).ends_with("pilot.yaml: good\n"));
    let printed = text(&output(&["--print-config"]).stdout);
    assert!(
        printed.contains("registry.redb") && printed.contains("info"),
        "{printed}"
    );

    let (process, _) = start(&config);
    let second = output(&[]);
    let said = text(&second.stderr);
    assert!(
        !second.status.success() && said.contains("another process has it open"),
        "{said}"
    );
    assert!(process.stop(WITHIN).success());

    std::fs::write(&config, "htp: {}").expect("written");
    let wrong = output(&["--check"]);
    let said = text(&wrong.stderr);
    assert!(
        !wrong.status.success() && said.contains("pilot.yaml:1:1: unknown field"),
        "{said}"
    );
}
