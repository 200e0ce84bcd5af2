//! The program's own loader and provider, as processes.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use mesh_tests::process::Process;
use serde_json::Value;
use tempfile::TempDir;

use crate::sidecar::PROGRAM;

/// A loader that runs.
#[derive(Debug)]
pub(crate) struct Load {
    process: Process,
    folder: TempDir,
}

impl Load {
    /// Calls `service` at `target`, as `options` of the command line say; `on` may change where the
    /// command runs.
    pub(crate) fn start(
        target: SocketAddr,
        service: &str,
        options: &[&str],
        on: impl FnOnce(Command) -> Command,
    ) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut command = Command::new(PROGRAM);
        command.args(["load", "--service", service, "--payload", "128"]);
        command.args(["--target", &target.to_string()]);
        command.args(options);
        command.arg("--json").arg(folder.path().join(FIGURES));
        Self {
            process: Process::start("loader", on(command)),
            folder,
        }
    }

    /// Whether it still makes calls.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Waits until it has ended well, which without `--allow-errors` means that no call failed, and
    /// returns its figures.
    #[track_caller]
    pub(crate) fn figures(mut self) -> Value {
        let status = self.process.exit(PATIENCE);
        let output = self.process.output();
        assert!(status.success(), "the loader ended with {status}\n{output}");
        println!("{output}");
        let text = fs::read_to_string(self.folder.path().join(FIGURES));
        let text = text.expect("the loader's figures");
        serde_json::from_str(&text).expect("figures in JSON")
    }
}

/// A provider at `address` that takes calls of every service; `on` as for [`Load::start`].
pub(crate) fn provide(address: SocketAddr, on: impl FnOnce(Command) -> Command) -> Process {
    let mut command = Command::new(PROGRAM);
    command.args(["provider", "--listen", &address.to_string()]);
    let mut process = Process::start("provider", on(command));
    let listening = |line: &str| line.starts_with("listening on").then_some(());
    process.expect("listening provider", PATIENCE, listening);
    process
}

/// A figure that has to be there.
#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no figure"))
}

const FIGURES: &str = "load.json";
const PATIENCE: Duration = Duration::from_secs(60);
