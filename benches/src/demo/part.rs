//! One process of the demo: this very program as another subcommand.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Error;
use crate::time::now;

/// A running process. Dropped, it is told to end, and killed if it does not.
#[derive(Debug)]
pub(super) struct Part {
    name: &'static str,
    child: Child,
    output: BufReader<ChildStdout>,
    complaints: PathBuf,
}

impl Part {
    /// Starts `program NAME ARGUMENTS`; what it complains about goes to a file in `folder`.
    pub(super) fn start(
        program: &Path,
        name: &'static str,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<Self, Error> {
        let system = |source| Error::Start { part: name, source };
        let complaints = tempfile::Builder::new()
            .prefix(name)
            .tempfile_in(folder)
            .map_err(system)?;
        let (complaints, path) = complaints.keep().map_err(|e| system(e.error))?;
        Self::spawn(program, name, arguments, complaints, path).map_err(system)
    }

    fn spawn(
        program: &Path,
        name: &'static str,
        arguments: &[&str],
        complaints: File,
        path: PathBuf,
    ) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(name)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| io::Error::other("no output"))?;
        Ok(Self {
            name,
            child,
            output,
            complaints: path,
        })
    }

    /// The address in the first line that begins with `label`, which the process prints when it
    /// can be called.
    pub(super) fn address(&mut self, label: &str) -> Result<SocketAddr, Error> {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|len| len > 0) {
            if let Some(address) = line.strip_prefix(label).and_then(|a| a.trim().parse().ok()) {
                return Ok(address);
            }
            line.clear();
        }
        Err(self.failed())
    }

    /// Waits until the process takes connections.
    pub(super) fn wait_for(&mut self, address: SocketAddr) -> Result<(), Error> {
        let until = now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if now() >= until || self.has_ended() {
                return Err(self.failed());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// What to say of a process that did not do what it is for.
    pub(super) fn failed(&self) -> Error {
        let said = fs::read_to_string(&self.complaints).unwrap_or_default();
        Error::Part {
            part: self.name,
            said: said.trim().to_owned(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ends_within(&mut self, patience: Duration) -> bool {
        let until = now() + patience;
        while !self.has_ended() {
            if now() >= until {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let told = kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        );
        if told.is_err() || !self.ends_within(PATIENCE) {
            // It has ended already, or will now: there is nothing else to be done.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How long a process may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(10);
