//! The real peers of `tests/peers`: Java of four lines, and Go.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mesh_tests::process::{Process, free_port};
use nix::sys::signal::Signal;

/// A line of Dubbo Java.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// com.alibaba:dubbo 2.6.
    V26,
    /// org.apache.dubbo 2.7.
    V27,
    /// org.apache.dubbo 3.2.
    V32,
    /// org.apache.dubbo 3.3.
    V33,
}

impl Line {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::V26, Self::V27, Self::V32, Self::V33];

    fn folder(self) -> PathBuf {
        let name = match self {
            Self::V26 => "26",
            Self::V27 => "27",
            Self::V32 => "32",
            Self::V33 => "33",
        };
        built().join("java").join(name)
    }

    /// A virtual machine for `main`, small and quick to start.
    fn java(self, main: &str, loopback: Loopback) -> Command {
        let folder = self.folder();
        let classes = folder.join("classes");
        assert!(
            classes.is_dir(),
            "no {}: run tests/peers/build",
            classes.display()
        );
        let mut java = Command::new("java");
        java.env("LC_ALL", "C.UTF-8");
        java.args([
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx128m",
        ]);
        // Dubbo's own proxies and exceptions need it up to 3.2.
        java.args(["--add-opens", "java.base/java.lang=ALL-UNNAMED"]);
        if loopback == Loopback::Kept {
            java.arg("-Ddubbo.network.interface.ignored=.*");
        }
        java.arg("-cp");
        java.arg(format!("{}:{}/lib/*", classes.display(), folder.display()));
        java.arg(main);
        java
    }
}

/// What a Java consumer makes of a loopback address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loopback {
    /// It dials it: needs a flag, and 127.1 in place of 127.0.0.1 for 2.6.
    Kept,
    /// It dials the host's first own address in its place, as every application out there does.
    Replaced,
}

/// A provider that takes calls.
#[derive(Debug)]
pub(crate) struct Provider {
    process: Process,
    address: SocketAddr,
}

impl Provider {
    /// One of `line`, which offers `shop.Shop` without and with group and version.
    pub(crate) fn java(line: Line) -> Self {
        Self::start(
            &format!("provider {line:?}"),
            line.java("shop.Provider", Loopback::Kept),
        )
    }

    /// One of `line` that is to listen at `address` of loopback, started by what `within` makes of its
    /// command.
    pub(crate) fn java_within(
        line: Line,
        address: SocketAddr,
        within: impl FnOnce(Command) -> Command,
    ) -> Self {
        let mut java = line.java("shop.Provider", Loopback::Kept);
        java.arg(address.port().to_string());
        Self::begin(&format!("provider {line:?}"), within(java), address)
    }

    /// One in Go, which offers `shop.Shop` without and with group and version.
    pub(crate) fn go() -> Self {
        Self::start("Go provider", go("provider"))
    }

    fn start(name: &str, mut command: Command) -> Self {
        let port = free_port();
        command.arg(port.to_string());
        Self::begin(name, command, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn begin(name: &str, command: Command, address: SocketAddr) -> Self {
        let mut process = Process::start(name, command);
        process.expect("READY", PATIENCE, |line| {
            line.starts_with("READY").then_some(())
        });
        Self { process, address }
    }

    /// Where it takes calls.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells it to end, as an operator does, and does not wait for that.
    pub(crate) fn terminate(&mut self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// Whether it is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.is_running()
    }
}

/// A consumer that makes the calls it is told to.
#[derive(Debug)]
pub(crate) struct Consumer(Process);

impl Consumer {
    /// One of `line` that calls through `to`.
    pub(crate) fn java(line: Line, to: SocketAddr) -> Self {
        Self::java_at(
            line,
            &format!("dubbo://127.1:{}", to.port()),
            Loopback::Kept,
        )
    }

    /// One of `line` that calls through `to`, started by what `within` makes of its command.
    pub(crate) fn java_within(
        line: Line,
        to: SocketAddr,
        within: impl FnOnce(Command) -> Command,
    ) -> Self {
        let mut java = line.java("shop.Consumer", Loopback::Kept);
        java.arg(format!("dubbo://127.1:{}", to.port()));
        Self::start(&format!("consumer {line:?}"), within(java))
    }

    /// One of `line` with a URL as its configuration would have it.
    pub(crate) fn java_at(line: Line, url: &str, loopback: Loopback) -> Self {
        let mut command = line.java("shop.Consumer", loopback);
        command.arg(url);
        Self::start(&format!("consumer {line:?}"), command)
    }

    /// One in Go that calls through `to`.
    pub(crate) fn go(to: SocketAddr) -> Self {
        let mut command = go("consumer");
        command.arg(format!("dubbo://{to}"));
        Self::start("Go consumer", command)
    }

    fn start(name: &str, command: Command) -> Self {
        let mut process = Process::start(name, command);
        process.expect("READY", PATIENCE, |line| {
            line.starts_with("READY").then_some(())
        });
        Self(process)
    }

    /// Makes the call that `command` names: `ok VALUE` or `error ...`.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.0.say(command);
        let answer = |line: &str| {
            let is = line.starts_with("ok ") || line.starts_with("error ");
            is.then(|| line.to_owned())
        };
        self.0
            .expect(&format!("answer to {command}"), PATIENCE, answer)
    }

    /// Makes the call that `command` names, which has to answer `value`.
    #[track_caller]
    pub(crate) fn gets(&mut self, command: &str, value: &str) {
        assert_eq!(self.ask(command), format!("ok {value}"), "{command}");
    }

    /// Makes the call that `command` names, which has to fail with all `words` in what the
    /// application sees.
    #[track_caller]
    pub(crate) fn fails(&mut self, command: &str, words: &[&str]) {
        let answer = self.ask(command);
        assert!(answer.starts_with("error "), "{command}: {answer}");
        for word in words {
            assert!(answer.contains(word), "{command}: no {word:?} in {answer}");
        }
    }
}

fn go(program: &str) -> Command {
    let path = built().join("go").join(program);
    assert!(
        path.is_file(),
        "no {}: run tests/peers/build",
        path.display()
    );
    Command::new(path)
}

/// Where `tests/peers/build` puts them.
pub(crate) fn built() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers")
}

/// A virtual machine that starts beside others takes its time.
const PATIENCE: Duration = Duration::from_secs(60);
