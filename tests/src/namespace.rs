//! A network namespace of a test's own: a host with one address, connected to nothing.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

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

    /// `command`, to be started inside.
    #[must_use]
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.0]);
        inside.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        inside
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
