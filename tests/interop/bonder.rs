//! Bonder with real children: how they start, die and end, what the proxy and the registry learn.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mesh_tests::http;
use mesh_tests::peer::{Listener, Peer, answer, frame, text};
use mesh_tests::process::Process;
use mesh_tests::proxy::{call, outbound};
use mesh_tests::wait::until;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use tempfile::TempDir;

use dubbo_proto::head::Kind;

const WITHIN: Duration = Duration::from_secs(30);

/// A bonder that runs, with a proxy and perhaps an application.
struct Bonder {
    process: Process,
    http: SocketAddr,
    /// The proxy's admin, as of its first start.
    admin: SocketAddr,
}

/// A folder with the configurations of a proxy and of bonder.
fn folder(proxy: &str, bonder: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("http: {{ listen: 127.0.0.1:0 }}\nproxy: proxy.yaml\n{bonder}");
    std::fs::write(folder.path().join("proxy.yaml"), proxy).expect("written");
    std::fs::write(folder.path().join("bonder.yaml"), text).expect("written");
    folder
}

/// A proxy without services.
fn idle() -> String {
    outbound(&[Listener::bind().address()], "")
}

fn command(folder: &Path, application: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command
        .args(["bonder", "--config"])
        .arg(folder.join("bonder.yaml"));
    if !application.is_empty() {
        command.arg("--").args(application);
    }
    command
}

impl Bonder {
    fn start(folder: &Path, application: &[&str]) -> Self {
        let mut process = Process::start("bonder", command(folder, application));
        let mut address = |prefix: &str| {
            process.expect("an address", WITHIN, |line| {
                line.strip_prefix(prefix)?.parse().ok()
            })
        };
        let http = address("bonder listening on ");
        let admin = address("admin listening on ");
        Self {
            process,
            http,
            admin,
        }
    }

    fn get(&self, path: &str) -> Value {
        let response = http::get(self.http, path).expect("an answer");
        serde_json::from_str(&response.body).expect("JSON")
    }

    /// What the status says of a child.
    fn child(&self, name: &str) -> Value {
        let status = self.get("/v1/status");
        let mut children = status["children"].as_array().expect("children").iter();
        let child = children.find(|child| child["name"] == name);
        child
            .unwrap_or_else(|| panic!("no {name}: {status}"))
            .clone()
    }

    /// Waits until all children are ready.
    fn ready(&self) {
        until("readiness", WITHIN, || {
            let response = http::get(self.http, "/ready").ok()?;
            (response.status == 200).then_some(())
        });
    }

    /// Where the proxy takes the calls of applications.
    fn outbound(&self) -> SocketAddr {
        let page = http::get(self.admin, "/listeners").expect("an answer").body;
        let line = page.lines().find(|line| line.contains("outbound"));
        let words = line
            .into_iter()
            .flat_map(|line| line.split([' ', '"', ',']));
        let mut addresses = words.filter_map(|word| {
            word.trim_start_matches("outbound::")
                .parse::<SocketAddr>()
                .ok()
        });
        addresses
            .next()
            .unwrap_or_else(|| panic!("no outbound in {page}"))
    }

    /// Ends it as a container is ended; its exit code.
    fn stop(self) -> Option<i32> {
        self.process.stop(WITHIN).code()
    }
}

/// Whether a process runs: one that waits to be reaped does not.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

fn send(pid: &Value, signal: Signal) {
    let pid = i32::try_from(pid.as_u64().expect("it runs")).expect("a pid");
    // It may be ending already.
    let _ = kill(Pid::from_raw(pid), signal);
}

#[test]
fn the_exit_code_is_the_applications() {
    for (application, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/no/such/program"], 127),
        (&["/"], 126),
    ] {
        let folder = folder(&idle(), "");
        let mut process = Process::start("bonder", command(folder.path(), application));
        assert_eq!(process.exit(WITHIN).code(), Some(code), "{application:?}");
    }
}

#[test]
fn nothing_is_launched_for_a_parent_that_is_gone() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["launch", "--parent", "4000000", "--", "echo", "launched"]);
    let mut process = Process::start("launch", command);
    assert_eq!(process.exit(WITHIN).code(), Some(126));
    assert!(
        !process.output().contains("launched"),
        "{}",
        process.output()
    );
}

#[test]
fn what_cannot_start_says_why_and_leaves_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let proxy = idle().replace(
        "outbound: { listen: 127.0.0.1:0",
        &format!("outbound: {{ listen: '{address}'"),
    );
    let folder = folder(&proxy, "");
    let mut process = Process::start("bonder", command(folder.path(), &["sleep", "1000"]));
    assert_eq!(process.exit(WITHIN).code(), Some(1));
    process.expect("the reason", WITHIN, |line| {
        line.contains("outbound.listen: cannot listen on")
            .then_some(())
    });
    let names = std::fs::read_dir(folder.path()).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(names.into_iter().all(|name| name != "bonder.sockets"));
}

/// The proxy's configuration is a pipe that nobody writes to.
#[test]
fn a_proxy_that_never_binds_is_not_waited_for_for_ever() {
    let folder = folder("", "limits: { ready_time: 100ms }");
    let proxy = folder.path().join("proxy.yaml");
    std::fs::remove_file(&proxy).expect("removed");
    mkfifo(&proxy, Mode::S_IRWXU).expect("a pipe");
    let mut process = Process::start("bonder", command(folder.path(), &["sleep", "1000"]));
    assert_eq!(process.exit(WITHIN).code(), Some(1));
    let said = process.output();
    assert!(
        said.contains("its sockets are not there after 100ms"),
        "{said}"
    );
}

/// Bonder and its children share one stream: with datagrams for it, each write is seen apart.
#[test]
fn what_processes_say_together_comes_in_whole_lines() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let proxy = idle().replace(
        "outbound: { listen: 127.0.0.1:0",
        &format!("outbound: {{ listen: '{address}'"),
    );
    let folder = folder(&proxy, "");
    let (said, stream) = UnixDatagram::pair().expect("a pair");
    let mut command = command(folder.path(), &["sleep", "1000"]);
    command.stderr(OwnedFd::from(stream));
    let ended = command.status().expect("it runs");
    drop(command);
    assert_eq!(ended.code(), Some(1));
    said.set_nonblocking(true).expect("set");
    let mut bytes = [0; 4096];
    let mut lines = Vec::new();
    while let Ok(count @ 1..) = said.recv(&mut bytes) {
        let line = String::from_utf8_lossy(&bytes[..count]).into_owned();
        assert!(line.ends_with('\n'), "{line:?} after {lines:#?}");
        lines.push(line);
    }
    let errors = lines.iter().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 2, "of bonder and of the proxy: {lines:#?}");
}

#[test]
fn one_folder_has_one_bonder() {
    let folder = folder(&idle(), "");
    let first = Bonder::start(folder.path(), &[]);
    let mut second = Process::start("second", command(folder.path(), &[]));
    assert_eq!(second.exit(WITHIN).code(), Some(1));
    assert!(
        second.output().contains("another bonder uses"),
        "{}",
        second.output()
    );
    first.ready();
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn an_application_that_crashes_at_once_is_started_again_and_again() {
    let folder = folder(&idle(), "restart: always");
    let bonder = Bonder::start(folder.path(), &["sh", "-c", "exit 3"]);
    until("restarts", WITHIN, || {
        let child = bonder.child("application");
        let again = child["restarts"].as_u64().is_some_and(|times| times >= 3);
        // The pause is a long one by now: the end does not meet it as it starts.
        let pauses = child["state"] == "pausing";
        (again && pauses && child["last_exit"] == "exit code 3").then_some(())
    });
    assert_eq!(bonder.child("proxy")["restarts"], 0);
    assert_eq!(bonder.stop(), Some(3));
}

#[test]
fn who_ignores_the_end_is_killed_with_whatever_it_started() {
    let script = "trap '' TERM; sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; \
                  (trap '' TERM; echo pid $$; exec sleep 1000) & echo pid $!; \
                  while :; do sleep 1000; done";
    let folder = folder(&idle(), "limits: { stop_time: 200ms }");
    let mut bonder = Bonder::start(folder.path(), &["sh", "-c", script]);
    let started: Vec<u64> = (0..4).map(|_| bonder.pid_line()).collect();
    assert_eq!(bonder.process_end(), Some(137));
    for pid in started {
        assert!(!runs(pid), "{pid} is left");
    }
}

#[test]
fn what_an_application_leaves_behind_ends_with_it() {
    let script = "sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; \
                  (trap '' TERM; exec sleep 1000) & echo pid $!; trap 'exit 7' TERM; echo up; wait";
    let folder = folder(&idle(), "limits: { stop_time: 1s }");
    let mut bonder = Bonder::start(folder.path(), &["sh", "-c", script]);
    let started: Vec<u64> = (0..3).map(|_| bonder.pid_line()).collect();
    bonder
        .process
        .expect("the trap", WITHIN, |line| (line == "up").then_some(()));
    assert_eq!(bonder.process_end(), Some(7));
    for pid in started {
        assert!(!runs(pid), "{pid} is left");
    }
}

#[test]
fn a_bonder_that_is_killed_leaves_no_child() {
    let folder = folder(&idle(), "");
    let mut bonder = Bonder::start(folder.path(), &["sleep", "1000"]);
    bonder.ready();
    let children = ["proxy", "application"].map(|name| bonder.child(name)["pid"].clone());
    bonder.process.signal(Signal::SIGKILL);
    bonder.process.exit(WITHIN);
    for pid in children {
        let pid = pid.as_u64().expect("it ran");
        until("its end", WITHIN, || (!runs(pid)).then_some(()));
    }
    // The next one is not held up by what is left.
    let again = Bonder::start(folder.path(), &[]);
    again.ready();
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn signals_reach_the_application() {
    let script = "trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'exit 9' QUIT; echo up; \
                  while :; do sleep 0.01; done";
    let folder = folder(&idle(), "");
    let mut bonder = Bonder::start(folder.path(), &["sh", "-c", script]);
    let mut says = |what: &str| {
        bonder
            .process
            .expect(what, WITHIN, |line| (line == what).then_some(()));
    };
    says("up");
    send(&Value::from(bonder.process.pid()), Signal::SIGUSR1);
    let mut says = |what: &str| {
        bonder
            .process
            .expect(what, WITHIN, |line| (line == what).then_some(()));
    };
    says("usr1");
    send(&Value::from(bonder.process.pid()), Signal::SIGHUP);
    bonder
        .process
        .expect("hup", WITHIN, |line| (line == "hup").then_some(()));
    bonder.process.signal(Signal::SIGQUIT);
    assert_eq!(bonder.process.exit(WITHIN).code(), Some(9));
}

/// A terminal that closes, or somebody who means the proxy.
#[test]
fn a_hangup_ends_nobody() {
    let folder = folder(&idle(), "pilot: pilot.yaml");
    let pilot = "xds: { listen: 127.0.0.1:0 }\nhttp: { listen: 127.0.0.1:0 }\n\
                 registries: [embedded: { path: registry.redb }]\n";
    std::fs::write(folder.path().join("pilot.yaml"), pilot).expect("written");
    let mut bonder = Bonder::start(folder.path(), &[]);
    bonder.ready();
    send(&bonder.child("pilot")["pid"], Signal::SIGHUP);
    bonder.process.signal(Signal::SIGHUP);
    bonder.process.expect("the proxy", WITHIN, |line| {
        line.contains("configuration read again").then_some(())
    });
    assert_eq!(bonder.process_end(), Some(0));
    let said = bonder.process.output();
    let mut ends = said.lines().filter(|line| line.contains(" ended child="));
    assert!(ends.all(|line| line.ends_with("exit code 0")), "{said}");
}

#[test]
#[ignore = "needs root; .ci/run runs it"]
fn the_first_process_of_a_container_reaps_all_and_hands_out_the_code() {
    let script = "i=0; while [ $i -lt 200 ]; do (sleep 0.01 &); i=$((i+1)); done; \
                  while grep -qs '^Name:.sleep\\|^State:.Z' /proc/[0-9]*/status; do :; done; exit 5";
    let folder = folder(&idle(), "");
    let inner = command(folder.path(), &["sh", "-c", script]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let mut process = Process::start("container", command);
    assert_eq!(process.exit(WITHIN).code(), Some(5));
}

#[test]
fn nobody_is_refused_while_the_proxy_is_killed() {
    let folder = folder(&idle(), "");
    let bonder = Bonder::start(folder.path(), &[]);
    bonder.ready();
    let address = bonder.outbound();
    let (stop, served) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // One that a proxy took just before it was killed is lost with it.
                    if heartbeat(address) {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 1..=3 {
            let before = bonder.child("proxy");
            send(&before["pid"], Signal::SIGKILL);
            until("another proxy", WITHIN, || {
                let now = bonder.child("proxy");
                (now["restarts"] == round && now["ready"] == true).then_some(())
            });
            let seen = served.load(Ordering::Relaxed);
            until("service", WITHIN, || {
                (served.load(Ordering::Relaxed) > seen + 10).then_some(())
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(bonder.stop(), Some(0));
    assert!(TcpStream::connect(address).is_err(), "closed in the end");
}

/// A terminal that is stopped, or a collector of logs that hangs.
#[test]
fn a_reader_who_does_not_read_holds_up_nobody() {
    let folder = folder(&format!("{}logging: {{ level: off }}\n", idle()), "");
    let path = folder.path().join("output");
    mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
    let inner = command(folder.path(), &[]);
    let mut command = Command::new("sh");
    let script = "exec \"$0\" \"$@\" > output 2>&1";
    command.current_dir(folder.path()).args(["-c", script]);
    command.arg(inner.get_program()).args(inner.get_args());
    // Both ends, so that it opens at once.
    let mut options = File::options();
    let pipe = options.read(true).write(true).open(&path).expect("opened");
    let process = Process::start("bonder", command);
    let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
    let mut address = |prefix: &str| {
        let mut found = lines
            .by_ref()
            .filter_map(|line| line.strip_prefix(prefix)?.parse().ok());
        found.next().expect("an address")
    };
    let bonder = Bonder {
        process,
        http: address("bonder listening on "),
        admin: address("admin listening on "),
    };
    bonder.ready();
    let mut full = File::options();
    full.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut full = full.open(&path).expect("opened");
    while full.write(&[b'x'; 64]).is_ok() {}
    for round in 1..=2 {
        send(&bonder.child("proxy")["pid"], Signal::SIGKILL);
        until("another proxy", WITHIN, || {
            let now = bonder.child("proxy");
            (now["restarts"] == round && now["ready"] == true).then_some(())
        });
    }
    assert_eq!(bonder.stop(), Some(0));
}

#[test]
fn who_comes_while_the_proxy_drains_is_refused_at_once() {
    let provider = Listener::bind();
    let folder = folder(&outbound(&[provider.address()], ""), "");
    let mut bonder = Bonder::start(folder.path(), &[]);
    bonder.ready();
    let address = bonder.outbound();
    let mut consumer = Peer::connect(address);
    consumer.send(&call(1, "hello"));
    let mut provider = provider.accept();
    let asked = provider.receive_call();
    bonder.process.signal(Signal::SIGTERM);
    until("refusal", WITHIN, || TcpStream::connect(address).err());
    // The call that was in flight is still, and so the proxy was there all the while.
    provider.send(&answer(asked.head.id, "fine"));
    assert_eq!(text(&consumer.receive_call()), "fine");
    assert_eq!(bonder.process.exit(WITHIN).code(), Some(0));
}

/// Whether a proxy answers a heartbeat on a new connection.
///
/// # Panics
/// If the connection is refused.
fn heartbeat(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).expect("nobody is refused");
    let asked = frame(Kind::Event { two_way: true }, 1, b"N");
    stream.set_read_timeout(Some(WITHIN)).expect("an option");
    let mut head = [0; 16];
    stream.write_all(&asked).is_ok() && stream.read_exact(&mut head).is_ok()
}

#[test]
fn what_is_declared_survives_a_bonder_that_is_killed() {
    let folder = folder(&idle(), "dependencies: [com.foo.Fixed]");
    let mut bonder = Bonder::start(folder.path(), &[]);
    let document =
        "{\"client\":\"shop\",\"pid\":4000000,\"ttl_s\":60,\"services\":[\"com.foo.Shop:1.0.0\"]}";
    let response = http::send(bonder.http, "PUT", "/v1/dependencies", document).expect("an answer");
    assert_eq!(response.status, 200, "{}", response.body);
    bonder.process.signal(Signal::SIGKILL);
    bonder.process.exit(WITHIN);
    let file = std::fs::read(folder.path().join("dependencies.json")).expect("a file");
    let file: Value = serde_json::from_slice(&file).expect("whole");
    let both = serde_json::json!(["com.foo.Fixed", "com.foo.Shop:1.0.0"]);
    assert_eq!(
        (&file["version"], &file["services"]),
        (&Value::from(1), &both)
    );
    let again = Bonder::start(folder.path(), &[]);
    assert_eq!(again.get("/v1/dependencies")["services"], both);
    let refused = http::send(
        again.http,
        "PUT",
        "/v1/dependencies",
        "{\"client\":\"shop\"}",
    );
    assert_eq!(refused.expect("an answer").status, 400);
    assert_eq!(again.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_sdk_is_heard() {
    let folder = folder(&idle(), "");
    let bonder = Bonder::start(folder.path(), &[]);
    let client = thin_sdk::Client::builder()
        .sidecar(bonder.outbound())
        .admin(None)
        .bonder(Some(bonder.http))
        .name("the test")
        .build();
    let client = client.expect("a client");
    client.declare(["com.foo.Shop:1.0.0"]).expect("a key");
    let document = until("the declaration", WITHIN, || {
        let declared = bonder.get("/v1/dependencies");
        declared["clients"].get(0).cloned()
    });
    assert_eq!(document["client"], "the test");
    assert_eq!(document["pid"], std::process::id());
    assert_eq!(
        document["services"],
        serde_json::json!(["com.foo.Shop:1.0.0"])
    );
    assert_eq!(bonder.stop(), Some(0));
}

#[test]
fn a_provider_is_registered_while_it_serves_and_taken_out_first() {
    let (mut provider, address) = provider();
    let (pilot, requests) = pilot();
    let proxy = format!(
        "inbound: {{ listen: 127.0.0.1:0, provider: '{address}' }}\n{}",
        idle()
    );
    let more = format!(
        "pilot: {{ address: '{pilot}' }}\nadvertise: 127.0.0.1\n\
         providers: [{{ service: com.foo.Shop:1.0.0, address: '{address}', metadata: {{ zone: a }} }}]"
    );
    let folder = folder(&proxy, &more);
    let bonder = Bonder::start(folder.path(), &[]);
    let (method, put) = requests.recv_timeout(WITHIN).expect("a registration");
    let instance = &put[0];
    assert_eq!(method, "PUT /v1/instances");
    assert_eq!(instance["service"], "com.foo.Shop:1.0.0");
    let metadata =
        serde_json::json!({ "mesh": "true", "direct": address.to_string(), "zone": "a" });
    assert_eq!(
        (&instance["metadata"], &instance["ttl_s"]),
        (&metadata, &Value::from(30))
    );
    // It is the sidecar that listens there, and answers.
    let at: SocketAddr = instance["address"]
        .as_str()
        .expect("text")
        .parse()
        .expect("an address");
    assert!(at != address && heartbeat(at));
    provider.signal(Signal::SIGKILL);
    let (method, removed) = requests.recv_timeout(WITHIN).expect("a removal");
    assert_eq!(method, "DELETE /v1/instances");
    let place = serde_json::json!([{ "service": "com.foo.Shop:1.0.0", "address": at.to_string() }]);
    assert_eq!(removed, place);
    // Another one, told by a process.
    let (_other, address) = self::provider();
    let document = format!(
        "{{\"client\":\"shop\",\"pid\":1,\"ttl_s\":60,\"services\":\
         [{{\"service\":\"com.foo.Shop:1.0.0\",\"address\":\"{address}\"}}]}}"
    );
    let response = http::send(bonder.http, "PUT", "/v1/providers", &document).expect("an answer");
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(
        requests.recv_timeout(WITHIN).expect("a registration").0,
        "PUT /v1/instances"
    );
    assert_eq!(bonder.stop(), Some(0));
    // Leases may have been renewed before.
    while requests.recv_timeout(WITHIN).expect("deregistered").0 != "DELETE /v1/instances" {}
}

/// A provider that serves.
fn provider() -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args([
        "provider",
        "--listen",
        "127.0.0.1:0",
        "--service",
        "com.foo.Shop:1.0.0",
    ]);
    let mut process = Process::start("provider", command);
    let address = process.expect("its address", WITHIN, |line| {
        line.strip_prefix("listening on ")?.parse().ok()
    });
    (process, address)
}

/// A pilot that takes whatever it is told: each request, and its document.
fn pilot() -> (SocketAddr, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (sender, requests) = mpsc::sync_channel(64);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a request");
            let (mut bytes, mut byte) = (Vec::new(), [0]);
            while !bytes.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                bytes.extend(byte);
            }
            let head = String::from_utf8(bytes).expect("text").to_lowercase();
            let len = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; len.map_or(0, |len| len.parse().expect("a number"))];
            stream.read_exact(&mut body).expect("a body");
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).expect("written");
            let line = head
                .lines()
                .next()
                .unwrap_or_default()
                .replace(" http/1.1", "");
            let (method, path) = line.split_once(' ').expect("a request line");
            let document = serde_json::from_slice(&body).expect("JSON");
            // The test may have seen enough.
            let _ = sender.send((format!("{} {path}", method.to_uppercase()), document));
        }
    });
    (address, requests)
}

impl Bonder {
    /// The next process id that the application tells.
    fn pid_line(&mut self) -> u64 {
        self.process.expect("a pid", WITHIN, |line| {
            line.strip_prefix("pid ")?.parse().ok()
        })
    }

    /// As [`Self::stop`], of one whose output was read.
    fn process_end(&mut self) -> Option<i32> {
        self.process.signal(Signal::SIGTERM);
        self.process.exit(WITHIN).code()
    }
}
