//! The core under virtual time: bytes go in, what would be written comes out.

mod calls;
mod discovery;
mod faults;
mod recent;
mod shards;
mod simulation;
mod truth;

use std::{
    collections::HashMap,
    io::IoSlice,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use dubbo_proto::{
    head::{HEAD_LEN, Head, Kind, RequestId, Serialization, Status},
    invocation::{self, Outgoing},
    reply,
};

use super::{
    buffers::Buffers,
    machine::{Action, Core, Next, Peer, Settings, Taken},
    output::{PIECES, head_at},
    quarantine::Quarantine,
};
use crate::{
    call::{HostId, SessionId},
    config::Limits,
    mesh::{Change, Fact, Mesh, Name, Owner, Resolved},
    metrics::LostReason,
    model::{Idempotent, Profile, Service, Side},
};

/// A core with sockets of paper.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Instant,
    pub(super) mesh: Mesh,
    buffers: Buffers,
    /// Bytes that the kernel of a peer takes at most until it is told more; `None`: all.
    pub(super) kernels: HashMap<Key, usize>,
    /// What was written and not yet looked at.
    written: HashMap<Key, Vec<u8>>,
    pub(super) actions: Vec<Action>,
    /// Whether sidecars of the mesh are the hosts.
    pub(super) sidecars: bool,
    /// Hosts that are told to be unhealthy.
    pub(super) sick: Vec<u16>,
}

/// A peer as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Session(SessionId),
    Host(u32),
}

/// A frame that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn id(&self) -> u64 {
        self.head.id.0
    }

    /// The text of an answer of ours.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn status(&self) -> Status {
        match self.head.kind {
            Kind::Response { status } => status,
            other => panic!("no response: {other:?}"),
        }
    }
}

pub(super) const KEY: &str = "com.foo.Greeter:1.0.0";

impl World {
    /// One service of `hosts` hosts, none of them connected, and changed limits.
    pub(super) fn new(hosts: u16, change: impl FnOnce(&mut Limits, &mut Service)) -> Self {
        let mut limits = Limits::default();
        let mut service = Service::new(KEY.parse().expect("a key"));
        change(&mut limits, &mut service);
        let mut world = Self::shard(0, 1, limits);
        world.serve(service, hosts);
        world
    }

    /// Shard `shard` of `workers`, which knows nothing yet.
    pub(super) fn shard(shard: u8, workers: u8, limits: Limits) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
        let now = Instant::now();
        Self {
            core: core(now, shard, workers, limits.into()),
            now,
            mesh: Mesh::new(workers),
            buffers: Buffers::default(),
            kernels: HashMap::new(),
            written: HashMap::new(),
            actions: vec![],
            sidecars: false,
            sick: vec![],
        }
    }

    /// As [`Self::new`], with every host connected.
    pub(super) fn up(hosts: u16, change: impl FnOnce(&mut Limits, &mut Service)) -> Self {
        let mut world = Self::new(hosts, change);
        for host in 0..hosts {
            world.connect(host.into());
        }
        world.actions.clear();
        world
    }

    /// Makes this service known, on so many hosts.
    pub(super) fn serve(&mut self, service: Service, hosts: u16) {
        let change = self.served(service, hosts);
        self.apply(change);
    }

    /// The change that makes this service known, on so many hosts.
    pub(super) fn served(&mut self, service: Service, hosts: u16) -> Option<Change> {
        let endpoints: Vec<_> = (0..hosts)
            .map(|h| Resolved {
                address: address(h),
                profile: Profile {
                    mesh: self.sidecars,
                    healthy: !self.sick.contains(&h),
                    ..Profile::default()
                },
            })
            .collect();
        let name = Name::Key(service.key.clone());
        let route = self.mesh.route(Arc::new(service), &endpoints);
        self.mesh.set(Owner::Static, name, Fact::Route(route))
    }

    /// Makes the service unknown.
    pub(super) fn forget(&mut self) {
        let name = Name::Key(KEY.parse().expect("a key"));
        let change = self.mesh.remove(Owner::Static, &name);
        self.apply(change);
    }

    pub(super) fn apply(&mut self, change: Option<Change>) {
        self.core.apply(self.now, change.into_iter().collect());
        self.flush();
    }

    pub(super) fn connect(&mut self, host: u32) {
        self.core.connected(self.now, HostId(host));
        self.flush();
    }

    pub(super) fn lose(&mut self, host: u32) {
        self.core.lose(
            self.now,
            HostId(host),
            LostReason::Peer,
            "closed by the test",
        );
        self.kernels.remove(&Key::Host(host));
        self.flush();
    }

    pub(super) fn open(&mut self) -> SessionId {
        let id = self.core.open(self.now, Side::Outbound);
        self.flush();
        id
    }

    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.core.poll_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.core.timeout(self.now);
            self.flush();
            if self.core.poll_timeout() == Some(at) {
                self.now += Duration::from_millis(1);
            }
        }
        self.now = end;
        self.core.timeout(self.now);
        self.flush();
    }

    /// Feeds bytes as one read of a session or host, and writes what came of it.
    pub(super) fn feed(&mut self, from: Key, bytes: &[u8]) -> Taken {
        let buffer = match from {
            Key::Session(_) => self.buffers.for_session(),
            Key::Host(_) => self.buffers.for_host(),
        };
        let input = self.buffers.get_mut(buffer);
        input.extend_from_slice(bytes);
        let taken = match from {
            Key::Session(id) => self.core.requests(self.now, id, buffer, 0, input),
            Key::Host(id) => self.core.replies(self.now, HostId(id), buffer, 0, input),
        };
        if let (Key::Host(id), Some(cause)) = (from, self.core.broken.take()) {
            self.core
                .lose(self.now, HostId(id), LostReason::BadHead, &cause);
        }
        self.flush();
        self.buffers.release(buffer);
        taken
    }

    pub(super) fn request(&mut self, from: SessionId, bytes: &[u8]) {
        let taken = self.feed(Key::Session(from), bytes);
        assert_eq!(
            taken,
            Taken {
                bytes: bytes.len(),
                next: Next::Head
            }
        );
    }

    pub(super) fn reply(&mut self, from: u32, bytes: &[u8]) {
        let taken = self.feed(Key::Host(from), bytes);
        assert_eq!(
            taken,
            Taken {
                bytes: bytes.len(),
                next: Next::Head
            }
        );
    }

    /// What was written to a peer since the last look, as frames.
    pub(super) fn seen(&mut self, by: Key) -> Vec<Seen> {
        let bytes = self.written.remove(&by).unwrap_or_default();
        let (mut frames, mut at) = (vec![], 0);
        while let Some(head) = head_at(&bytes, at) {
            let body = bytes[at + HEAD_LEN..at + head.frame_len()].to_vec();
            frames.push(Seen { head, body });
            at += head.frame_len();
        }
        assert_eq!(at, bytes.len(), "whole frames were written");
        frames
    }

    pub(super) fn session_saw(&mut self, id: SessionId) -> Vec<Seen> {
        self.seen(Key::Session(id))
    }

    pub(super) fn host_saw(&mut self, host: u32) -> Vec<Seen> {
        self.seen(Key::Host(host))
    }

    /// Lets the kernel of a peer take everything again.
    pub(super) fn unblock(&mut self, by: Key) {
        self.kernels.remove(&by);
        match by {
            Key::Session(id) => {
                if let Some(session) = self.core.session_mut(id) {
                    session.output.unblock();
                }
                self.core.touched.push(Peer::Session(id));
            }
            Key::Host(id) => {
                if let Some(host) = self.core.host_mut(HostId(id)) {
                    host.refill();
                }
                self.core.touched.push(Peer::Host(HostId(id)));
            }
        }
        self.flush();
    }

    /// As the driver: writes each touched output as far as its kernel takes it.
    fn flush(&mut self) {
        while let Some(peer) = self.core.touched.pop() {
            let (key, output) = match peer {
                Peer::Session(id) => {
                    let Some(session) = self.core.session_mut(id) else {
                        continue;
                    };
                    session.untouch();
                    (Key::Session(id), &mut session.output)
                }
                Peer::Host(id) => {
                    let Some(host) = self.core.host_mut(id) else {
                        continue;
                    };
                    host.untouch();
                    (Key::Host(id.0), &mut host.output)
                }
            };
            output.gather(&self.buffers);
            while !output.is_blocked() {
                let mut pieces = [IoSlice::new(&[]); PIECES];
                let (count, bytes) = output.pieces(&self.buffers, &mut pieces);
                let kernel = self.kernels.entry(key).or_insert(usize::MAX);
                let taken = bytes.min(*kernel);
                *kernel -= if *kernel == usize::MAX { 0 } else { taken };
                let all: Vec<u8> = pieces[..count].iter().flat_map(|p| p.to_vec()).collect();
                self.written.entry(key).or_default().extend(&all[..taken]);
                output.accepted(taken, &self.buffers);
                if taken < bytes {
                    output.refused(&self.buffers);
                } else if output.pending() == 0 {
                    break;
                }
            }
            match peer {
                Peer::Session(id) => self.core.session_flushed(id),
                Peer::Host(id) => {
                    self.core.host_flushed(id);
                    if let Some(host) = self.core.host_mut(id)
                        && !host.output.is_blocked()
                        && host.pending() > 0
                    {
                        host.refill();
                        self.core.touched.push(peer);
                    }
                }
            }
        }
        self.actions
            .extend(std::iter::from_fn(|| self.core.poll_action()));
    }
}

/// The core of shard `shard` of `workers`.
pub(super) fn core(now: Instant, shard: u8, workers: u8, limits: Arc<Limits>) -> Core {
    let settings = Settings {
        shard,
        limits,
        default: None,
        may_ask: false,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let random = Box::new(move || rng.u64(..));
    let quarantine = Quarantine::new(PathBuf::from("/dev/null"), 0);
    Core::new(now, settings, workers, random, quarantine)
}

pub(super) fn address(host: u16) -> SocketAddr {
    ([127, 0, 0, 1], 20880 + host).into()
}

pub(super) fn idempotent(service: &mut Service) {
    service.idempotent = Idempotent::Methods(["find".into()].into());
}

/// A call of `method` with `extra` attachments.
pub(super) fn call(id: u64, method: &str, two_way: bool, extra: &[(&str, &str)]) -> Vec<u8> {
    call_of("com.foo.Greeter", "1.0.0", id, method, two_way, extra)
}

pub(super) fn call_of(
    path: &str,
    version: &str,
    id: u64,
    method: &str,
    two_way: bool,
    extra: &[(&str, &str)],
) -> Vec<u8> {
    let mut attachments = vec![("path", path), ("interface", path), ("version", version)];
    attachments.extend(extra);
    let types = "Ljava/lang/String;";
    let mut body = vec![];
    let arguments = b"\x05hello";
    let call = Outgoing {
        path,
        version,
        method,
        types,
        arguments,
        attachments: &attachments,
    };
    invocation::write(&mut body, &call);
    frame(Kind::Request { two_way }, id, &body)
}

pub(super) fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
    let body_len = u32::try_from(body.len()).expect("short");
    let serialization = Serialization::HESSIAN2;
    let head = Head {
        kind,
        serialization,
        id: RequestId(id),
        body_len,
    };
    [head.encode().as_slice(), body].concat()
}

/// A provider's answer to a frame it saw.
pub(super) fn answer(to: &Seen) -> Vec<u8> {
    let mut out = vec![];
    reply::value(&mut out, to.head.id, true, Some(b"\x05world"));
    out
}
