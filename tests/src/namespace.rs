//! A network namespace of a test's own: a host with one address, connected to nothing.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};

/// A network namespace with loopback and [`ADDRESS`] on an interface of its own. Deleted when
/// dropped; what still runs in it keeps it until it ends.
#[derive(Debug)]
pub struct Namespace(String);

/// The host's own address in a [`Namespace`].
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// An address beside [`ADDRESS`] that takes every packet and never answers.
pub const SILENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

impl Namespace {
    /// Makes the namespace. Needs root and iproute2.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mesh-test-{}-{number}", std::process::id());
        ip(&["netns", "add", &name]);
        let this = Self(name);
        this.ip("link set lo up");
        // A pair whose far end nobody answers on. A dummy interface would do, where kernels have it.
        this.ip("link add own type veth peer name far");
        this.ip(&format!("addr add {ADDRESS}/24 dev own"));
        this.ip("link set own up");
        this.ip("link set far up");
        // With a known neighbour there is no "host unreachable", only silence.
        this.ip(&format!(
            "neigh add {SILENT} lladdr 02:00:00:00:00:09 dev own nud permanent"
        ));
        this
    }

    /// Runs `f` inside: its sockets, and the processes that it starts, are in the namespace.
    ///
    /// # Panics
    /// If `f` does, or the namespace cannot be entered.
    #[track_caller]
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let file =
                File::open(format!("/run/netns/{}", self.0)).expect("the namespace is there");
            setns(file, CloneFlags::CLONE_NEWNET).expect("a thread may enter it");
            f()
        };
        // The namespace is the thread's, so a thread of its own leaves ours where it is.
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn ip(&self, arguments: &str) {
        let words = arguments.split(' ');
        ip(&["-n", &self.0].into_iter().chain(words).collect::<Vec<_>>());
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status();
    let status = status.expect("iproute2 is installed");
    assert!(status.success(), "ip {}: {status}", arguments.join(" "));
}
