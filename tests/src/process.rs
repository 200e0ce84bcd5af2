//! Processes of a test: output captured, input held open, killed when dropped.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::wait::{Deadline, until};

/// A running program. Dropped, it is killed and reaped; if the test is failing then, the end of its
/// output is printed.
///
/// Its standard input stays open until it is dropped or killed, so that a program which ends with
/// its input cannot outlive a test that was killed itself.
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Arc<Output>,
    read: usize,
}

impl Process {
    /// Starts `command`; `name` is for messages.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {:?} does not start: {e}", command.get_program()));
        let output = Arc::new(Output::default());
        output.lock().open = 2;
        capture(&output, child.stdout.take().expect("piped"));
        capture(&output, child.stderr.take().expect("piped"));
        Self {
            name: name.to_owned(),
            input: child.stdin.take(),
            child,
            output,
            read: 0,
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    ///
    /// # Panics
    /// If it does not take it.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .unwrap_or_else(|e| panic!("{} takes no input: {e}\n{}", self.name, self.output));
    }

    /// Reads on in its output to the first line for which `wanted` gives a value, and returns that.
    /// What was read over is not looked at again.
    ///
    /// # Panics
    /// If no such line comes `within` that time, or the output ends.
    #[track_caller]
    pub fn expect<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> T {
        let deadline = Deadline::after(within);
        let mut lines = self.output.lock();
        loop {
            while let Some(line) = lines.all.get(self.read) {
                self.read += 1;
                if let Some(value) = wanted(line) {
                    return value;
                }
            }
            let (false, Some(left)) = (lines.open == 0, deadline.left()) else {
                drop(lines);
                panic!(
                    "{}: no {what} within {within:?}\n{}",
                    self.name, self.output
                );
            };
            let waited = self.output.grown.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends it a signal; one that has ended already gets none.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(self.pid().cast_signed());
            signal::kill(pid, signal).unwrap_or_else(|e| panic!("{}: {signal}: {e}", self.name));
        }
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends by itself, and its output is read, unless others still hold that open.
    ///
    /// # Panics
    /// If it has not ended `within` that time.
    #[track_caller]
    pub fn exit(&mut self, within: Duration) -> ExitStatus {
        let what = format!("exit of {}", self.name);
        let status = until(&what, within, || self.child.try_wait().ok().flatten());
        self.output.end(LAST_WORDS);
        status
    }

    /// Ends it as an operator does, with SIGTERM, and returns how it ended.
    ///
    /// # Panics
    /// If it has not ended `within` that time.
    #[track_caller]
    pub fn stop(mut self, within: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.exit(within)
    }

    /// Everything it has written so far, standard output and error mixed by line.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.lock().all.join("\n")
    }

    /// Bytes of memory it holds now (VmRSS).
    ///
    /// # Panics
    /// If it has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).expect("the process runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.trim().strip_suffix(" kB"));
        1024 * kib.expect("VmRSS in kB").parse::<u64>().expect("a number")
    }

    /// CPU time it has used so far, in steps of 10 ms.
    ///
    /// # Panics
    /// If it has ended.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("the process runs");
        // The name in parentheses may hold anything; user and system time are fields 14 and 15.
        let (_, after) = stat.rsplit_once(')').expect("a name in parentheses");
        let ticks = after.split_whitespace().skip(11).take(2);
        let ticks = ticks.map(|field| field.parse::<u64>().expect("a number"));
        Duration::from_millis(10 * ticks.sum::<u64>())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.output);
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid())
    }
}

/// A TCP port of 127.0.0.1 that was free just now, for programs that cannot choose one themselves.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

#[derive(Default)]
struct Output {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Default)]
struct Lines {
    all: Vec<String>,
    /// Streams that have not ended.
    open: usize,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of both streams. They outlive the process in the hands of its children, so
    /// not for longer than `within`.
    fn end(&self, within: Duration) {
        let (lines, open) = (self.lock(), |lines: &mut Lines| lines.open > 0);
        drop(self.grown.wait_timeout_while(lines, within, open));
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lock();
        let from = lines.all.len().saturating_sub(SHOWN);
        lines.all[from..]
            .iter()
            .try_for_each(|l| writeln!(f, "{l}"))
    }
}

fn capture(output: &Arc<Output>, stream: impl Read + Send + 'static) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut lines = output.lock();
            lines.all.push(line);
            output.grown.notify_all();
        }
        output.lock().open -= 1;
        output.grown.notify_all();
    });
}

/// How long an ended process's output may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Lines of output shown where a test fails.
const SHOWN: usize = 60;
