//! The provider, the loader and the proxy, as processes.

mod discovery;
mod mesh;
mod pilot;
mod proxy;
mod sockets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dubbo_proto::event::{self, Event};
use dubbo_proto::frame::{self, Limits};
use dubbo_proto::head::{Kind, RequestId, Serialization, Status};
use dubbo_proto::invocation;
use dubbo_proto::mux::{Config, Server};
use dubbo_proto::reply;
use mesh_tests::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(20);

fn provider(arguments: &[&str]) -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command
        .args(["provider", "--listen", "127.0.0.1:0"])
        .args(arguments);
    let mut process = Process::start("provider", command);
    let address = process.expect("its address", WITHIN, |line| {
        line.strip_prefix("listening on ")?.parse().ok()
    });
    (process, address)
}

/// Runs a load; its exit code, its figures, and what it printed.
fn load(arguments: &[&str]) -> (Option<i32>, Value, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let file_name = file.to_str().expect("UTF-8");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["load", "--json", file_name]).args(arguments);
    for (option, value) in [
        ("--service", "com.foo.Greeter:1.0.0"),
        ("--duration", "300ms"),
    ] {
        if !arguments.contains(&option) {
            command.args([option, value]);
        }
    }
    let ran = command.output().expect("it runs");
    let figures = std::fs::read(&file).expect("figures");
    let printed = [ran.stdout, ran.stderr].concat();
    let printed = String::from_utf8(printed).expect("UTF-8");
    (
        ran.status.code(),
        serde_json::from_slice(&figures).expect("JSON"),
        printed,
    )
}

#[test]
fn loads_of_every_shape_are_answered() {
    let (provider, address) = provider(&["--service", "com.foo.Greeter:1.0.0"]);
    let (address, pid) = (address.to_string(), provider.pid().to_string());
    let shapes: [&[&str]; 4] = [
        &["--payload", "128"],
        &[
            "--concurrency",
            "20",
            "--connections",
            "3",
            "--arg",
            "{\"class\":\"a.B\",\"n\":[1]}",
        ],
        &["--concurrency", "2", "--connections", "4", "--serial", "21"],
        &["--rate", "2000", "--connections", "3"],
    ];
    for shape in shapes {
        let (code, json, printed) =
            load(&[&["--target", &address, "--cpu-of", &pid], shape].concat());
        let figures = &json["rounds"][0]["figures"];
        assert_eq!(
            (code, &json["failed_calls"]),
            (Some(0), &Value::from(0)),
            "{printed}"
        );
        assert!(figures["calls"].as_f64() > Some(0.0), "{printed}");
        assert!(figures["p50_us"].as_f64() > Some(0.0), "{printed}");
        assert!(
            figures["max_us"].as_f64() >= figures["p99_us"].as_f64(),
            "{printed}"
        );
        assert!(
            figures[format!("cpu_of_{pid}_us_per_call")].as_f64() > Some(0.0),
            "{printed}"
        );
        match shape {
            ["--rate", ..] => assert_eq!(figures["calls"], 600.0, "2000 a second for 300 ms"),
            [.., "21"] => {
                assert_eq!(
                    figures["calls"].as_f64().map(|calls| calls % 21.0),
                    Some(0.0)
                );
                assert!(figures["page_p50_us"].as_f64() > figures["p50_us"].as_f64());
            }
            _ => {}
        }
    }
    assert!(provider.stop(WITHIN).success());
}

#[test]
fn a_delay_is_kept() {
    let (_provider, address) = provider(&["--delay", "30ms", "--payload", "2000"]);
    let (code, json, printed) = load(&["--target", &address.to_string(), "--concurrency", "10"]);
    assert_eq!(code, Some(0), "{printed}");
    let figures = &json["rounds"][0]["figures"];
    assert!(figures["p50_us"].as_f64() >= Some(29_900.0), "{printed}");
    assert!(figures["calls"].as_f64() <= Some(110.0), "{printed}");
}

#[test]
fn failed_calls_are_told_by_kind() {
    let (_provider, address) = provider(&["--service", "com.foo.Other"]);
    let target = address.to_string();
    let (code, json, printed) = load(&["--target", &target, "--concurrency", "3"]);
    assert_eq!(code, Some(1), "{printed}");
    let failures = &json["rounds"][0]["failures"];
    let kind = "status 70 org.apache.dubbo.remoting.RemotingException";
    assert!(failures[kind].as_u64() > Some(0), "{json}");
    assert!(printed.contains(kind), "{printed}");
    let (code, ..) = load(&["--target", &target, "--allow-errors"]);
    assert_eq!(code, Some(0));
}

#[test]
fn silence_is_a_timeout() {
    let (_provider, address) = provider(&["--delay", "10s"]);
    let (code, json, printed) = load(&[
        "--target",
        &address.to_string(),
        "--concurrency",
        "3",
        "--timeout",
        "200ms",
    ]);
    assert_eq!(code, Some(1), "{printed}");
    let timeouts = json["rounds"][0]["failures"]["timeout"].as_u64();
    assert!(
        timeouts >= Some(3) && timeouts == json["failed_calls"].as_u64(),
        "{json}"
    );
}

#[test]
fn two_targets_are_measured_in_turns() {
    let (_a, first) = provider(&[]);
    let (_b, second) = provider(&["--delay", "5ms"]);
    let (first, second) = (first.to_string(), second.to_string());
    let (code, json, printed) = load(&["--target", &first, "--compare", &second, "--rounds", "3"]);
    assert_eq!(code, Some(0), "{printed}");
    let targets: Vec<_> = json["rounds"].as_array().expect("rounds").iter().collect();
    let targets: Vec<_> = targets
        .iter()
        .map(|round| round["target"].as_str())
        .collect();
    let turn = [Some(first.as_str()), Some(second.as_str())];
    assert_eq!(targets, turn.repeat(3));
    assert!(json["ratios"]["p50_us"].as_f64() > Some(1.0), "{json}");
    assert!(printed.contains("ratio"), "{printed}");
}

/// The table is for people; on a terminal there is a bar before it.
#[test]
fn figures_are_printed_and_progress_on_a_terminal_alone() {
    let (provider, address) = provider(&["--payload", "7"]);
    let (address, pid) = (address.to_string(), provider.pid().to_string());
    let arguments = ["--target", &address, "--serial", "3", "--cpu-of", &pid];
    let (code, _, printed) = load(&arguments);
    assert_eq!(code, Some(0), "{printed}");
    for figure in ["", "page_"].into_iter().flat_map(|of| {
        ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(|name| format!("{of}{name}"))
    }) {
        assert!(
            printed.contains(&format!("│ {figure} ")),
            "{figure}: {printed}"
        );
    }
    for figure in [
        "calls_per_s".to_owned(),
        "failed_calls".to_owned(),
        format!("cpu_of_{pid}_us_per_call"),
        format!("rss_of_{pid}_kib"),
    ] {
        assert!(
            printed.contains(&format!("│ {figure} ")),
            "{figure}: {printed}"
        );
    }
    assert!(!printed.contains(PROGRESS), "{printed}");

    let program = env!("CARGO_BIN_EXE_dubbo-mesh");
    let line = format!("{program} load --service a.B --target {address} --duration 500ms");
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let ran = terminal.output().expect("a terminal");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && printed.contains(PROGRESS),
        "{printed}"
    );
}

/// What stands behind the bar.
const PROGRESS: &str = " calls, 0 failed";

/// The first connection dies under its calls, the second one lives.
#[test]
fn a_lost_connection_costs_its_calls_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let peer = thread::spawn(move || {
        let (mut dying, _) = listener.accept().expect("a connection");
        dying.read_exact(&mut [0; 100]).expect("calls");
        drop(dying);
        let (living, _) = listener.accept().expect("another connection");
        answer_all(living);
    });
    let (code, json, printed) = load(&[
        "--target",
        &address,
        "--concurrency",
        "5",
        "--duration",
        "2s",
    ]);
    peer.join().expect("the peer");
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(
        json["rounds"][0]["failures"]["lost, may have run"], 5,
        "{json}"
    );
    assert_eq!(json["failed_calls"], 5, "{json}");
    assert!(
        json["rounds"][0]["figures"]["calls"].as_f64() > Some(0.0),
        "{json}"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a peer of its own; no timeout is reached"
)]
fn answer_all(mut stream: TcpStream) {
    let now = Instant::now();
    let mut server = Server::new(now, Config::default());
    let (mut input, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut bytes).expect("bytes") {
            0 => return,
            n => input.extend_from_slice(&bytes[..n]),
        }
        let mut rest = &input[..];
        while let Some(call) = server.receive(now, &mut rest).expect("frames") {
            server.answer(|out| reply::value(out, call.id, false, None));
        }
        let taken = input.len() - rest.len();
        input.drain(..taken);
        stream.write_all(server.output()).expect("written");
        server.sent(now, server.output().len());
    }
}

/// A provider that is told to stop says so, serves what still comes, and ends.
#[test]
fn a_provider_drains() {
    let (mut provider, address) = provider(&["--delay", "100ms"]);
    let mut connection = Connection::new(address);
    connection.call(1);
    // The answer to a heartbeat tells that the call before it was read.
    connection.heartbeat(2);
    assert_eq!(
        connection.next(),
        Some((Kind::EventResponse { status: Status::OK }, 2))
    );
    provider.signal(Signal::SIGTERM);
    let (kind, _) = connection.next().expect("READONLY");
    assert_eq!(kind, Kind::Event { two_way: false });
    assert_eq!(
        event::read(Serialization::HESSIAN2, &connection.body),
        Event::ReadOnly
    );
    connection.call(3);
    let ok = Kind::Response { status: Status::OK };
    assert_eq!(connection.next(), Some((ok, 1)));
    assert_eq!(connection.next(), Some((ok, 3)), "it came after READONLY");
    assert!(TcpStream::connect(address).is_err(), "nobody new");
    drop(connection);
    assert!(provider.exit(WITHIN).success());
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// Of the last frame.
    body: Vec<u8>,
}

impl Connection {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(WITHIN)).expect("a timeout");
        Self {
            stream,
            input: Vec::new(),
            body: Vec::new(),
        }
    }

    fn call(&mut self, id: u64) {
        let call = invocation::Outgoing {
            path: "a.B",
            version: "0.0.0",
            method: "m",
            types: "",
            arguments: b"",
            attachments: &[],
        };
        let mut body = Vec::new();
        invocation::write(&mut body, &call);
        let kind = Kind::Request { two_way: true };
        let body = body.into();
        let frame = frame::Frame::new(kind, Serialization::HESSIAN2, RequestId(id), body);
        let frame = frame.expect("short enough");
        self.write(&[&frame.head.encode()[..], &frame.body[..]].concat());
    }

    fn heartbeat(&mut self, id: u64) {
        let mut frame = Vec::new();
        event::heartbeat(&mut frame, Serialization::HESSIAN2, RequestId(id), true);
        self.write(&frame);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("written");
    }

    /// The next frame's kind and id; none at the end.
    fn next(&mut self) -> Option<(Kind, u64)> {
        loop {
            let mut rest = &self.input[..];
            if let Some((head, body)) = frame::cut(&mut rest, Limits::default()).expect("frames") {
                self.body = body.to_vec();
                let taken = self.input.len() - rest.len();
                self.input.drain(..taken);
                return Some((head.kind, head.id.0));
            }
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes).expect("bytes in time") {
                0 => return None,
                n => self.input.extend_from_slice(&bytes[..n]),
            }
        }
    }
}
