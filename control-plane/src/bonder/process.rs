//! Starts, signals and reaps processes. As the first process of a container, bonder reaps whatever
//! is left to it; elsewhere it has itself made the one that orphans are left to.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait, waitpid,
};

use super::supervisor::{Exit, Role};

/// The processes that bonder started.
///
/// Of the thread that makes it: the kernel kills the children when the thread ends that started them.
#[derive(Debug)]
pub(super) struct Processes {
    roles: HashMap<Role, Pid>,
    /// What was left behind and has got its SIGTERM.
    told: HashSet<Pid>,
}

impl Processes {
    /// No process yet. Orphans among the descendants come to this process from now on.
    ///
    /// # Errors
    /// The system does not let them.
    pub(super) fn new() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            roles: HashMap::new(),
            told: HashSet::new(),
        })
    }

    /// Starts what `command` says for `role`. What it writes comes out of the pipe, unless it is the
    /// application, whose input and output are ours.
    ///
    /// # Errors
    /// There is no process to be had. A program that cannot be run is an exit, with 126 or 127.
    pub(super) fn start(
        &mut self,
        role: Role,
        command: &[OsString],
    ) -> io::Result<Option<OwnedFd>> {
        let mut child = spawn(command, role == Role::Application)?;
        self.roles.insert(role, Pid::from_child(&child));
        Ok(child.stdout.take().map(OwnedFd::from))
    }

    /// The id of a child that runs.
    #[must_use]
    pub(super) fn pid(&self, role: Role) -> Option<u32> {
        let pid = self.roles.get(&role)?;
        Some(pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Signals a child; nothing happens if it does not run.
    pub(super) fn signal(&self, role: Role, signal: Signal) {
        if let Some(pid) = self.roles.get(&role) {
            send(*pid, signal);
        }
    }

    /// Reaps every process that has ended, and says which children were among them.
    pub(super) fn reap(&mut self) -> Vec<(Role, Exit)> {
        let mut exits = Vec::new();
        // The error is that there is no child.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.told.remove(&pid);
            let role = self.roles.iter().find(|(_, of)| **of == pid);
            if let (Some((role, _)), Some(exit)) = (role, exit(status)) {
                let role = *role;
                self.roles.remove(&role);
                exits.push((role, exit));
            }
        }
        exits
    }

    /// Signals whatever descends from this process and is no child of its own choice: SIGTERM only
    /// once to each. Says whether there was anything.
    pub(super) fn sweep(&mut self, signal: Signal) -> bool {
        let left = self.strays();
        for pid in &left {
            if self.told.insert(*pid) || signal == Signal::KILL {
                send(*pid, signal);
            }
        }
        !left.is_empty()
    }

    /// Descendants of this process beside pilot, proxy and application.
    fn strays(&self) -> Vec<Pid> {
        let parents = parents();
        let ours: HashSet<Pid> = self.roles.values().copied().collect();
        let (mut found, mut look) = (Vec::new(), vec![getpid()]);
        while let Some(parent) = look.pop() {
            let children = parents.iter().filter(|(_, of)| *of == parent);
            for (child, _) in children.filter(|(child, _)| !ours.contains(child)) {
                found.push(*child);
                look.push(*child);
            }
        }
        found
    }
}

/// Runs a program of this container to its end; `None` if that does not come in time, and it is
/// killed. Blocks.
///
/// # Errors
/// It cannot be started, or not be waited for.
pub(super) fn run(command: &[OsString], within: Duration) -> io::Result<Option<Exit>> {
    let mut child = spawn(command, false)?;
    let mut waited = Duration::ZERO;
    loop {
        let ended = waitpid(Some(Pid::from_child(&child)), WaitOptions::NOHANG)?;
        if let Some(exit) = ended.and_then(|(_, status)| exit(status)) {
            return Ok(Some(exit));
        }
        if waited >= within {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
        waited += LOOK;
    }
}

/// A process of `command` that dies with this one.
fn spawn(command: &[OsString], application: bool) -> io::Result<Child> {
    // This program, even if its file was replaced meanwhile.
    let mut launch = Command::new("/proc/self/exe");
    launch.arg("launch").arg("--parent");
    launch.arg(std::process::id().to_string()).arg("--");
    launch.args(command);
    if !application {
        // A terminal's interrupt is for the application and for us, who take the others down in turn.
        launch.process_group(0);
        launch.stdin(Stdio::null()).stdout(Stdio::piped());
    }
    launch.spawn()
}

/// Every process that is seen, with its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents = processes.filter_map(|pid: u32| {
        let raw = |text: &str| Pid::from_raw(text.parse().ok()?);
        Some((Pid::from_raw(pid.cast_signed())?, raw(&stat(pid)?[1])?))
    });
    parents.collect()
}

/// When a process was started, in ticks since the host was; `None` if there is none of this id.
/// With the id this is one process alone.
pub(super) fn birth(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// The fields of `/proc/PID/stat` behind the name, which may hold anything: state, parent, ...
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().map(str::to_owned).collect();
    (fields.len() > 19).then_some(fields)
}

fn send(pid: Pid, signal: Signal) {
    // It may have ended already.
    if let Err(error) = kill_process(pid, signal) {
        tracing::debug!(pid = pid.as_raw_nonzero(), %error, "not signalled");
    }
}

/// How a process ended, if it has.
fn exit(status: WaitStatus) -> Option<Exit> {
    let ended = status.exit_status().map(|code| Exit::Code(low(code)));
    let killed = || status.terminating_signal().map(|n| Exit::Signal(low(n)));
    ended.or_else(killed)
}

/// Codes and signals fit in a byte.
fn low(number: i32) -> u8 {
    u8::try_from(number & 0xff).unwrap_or(u8::MAX)
}

/// Between two looks at whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);
