//! One process beside this one: this very program as another subcommand.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::time::now;

/// A running process. Dropped, it is told to end, and killed if it does not.
#[derive(Debug)]
pub(crate) struct Part {
    name: &'static str,
    child: Child,
    /// What it prints, line by line.
    lines: Receiver<String>,
    /// Without a name, so that nothing of it stays, whatever happens.
    complaints: File,
}

/// Why a process does not do what it is for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not start.
    #[error("cannot start the {part}")]
    Start {
        /// Which.
        part: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended, or was not ready in time.
    #[error("the {part} is not ready; it said: {said}")]
    NotReady {
        /// Which.
        part: &'static str,
        /// What it complained about.
        said: String,
    },
}

impl Part {
    /// Starts `program` with `arguments`, of which the first is the subcommand; `name` is for
    /// messages.
    pub(crate) fn start(
        program: &Path,
        name: &'static str,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let part = Self::spawn(program, name, arguments);
        part.map_err(|source| Error::Start { part: name, source })
    }

    /// As [`Self::start`], of any `command`, which `program`, our own, starts so that the kernel ends
    /// it with this process, however that ends.
    pub(crate) fn launch(
        program: &Path,
        name: &'static str,
        command: &[&str],
    ) -> Result<Self, Error> {
        let own = process::id().to_string();
        let arguments = [&["launch", "--parent", &own, "--"], command].concat();
        Self::start(program, name, &arguments)
    }

    /// As [`Self::launch`], of our own program as another subcommand, the first of `arguments`.
    pub(crate) fn subcommand(
        program: &Path,
        name: &'static str,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let own = program.to_string_lossy();
        let command = [&[&*own], arguments].concat();
        Self::launch(program, name, &command)
    }

    fn spawn(program: &Path, name: &'static str, arguments: &[&str]) -> io::Result<Self> {
        let complaints = tempfile::tempfile()?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints.try_clone()?)
            .spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| io::Error::other("no output"))?;
        let (sender, lines) = sync_channel(LINES);
        thread::spawn(move || read(output, &sender));
        Ok(Self {
            name,
            child,
            lines,
            complaints,
        })
    }

    /// The address in the first line that begins with `label`, which the process prints when it
    /// can be called.
    pub(crate) fn address(&mut self, label: &str) -> Result<SocketAddr, Error> {
        self.address_within(label, PATIENCE)
    }

    fn address_within(&self, label: &str, patience: Duration) -> Result<SocketAddr, Error> {
        let until = now() + patience;
        let left = || until.saturating_duration_since(now());
        while let Ok(line) = self.lines.recv_timeout(left()) {
            if let Some(address) = line.strip_prefix(label).and_then(|a| a.trim().parse().ok()) {
                return Ok(address);
            }
        }
        Err(self.failed())
    }

    /// Waits until the process takes connections.
    pub(crate) fn wait_for(&mut self, address: SocketAddr) -> Result<(), Error> {
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
    pub(crate) fn failed(&self) -> Error {
        let mut said = vec![0; SAID_LEN];
        // What cannot be read is not said. Not `read`: the process writes on where that ends.
        let len = self.complaints.read_at(&mut said, 0).unwrap_or(0);
        said.truncate(len);
        Error::NotReady {
            part: self.name,
            said: String::from_utf8_lossy(&said).trim().to_owned(),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
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

/// Reads to the end, so that the process is never held up by what it prints. Lines beyond those that
/// are looked at are of no interest.
fn read(output: ChildStdout, lines: &SyncSender<String>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let _ = lines.try_send(line);
    }
}

/// An address of loopback that is free now; whoever is told to listen there takes it a moment later.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Lines that wait to be looked at.
const LINES: usize = 64;
/// Bytes of its complaints that are told.
const SAID_LEN: usize = 16 * 1024;
/// How long a process may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_get_ready_is_quoted() {
        let shell = Path::new("/bin/sh");
        let script = ["-c", "echo no such luck >&2; echo elsewhere 127.0.0.1:1"];
        let mut part = Part::start(shell, "shell", &script).expect("a shell");
        let error = part.address("listening on ").expect_err("no such line");
        assert_eq!(
            error.to_string(),
            "the shell is not ready; it said: no such luck"
        );
        let missing = Part::start(Path::new("/no/such/program"), "nobody", &[]);
        assert!(matches!(missing, Err(Error::Start { part: "nobody", .. })));
    }

    #[test]
    fn a_part_that_says_nothing_is_not_waited_for_for_ever() {
        let shell = Path::new("/bin/sh");
        let script = ["-c", "echo so busy >&2; echo; sleep 1000"];
        let part = Part::start(shell, "shell", &script).expect("a shell");
        let _ = part.lines.recv();
        let error = part.address_within("at ", Duration::ZERO);
        let error = error.expect_err("no such line").to_string();
        assert_eq!(error, "the shell is not ready; it said: so busy");
    }

    #[test]
    fn a_part_may_print_as_much_as_it_likes() {
        let shell = Path::new("/bin/sh");
        // More than a pipe holds.
        let script = ["-c", "echo at 127.0.0.1:7; yes | head -c 1000000"];
        let mut part = Part::start(shell, "shell", &script).expect("a shell");
        assert_eq!(part.address("at ").expect("its line").port(), 7);
        assert!(part.ends_within(PATIENCE));
    }

    #[test]
    fn a_part_ends_when_it_is_dropped() {
        let shell = Path::new("/bin/sh");
        let script = [
            "-c",
            "trap 'exit 3' TERM; echo at 127.0.0.1:7; while :; do sleep 0.05; done",
        ];
        let mut part = Part::start(shell, "shell", &script).expect("a shell");
        assert_eq!(part.address("at ").expect("its line").port(), 7);
        let pid = Pid::from_raw(part.pid().cast_signed());
        drop(part);
        assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
    }
}
