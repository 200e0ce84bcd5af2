//! Hosts: the connections to providers, upstream, and what happens when one is lost.
//!
//! A host belongs to one shard, which owns its socket. The other shards know the host too, hear of
//! its ups and downs, and hand their calls over.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use dubbo_proto::{
    event::{self, Event},
    head::{HEAD_LEN, Head, ID, RequestId, Serialization},
    mux::{inflight::Slots, link::Timing},
    reply,
};

use super::{
    backlog::{Backlog, Sender},
    links::Links,
    machine::{Action, Attempt, Core, Peer},
    output::Output,
    sessions::BEAT,
};
use crate::{
    call::HostId,
    config::Limits,
    mesh,
    metrics::{Counts, LostReason, Outcome, Stray},
    upstream::{self, Settings, Upstream},
};

/// One provider, as a shard knows it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What all shards know of it.
    pub(super) shared: Arc<mesh::host::Host>,
    /// The way to it; that of another shard's host follows what its owner tells.
    pub(crate) upstream: Upstream,
    /// What goes to it.
    pub(crate) output: Output,
    /// What waits until it takes bytes again.
    pub(super) backlog: Backlog,
    /// Attempts of this shard that run on it.
    pub(super) in_flight: u32,
    /// What the other shards know of it, if it is ours.
    pub(super) links: Links,
    /// Attempts that ended, by outcome.
    pub(super) finished: Counts<Outcome>,
    pub(super) connected: u64,
    pub(super) connect_failures: u64,
    /// A sidecar of the mesh listens there.
    pub(super) mesh: bool,
    /// No service names it any more.
    pub(super) retired: bool,
    touched: bool,
}

impl Host {
    #[inline]
    pub(super) fn shard(&self) -> u8 {
        self.shared.shard
    }

    /// Its number in the process.
    pub(crate) fn number(&self) -> u32 {
        self.shared.id
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The output is being written.
    pub(crate) fn untouch(&mut self) {
        self.touched = false;
    }

    /// Bytes that wait for its socket.
    pub(crate) fn pending(&self) -> usize {
        self.output.pending() + self.backlog.bytes()
    }

    /// The socket takes bytes again: lets the next of the backlog go.
    pub(crate) fn refill(&mut self) {
        self.output.unblock();
        self.backlog
            .refill(&mut self.output, super::buffers::HOST_READ);
    }
}

impl Core {
    /// The place of a host, made and dialed if it is new.
    pub(super) fn host(&mut self, now: Instant, target: &mesh::Target) -> HostId {
        let shared = &target.host;
        if let Some((at, _)) = self
            .hosts
            .iter()
            .find(|(_, h)| Arc::ptr_eq(&h.shared, shared))
        {
            let id = HostId(u32::try_from(at).expect("hosts are bounded"));
            self.hosts[at].retired = false;
            self.hosts[at].mesh = target.profile.mesh;
            return id;
        }
        let limits = &self.settings.limits;
        let settings = Settings {
            timing: Timing {
                heartbeat: limits.host_heartbeat,
                timeout: limits.host_timeout,
            },
            backoff: pauses(limits, shared.address),
            patience: limits.reconnect_wait,
        };
        let at = self.hosts.insert(Host {
            shared: Arc::clone(shared),
            upstream: Upstream::new(now, settings),
            output: Output::default(),
            backlog: Backlog::default(),
            in_flight: 0,
            links: Links::default(),
            finished: Counts::default(),
            connected: 0,
            connect_failures: 0,
            mesh: target.profile.mesh,
            retired: false,
            touched: false,
        });
        let id = HostId(u32::try_from(at).expect("hosts are bounded"));
        if shared.shard == self.settings.shard {
            let (number, address) = (shared.id, shared.address);
            self.actions.push_back(Action::Dial {
                host: id,
                number,
                address,
            });
        } else {
            self.outbox.ask(shared.shard, shared.id);
        }
        self.watch(now, id);
        id
    }

    /// The host at a place.
    #[inline]
    pub(crate) fn host_mut(&mut self, id: HostId) -> Option<&mut Host> {
        self.hosts.get_mut(id.0 as usize)
    }

    /// The place of a host by its number in the process.
    pub(super) fn host_by_id(&self, id: u32) -> Option<HostId> {
        let (at, _) = self.hosts.iter().find(|(_, h)| h.number() == id)?;
        Some(HostId(u32::try_from(at).ok()?))
    }

    /// Forgets a host that no service names any more, once nothing runs on it.
    pub(super) fn forget_if_unused(&mut self, id: HostId) {
        let Some(host) = self.hosts.get(id.0 as usize) else {
            return;
        };
        if !self.services.of_host(id).is_empty() {
            return;
        }
        if host.in_flight > 0 || !host.links.is_empty() || host.pending() > 0 {
            self.hosts[id.0 as usize].retired = true;
            return;
        }
        if host.shard() != self.settings.shard {
            self.outbox.left(host.shard(), host.number());
        } else if host.upstream.is_up() {
            self.stats.upstream.lost[LostReason::Removed] += 1;
        }
        self.hosts.remove(id.0 as usize);
        self.host_timer.cancel(id.0);
        self.actions.push_back(Action::Hang(id));
    }

    /// Whether `len` more bytes of `sender` may wait for a host; the error says whose queue is
    /// full. One sender may fill half of it.
    #[inline]
    pub(super) fn room(&self, to: HostId, sender: Sender, len: usize) -> Result<(), String> {
        let limits = &self.settings.limits;
        let host = &self.hosts[to.0 as usize];
        let (waiting, most) = if host.shard() == self.settings.shard {
            (host.pending(), limits.host_queue)
        } else {
            (self.outbox.pending(host.shard()), limits.handoff)
        };
        // Whatever waits alone is let through, so that no frame is too long for the queue.
        if waiting == 0 || waiting + len <= most / 2 {
            return Ok(());
        }
        share_left(host, sender, waiting, len, most)
    }

    /// A host is connected: calls may go there, and those that waited for it do.
    pub(crate) fn connected(&mut self, now: Instant, id: HostId) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        host.upstream.connected(now);
        host.connected += 1;
        if host.shard() == self.settings.shard {
            // What was written for the connection before is of no use to this one.
            host.output = Output::default();
            host.backlog = Backlog::default();
            self.stats.upstream.connected += 1;
            self.tell_all_up(id);
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

    /// A host could not be connected.
    pub(crate) fn unreachable(&mut self, now: Instant, id: HostId, cause: &str) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        host.upstream.failed(now, cause.to_owned(), (self.random)());
        host.connect_failures += 1;
        if host.shard() == self.settings.shard {
            self.stats.upstream.connect_failures += 1;
            self.tell_all_down(id, cause);
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

    /// A host came or went: which of them are ready is worked out anew for its services.
    pub(super) fn refresh(&mut self, now: Instant, id: HostId) {
        for service in self.services.of_host(id) {
            self.refresh_service(now, service);
            self.release(now, service);
        }
    }

    /// Tells the host's timer what is due next.
    pub(super) fn watch(&mut self, now: Instant, id: HostId) {
        match self.hosts[id.0 as usize].upstream.poll_timeout(now) {
            Some(at) => self.host_timer.set(id.0, at),
            None => self.host_timer.cancel(id.0),
        }
    }

    /// Something is due on the way to a host.
    pub(super) fn host_due(&mut self, now: Instant, id: HostId) {
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        let own = host.shard() == self.settings.shard;
        let address = host.shared.address;
        if !own {
            // Whether it is silent is its owner's to find out.
            host.upstream.received(now);
            host.upstream.sent(now);
        }
        match host.upstream.handle_timeout(now) {
            Some(upstream::Due::Dial) if own => {
                let number = host.number();
                self.actions.push_back(Action::Dial {
                    host: id,
                    number,
                    address,
                });
            }
            Some(upstream::Due::Heartbeat) if own => {
                event::heartbeat(host.output.queue(), Serialization::HESSIAN2, BEAT, true);
                host.upstream.sent(now);
                self.stats.upstream.heartbeats_sent += 1;
                self.touch_host(id);
            }
            Some(upstream::Due::Dead) if own => {
                let cause = format!("{address} was silent for too long (limits.host_timeout)");
                self.lose(now, id, LostReason::Silent, &cause);
            }
            Some(upstream::Due::Hopeless) => self.refresh(now, id),
            _ => {}
        }
        if self.hosts.contains(id.0 as usize) {
            self.watch(now, id);
        }
    }

    /// A heartbeat or a notice of a provider. READONLY is ours to act on, and goes no further.
    pub(super) fn host_event(
        &mut self,
        now: Instant,
        from: HostId,
        head: &Head,
        two_way: bool,
        frame: &[u8],
    ) {
        let host = &mut self.hosts[from.0 as usize];
        match event::read(head.serialization, &frame[HEAD_LEN..]) {
            Event::ReadOnly => self.read_only(now, from),
            Event::Writeable if host.upstream.is_ready() => {}
            Event::Writeable => {
                host.upstream.writeable();
                self.tell_all_up(from);
                self.refresh(now, from);
            }
            Event::Heartbeat | Event::Other => {
                self.stats.upstream.heartbeats_received += 1;
                if two_way {
                    self.tell_host(from, |queue| {
                        event::heartbeat_answer(queue, head.serialization, head.id);
                    });
                }
            }
        }
    }

    /// A provider takes no new calls on this connection.
    pub(super) fn read_only(&mut self, now: Instant, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        // It is said again in every answer by some.
        if !host.upstream.is_ready() {
            return;
        }
        host.upstream.read_only(now);
        if host.shard() == self.settings.shard {
            self.stats.upstream.read_only_received += 1;
            self.outbox.read_only(host.number());
        }
        self.watch(now, id);
        self.refresh(now, id);
    }

    /// dubbo-go says in an answer's attachments that the *address* is closing. Here the address is
    /// the sidecar's, so the host leaves the picks and the word is cut out. The frame without it.
    #[inline]
    pub(super) fn closing(
        &mut self,
        now: Instant,
        from: HostId,
        head: &Head,
        frame: &[u8],
    ) -> Option<Vec<u8>> {
        let body = &frame[HEAD_LEN..];
        if body.ends_with(USUAL) {
            return None;
        }
        self.closing
            .find(&body[body.len().saturating_sub(TAIL)..])?;
        let (cut, value) = reply::take_attachment(
            head.serialization,
            body,
            "closing",
            &self.bodies,
            &mut self.scratch,
        )?;
        if !value.is(b"true") {
            return None;
        }
        self.read_only(now, from);
        let body_len = u32::try_from(body.len() - cut.len()).ok()?;
        let mut stripped = Head { body_len, ..*head }.encode().to_vec();
        stripped[ID].copy_from_slice(&frame[ID]);
        stripped.extend_from_slice(&body[..cut.start]);
        stripped.extend_from_slice(&body[cut.end..]);
        Some(stripped)
    }

    /// Counts an answer that found no call.
    #[cold]
    pub(super) fn stray(&mut self, id: RequestId) {
        let kind =
            if Slots::<Attempt>::shard_of(id) == self.settings.shard && self.calls.has_been(id) {
                Stray::Late
            } else {
                Stray::Alien
            };
        self.stats.upstream.stray[kind] += 1;
    }

    /// Writes a frame of our own to a host that reads; one that does not is told nothing.
    pub(super) fn tell_host(&mut self, to: HostId, write: impl FnOnce(&mut Vec<u8>)) {
        let host = &mut self.hosts[to.0 as usize];
        if host.pending() <= self.settings.limits.host_queue {
            write(host.output.queue());
            self.touch_host(to);
        }
    }

    /// An output was written, as far as the kernel took it.
    pub(crate) fn host_flushed(&mut self, id: HostId) {
        if self
            .hosts
            .get(id.0 as usize)
            .is_some_and(|host| host.retired)
        {
            self.retired.push(id);
        }
    }

    /// Marks an output as having something to write.
    #[inline]
    pub(super) fn touch_host(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        if !std::mem::replace(&mut host.touched, true) {
            self.touched.push(Peer::Host(id));
        }
    }
}

/// First and longest pause between two dials. A provider of this host, which may start after its
/// sidecar, is asked often: that costs nobody anything.
fn pauses(limits: &Limits, address: SocketAddr) -> (Duration, Duration) {
    let longest = match address.ip().is_loopback() {
        true => limits.reconnect_max.min(LOCAL_PAUSE),
        false => limits.reconnect_max,
    };
    (limits.reconnect_min.min(longest), longest)
}

/// Whether a queue that is half full has room for a sender: of `most` bytes `waiting` are taken.
#[cold]
fn share_left(
    host: &Host,
    sender: Sender,
    waiting: usize,
    len: usize,
    most: usize,
) -> Result<(), String> {
    let address = host.shared.address;
    if waiting + len > most {
        return Err(format!(
            "the queue to {address} is full (limits.host_queue, limits.handoff)"
        ));
    }
    if host.backlog.bytes_of(sender) + len > most / 2 {
        return Err(format!(
            "this connection fills half of the queue to {address} (limits.host_queue)"
        ));
    }
    Ok(())
}

/// Longest pause between two dials of a provider at a loopback address.
const LOCAL_PAUSE: Duration = Duration::from_millis(200);
/// dubbo-go's sign of a closing provider, as a hessian string.
pub(super) const CLOSING: &[u8] = b"\x07closing";
/// How nearly every answer with attachments ends: they start and end in it, so they are no others.
const USUAL: &[u8] = b"\x48\x05dubbo\x052.0.2Z";
/// Bytes of an answer's end in which its attachments are looked for: they stand last.
const TAIL: usize = 4096;
