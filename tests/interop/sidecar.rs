//! A sidecar as a process of its own, with a static configuration.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mesh_tests::http;
use mesh_tests::process::{Process, free_port};
use mesh_tests::wait::until;
use tempfile::TempDir;

/// A `dubbo-mesh proxy` that is ready.
#[derive(Debug)]
pub(crate) struct Sidecar {
    process: Option<Process>,
    folder: TempDir,
    /// What it reads in place of /etc/hosts.
    hosts: Option<PathBuf>,
    port: u16,
    admin: SocketAddr,
}

impl Sidecar {
    /// For consumers: takes calls on [`Sidecar::address`] for `services`, the lines of YAML below
    /// `static.services`.
    pub(crate) fn outbound(services: &str) -> Self {
        let port = free_port();
        Self::start(
            port,
            &format!("outbound: {{ listen: 127.0.0.1:{port}, own_addresses: false }}"),
            services,
        )
    }

    /// As [`Sidecar::outbound`], with names that mean what the file `hosts` says, as in /etc/hosts.
    /// Needs root.
    pub(crate) fn outbound_with_hosts(hosts: &Path, services: &str) -> Self {
        let port = free_port();
        let side = format!("outbound: {{ listen: 127.0.0.1:{port}, own_addresses: false }}");
        Self::begin(port, &side, services, Some(hosts.to_owned()))
    }

    /// As [`Sidecar::outbound`] on `port` and all own addresses of the host, which is the default.
    pub(crate) fn outbound_everywhere(port: u16, services: &str) -> Self {
        Self::start(
            port,
            &format!("outbound: {{ listen: 127.0.0.1:{port} }}"),
            services,
        )
    }

    /// For a provider: takes calls on [`Sidecar::address`] and hands them all to `provider`.
    pub(crate) fn inbound(provider: SocketAddr) -> Self {
        let port = free_port();
        let side = format!("inbound: {{ listen: 127.0.0.1:{port}, provider: \"{provider}\" }}");
        Self::start(port, &side, "")
    }

    fn start(port: u16, side: &str, services: &str) -> Self {
        Self::begin(port, side, services, None)
    }

    fn begin(port: u16, side: &str, services: &str, hosts: Option<PathBuf>) -> Self {
        let folder = TempDir::new().expect("a folder");
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut config = format!("{side}\nadmin: {{ listen: \"{admin}\" }}\n");
        if !services.is_empty() {
            write!(config, "static:\n  services:\n{services}").expect("a string grows");
        }
        fs::write(folder.path().join("proxy.yaml"), config).expect("a file");
        let mut this = Self {
            process: None,
            folder,
            hosts,
            port,
            admin,
        };
        this.restart();
        this
    }

    /// Starts it again, with the same addresses, after [`Sidecar::kill`] or [`Sidecar::stop`].
    pub(crate) fn restart(&mut self) {
        let mut command = match &self.hosts {
            None => Command::new(PROGRAM),
            Some(hosts) => with_hosts(hosts),
        };
        command.arg("proxy").arg("--config");
        command.arg(self.folder.path().join("proxy.yaml"));
        let process = self.process.insert(Process::start("sidecar", command));
        until("ready sidecar", PATIENCE, || {
            assert!(
                process.is_running(),
                "the sidecar ended:\n{}",
                process.output()
            );
            let ready = http::get(self.admin, "/ready").ok()?;
            (ready.status == 200).then_some(())
        });
    }

    /// Kills it on the spot.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it with SIGTERM, and sees it end well.
    pub(crate) fn stop(&mut self) {
        let process = self.process.take().expect("a running sidecar");
        let status = process.stop(PATIENCE);
        assert!(status.success(), "the sidecar ended with {status}");
    }

    /// Where it takes calls.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The sum of the counters whose names and labels begin with `series`.
    #[track_caller]
    pub(crate) fn count(&self, series: &str) -> u64 {
        let page = http::get(self.admin, "/stats/prometheus").expect("metrics");
        let counters = page.body.lines().filter(|line| line.starts_with(series));
        let values = counters.map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        let values: Option<Vec<_>> = values.collect();
        let values = values.filter(|values| !values.is_empty());
        values
            .unwrap_or_else(|| panic!("no {series}:\n{}", page.body))
            .iter()
            .sum()
    }

    /// Calls of consumers that ended with `outcome`.
    #[track_caller]
    pub(crate) fn finished(&self, outcome: &str) -> u64 {
        let labels = format!("side=\"outbound\",outcome=\"{outcome}\"");
        self.count(&format!("mesh_call_finished_total{{{labels}}}"))
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().expect("a running sidecar")
    }
}

/// The lines of YAML for a service with `endpoints`, as [`Sidecar::outbound`] takes them.
pub(crate) fn service(key: &str, endpoints: &[SocketAddr]) -> String {
    let list: Vec<_> = endpoints.iter().map(|e| format!("\"{e}\"")).collect();
    format!(
        "    - {{ key: \"{key}\", endpoints: [{}] }}\n",
        list.join(", ")
    )
}

/// The program in a mount namespace of its own, where `hosts` stands over /etc/hosts.
fn with_hosts(hosts: &Path) -> Command {
    let mut command = Command::new("unshare");
    let bind = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    command.args(["--mount", "sh", "-c", bind]);
    command.arg(hosts).arg(PROGRAM);
    command
}

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dubbo-mesh");

const PATIENCE: Duration = Duration::from_secs(20);
