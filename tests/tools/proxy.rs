//! The proxy as a process: its options, its signals, and the admin pages that steer it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dubbo_proto::head::Kind;
use mesh_tests::http;
use mesh_tests::peer::{Listener, Peer, answer, text};
use mesh_tests::process::Process;
use mesh_tests::proxy::{call, outbound};
use mesh_tests::wait::until;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::WITHIN;

/// A proxy before one scripted provider, both connected, and an application.
struct Trio {
    proxy: Process,
    admin: SocketAddr,
    outbound: SocketAddr,
    application: Peer,
    provider: Peer,
    _listener: Listener,
    _folder: TempDir,
}

impl Trio {
    fn new(more: &str) -> Self {
        let (folder, listener) = (tempfile::tempdir().expect("a folder"), Listener::bind());
        let file = folder.path().join("proxy.yaml");
        std::fs::write(&file, outbound(&[listener.address()], more)).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
        command.args(["proxy", "--config"]).arg(&file);
        let mut proxy = Process::start("proxy", command);
        let admin: SocketAddr = proxy.expect("its admin", WITHIN, |line| {
            line.strip_prefix("admin listening on ")?.parse().ok()
        });
        let listeners = page(admin, "/listeners");
        let outbound = listeners.trim().strip_prefix("outbound::");
        let outbound = outbound.and_then(|address| address.parse().ok());
        let outbound = outbound.unwrap_or_else(|| panic!("one listener: {listeners}"));
        let provider = listener.accept();
        Self {
            proxy,
            admin,
            outbound,
            application: Peer::connect(outbound),
            provider,
            _listener: listener,
            _folder: folder,
        }
    }

    /// A call that goes there and back.
    #[track_caller]
    fn works(&mut self, id: u64) {
        self.application.send(&call(id, "find"));
        let seen = self.provider.receive_call();
        self.provider.send(&answer(seen.head.id, "world"));
        assert_eq!(text(&self.application.receive_call()), "world");
    }

    /// READONLY, which says that the proxy drains.
    #[track_caller]
    fn expect_read_only(&mut self) {
        let notice = self.application.receive();
        assert_eq!(notice.head.kind, Kind::Event { two_way: false });
        assert_eq!(&notice.body[..], b"\x01R");
    }
}

/// What the admin shows at `path`.
#[track_caller]
fn page(admin: SocketAddr, path: &str) -> String {
    let page = http::get(admin, path).expect("an admin");
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    page.body
}

#[track_caller]
fn post(admin: SocketAddr, path: &str) -> (u16, String) {
    let done = http::post(admin, path).expect("an admin");
    (done.status, done.body)
}

fn run(config: &Path, option: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["proxy", "--config"]).arg(config).arg(option);
    command.output().expect("it runs")
}

#[test]
fn a_configuration_is_checked_and_printed_and_nothing_is_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| -> PathBuf {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    };
    write("token", "s3cret");
    // Nobody could listen there.
    let good = "outbound: { listen: 203.0.113.7:1 }\nadmin: { token_file: token }\n";
    let good = write("good.yaml", good);
    let checked = run(&good, "--check");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(
        (checked.status.code(), said.trim().ends_with(": good")),
        (Some(0), true)
    );
    let printed = run(&good, "--print-config");
    let effective = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert_eq!(printed.status.code(), Some(0));
    assert!(effective.contains("max_body: 8MiB"), "{effective}");
    assert!(!effective.contains("s3cret"), "{effective}");
    let again = run(&write("again.yaml", &effective), "--print-config");
    assert_eq!(String::from_utf8_lossy(&again.stdout), effective);

    let wrong = write("wrong.yaml", "workers: 0\noutbound:\n  listen: here\n");
    for option in ["--check", "--print-config"] {
        let refused = run(&wrong, option);
        assert_eq!(refused.status.code(), Some(1), "{option}");
        let said = String::from_utf8_lossy(&refused.stderr);
        for what in [
            "1:1: workers: 0 is out of range; write 1 to 64",
            "3:3: outbound.listen: \"here\"",
        ] {
            let told = format!("{}:{what}", wrong.display());
            assert!(said.contains(&told), "{option}: no {told} in {said}");
        }
    }
}

#[test]
fn the_first_signal_drains_and_the_second_ends_at_once() {
    let mut trio = Trio::new("limits: { drain_time: 1h }\n");
    trio.application.send(&call(1, "find"));
    trio.provider.receive_call();
    trio.proxy.signal(Signal::SIGTERM);
    trio.expect_read_only();
    assert!(trio.proxy.is_running(), "a call is in flight");
    assert_eq!(
        http::get(trio.admin, "/ready").expect("an admin").status,
        503
    );
    trio.proxy.signal(Signal::SIGTERM);
    assert_eq!(trio.proxy.exit(WITHIN).code(), Some(0));
}

#[test]
fn listeners_are_drained_by_themselves_and_quitting_ends_the_rest() {
    let mut trio = Trio::new("");
    trio.application.send(&call(1, "find"));
    let seen = trio.provider.receive_call();
    assert_eq!(post(trio.admin, "/drain_listeners"), (200, "OK\n".into()));
    trio.expect_read_only();
    until("nobody to listen", WITHIN, || {
        TcpStream::connect(trio.outbound).is_err().then_some(())
    });
    trio.provider.send(&answer(seen.head.id, "world"));
    assert_eq!(text(&trio.application.receive_call()), "world");
    let ready = http::get(trio.admin, "/ready").expect("an admin");
    assert_eq!((ready.status, &*ready.body), (503, "DRAINING\n"));
    assert!(trio.proxy.is_running(), "until it is told to end");
    assert_eq!(post(trio.admin, "/quitquitquit"), (200, "OK\n".into()));
    assert_eq!(trio.proxy.exit(WITHIN).code(), Some(0));
}

#[test]
fn the_log_tells_more_once_it_is_asked_to() {
    let mut trio = Trio::new("");
    assert_eq!(page(trio.admin, "/logging"), "info\n");
    assert_eq!(
        post(trio.admin, "/logging?level=dubbo_proxy=debug"),
        (200, "dubbo_proxy=debug\n".into())
    );
    assert_eq!(page(trio.admin, "/logging"), "dubbo_proxy=debug\n");
    trio.application.send(&call(1, "save"));
    trio.provider.receive_call();
    trio.provider.reset();
    trio.proxy.expect("the call that failed", WITHIN, |line| {
        let failed = line.contains("call failed") && line.contains("UC upstream connection lost");
        failed.then_some(())
    });
    let log = trio.proxy.output();
    assert!(
        !log.contains('\x1b'),
        "no colours where nobody looks: {log}"
    );
}

#[test]
fn a_hangup_reads_the_configuration_again_and_touches_no_connection() {
    let mut trio = Trio::new("");
    trio.works(1);
    trio.proxy.signal(Signal::SIGHUP);
    until("a reload", WITHIN, || {
        let reloads = page(
            trio.admin,
            "/stats?filter=mesh_config_reloads_total&usedonly",
        );
        (reloads == "mesh_config_reloads_total{result=\"done\"}: 1\n").then_some(())
    });
    trio.works(2);
}
