//! The hot path: a request comes in, is sent to a host, and its reply goes back.
//!
//! Nothing here waits, locks or allocates in steady state. A frame is walked once, its id swapped
//! where it lies, and it leaves as a run of the read buffer it came in.

use std::time::Instant;

use dubbo_proto::{
    frame,
    head::{HEAD_LEN, Head, ID, Kind, RequestId, Serialization, Status},
    invocation::{self, Invocation},
    mux::inflight::Slots,
    reply,
};

use super::{
    answers::Refusal,
    backlog::Sender,
    buffers::BufferId,
    machine::{Action, Attempt, Core, Next, Of, Source, Taken},
    output::Place,
    recent::Told,
};
use crate::{
    call::{Call, Failure, HostId, ServiceId, SessionId},
    metrics::{CloseReason, Outcome, ProviderStatus, Stray},
    model::Side,
    policy::timeout,
};

impl Core {
    /// Takes the whole frames that an application or peer sent; `input` stands at `start` in
    /// `buffer`.
    pub(crate) fn requests(
        &mut self,
        now: Instant,
        from: SessionId,
        buffer: BufferId,
        start: usize,
        input: &mut [u8],
    ) -> Taken {
        let Some(session) = self.session_mut(from) else {
            return Taken::STOP;
        };
        session.received(now);
        let side = session.side;
        let mut at = 0;
        loop {
            let head = match frame::peek(&input[at..], self.frames) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    return Taken {
                        bytes: at,
                        next: Next::Head,
                    };
                }
                Err(error) => return self.broken_session(now, from, &input[at..], error),
            };
            let len = head.frame_len();
            let Some(frame) = input[at..].get_mut(..len) else {
                return Taken {
                    bytes: at,
                    next: Next::Frame(len),
                };
            };
            let place = Place {
                buffer,
                start: start + at,
            };
            self.stats.sessions[side].io.frames_in += 1;
            self.at_hand = Some(place);
            match head.kind {
                Kind::Request { .. } => self.request(now, from, side, &head, place, frame),
                Kind::Event { two_way } => self.session_event(from, &head, two_way),
                Kind::EventResponse { .. } => {}
                Kind::Response { .. } => self.stats.upstream.stray[Stray::Alien] += 1,
            }
            at += len;
        }
    }

    /// One request: which call it is, and on with it.
    #[inline]
    fn request(
        &mut self,
        now: Instant,
        from: SessionId,
        side: Side,
        head: &Head,
        place: Place,
        frame: &mut [u8],
    ) {
        if !self.quarantine.is_empty() && self.quarantine.holds(&frame[HEAD_LEN..]) {
            self.stats.quarantine_refused += 1;
            return self.refuse(from, head, Refusal::Quarantined);
        }
        match self.call(now, from, side, head, &frame[HEAD_LEN..]) {
            Ok(call) => self.attempt(now, call, Source::Read(place), frame),
            Err(refusal) => self.refuse(from, head, refusal),
        }
    }

    /// Finds the service of a request and its deadline.
    #[inline]
    pub(super) fn call(
        &mut self,
        now: Instant,
        from: SessionId,
        side: Side,
        head: &Head,
        body: &[u8],
    ) -> Result<Call, Refusal> {
        let told = self.told(side, head.serialization, body)?;
        let service = self.services.get(told.service);
        let limits = &self.settings.limits;
        let bound = service.timeout().unwrap_or(limits.default_timeout);
        let (remaining, longest) = (told.remaining, limits.max_timeout);
        let deadline = timeout::deadline(now, remaining, told.timeout, bound, longest);
        Ok(Call {
            session: from,
            id: head.id,
            service: told.service,
            started: now,
            deadline: deadline.ok_or(Refusal::Expired)?,
            serialization: head.serialization,
            two_way: matches!(head.kind, Kind::Request { two_way: true }),
            idempotent: told.idempotent && service.retries() > 0,
            retries: service.retries(),
            moves: 0,
            held: false,
            copy: None,
        })
    }

    /// What a request says beside its arguments: as an earlier one did, or read.
    #[inline]
    fn told(
        &mut self,
        side: Side,
        serialization: Serialization,
        body: &[u8],
    ) -> Result<Told, Refusal> {
        let Self {
            recent,
            bodies,
            scratch,
            services,
            actions,
            ..
        } = self;
        if let Some(told) = recent.find(side, serialization, body, bodies, scratch) {
            return Ok(told);
        }
        match &Invocation::peek(serialization, body, bodies, scratch) {
            Ok(call) if call.attachments.callback || call.attachments.stub_event => {
                Err(Refusal::Callback)
            }
            Ok(call) => {
                let service = match services.find(side, call) {
                    Some(service) => service,
                    None => {
                        let (service, ask) = services.ask(side, call)?;
                        actions.extend(ask);
                        service
                    }
                };
                let told = Told {
                    service,
                    remaining: call.attachments.remaining,
                    timeout: call.attachments.timeout,
                    idempotent: call.attachments.idempotent
                        || services.get(service).permits(call.real_method()),
                };
                recent.learn(side, body, call, told);
                Ok(told)
            }
            Err(invocation::Error::Unreadable(_)) => {
                let service = services.unreadable(side);
                Ok(Told {
                    service: service.ok_or(Refusal::Unreadable(serialization))?,
                    remaining: None,
                    timeout: None,
                    idempotent: false,
                })
            }
            Err(error) => Err(Refusal::Malformed(*error)),
        }
    }

    /// The first attempt of a call: picks a host and sends it there, or holds the call.
    #[inline]
    pub(super) fn attempt(
        &mut self,
        now: Instant,
        mut call: Call,
        source: Source,
        frame: &mut [u8],
    ) {
        let Some(host) = self.pick(call.service, None) else {
            return self.hold(now, call, frame);
        };
        let sender = Sender::Session(call.session);
        if let Err(full) = self.room(host, sender, frame.len()) {
            return self.fail(call, Failure::Overflow, format_args!("{full}"));
        }
        if !call.two_way {
            self.count_one_way(&call);
            return self.send(now, host, sender, source, frame);
        }
        let most = self.settings.limits.held_bytes;
        if self.may_send_again(&call, host) && self.copied + frame.len() <= most {
            call.copy = Some(self.copy_of(frame));
        }
        let id = match self.track(call, Some(host)) {
            Ok(id) => id,
            Err(call) => return self.fail(call, Failure::Overflow, format_args!("{TABLE_FULL}")),
        };
        frame[ID].copy_from_slice(&id.0.to_be_bytes());
        self.send(now, host, sender, source, frame);
    }

    /// Puts a call into the table, with its deadline; hands it back if the table is full.
    #[inline]
    pub(super) fn track(&mut self, call: Call, host: Option<HostId>) -> Result<RequestId, Call> {
        let (session, deadline) = (call.session, call.deadline);
        let most = self.settings.limits.max_in_flight_per_session;
        if self
            .session_mut(session)
            .is_some_and(|s| s.in_flight as usize >= most)
        {
            return Err(call);
        }
        let attempt = Attempt {
            host,
            next: None,
            of: Of::Call(call),
        };
        let id = match self.calls.insert(attempt) {
            Ok(id) => id,
            Err(Attempt {
                of: Of::Call(call), ..
            }) => return Err(call),
            Err(_) => unreachable!("the table hands back what it was given"),
        };
        self.deadlines.set(Slots::<Attempt>::slot_of(id), deadline);
        if let Some(session) = self.session_mut(session) {
            session.in_flight += 1;
        }
        if let Some(host) = host {
            self.hosts[host.0 as usize].in_flight += 1;
        }
        Ok(id)
    }

    /// A host of a service, by its balancer; another than `left`.
    #[inline]
    pub(super) fn pick(&mut self, service: ServiceId, left: Option<HostId>) -> Option<HostId> {
        let service = self.services.get(service);
        let hosts = &self.hosts;
        let load = |host: HostId| hosts[host.0 as usize].in_flight;
        service
            .ready
            .pick(service.balance(), &mut self.random, left, load)
    }

    /// Puts a frame into the output of a host, or into the batch for the shard that owns it.
    #[inline]
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: HostId,
        sender: Sender,
        source: Source,
        frame: &[u8],
    ) {
        let host = &mut self.hosts[to.0 as usize];
        self.stats.upstream.io.frames_out += 1;
        if host.shard() != self.settings.shard {
            self.stats.handoff_calls += 1;
            return self.outbox.call(host.shard(), host.number(), frame);
        }
        host.upstream.sent(now);
        if host.output.is_blocked() {
            return host.backlog.push(sender, frame);
        }
        match source {
            Source::Read(place) => host.output.push(place, frame.len()),
            Source::Copy => host.output.append(frame),
        }
        self.touch_host(to);
    }

    /// Takes the whole frames that a provider sent; `input` stands at `start` in `buffer`.
    pub(crate) fn replies(
        &mut self,
        now: Instant,
        from: HostId,
        buffer: BufferId,
        start: usize,
        input: &mut [u8],
    ) -> Taken {
        self.hosts[from.0 as usize].upstream.received(now);
        let mut at = 0;
        loop {
            let head = match frame::peek(&input[at..], self.frames) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    return Taken {
                        bytes: at,
                        next: Next::Head,
                    };
                }
                Err(error) => return self.broken_host(now, from, at, error),
            };
            let len = head.frame_len();
            let Some(frame) = input[at..].get_mut(..len) else {
                return Taken {
                    bytes: at,
                    next: Next::Frame(len),
                };
            };
            let place = Place {
                buffer,
                start: start + at,
            };
            self.at_hand = Some(place);
            self.stats.upstream.io.frames_in += 1;
            match head.kind {
                Kind::Response { status } => {
                    let shard = Slots::<Attempt>::shard_of(head.id);
                    if shard == self.settings.shard {
                        self.reply(now, from, &head, status, Source::Read(place), frame);
                    } else {
                        let number = self.hosts[from.0 as usize].number();
                        if !self.outbox.reply(shard, number, frame) {
                            self.stats.upstream.stray[Stray::Late] += 1;
                        }
                    }
                }
                Kind::Event { two_way } => self.host_event(now, from, &head, two_way, frame),
                Kind::EventResponse { .. } => {}
                Kind::Request { two_way } => self.refuse_host(from, &head, two_way),
            }
            at += len;
        }
    }

    /// One reply: its call, and back to where that came from.
    #[inline]
    pub(super) fn reply(
        &mut self,
        now: Instant,
        from: HostId,
        head: &Head,
        status: Status,
        source: Source,
        frame: &mut [u8],
    ) {
        if self
            .calls
            .get(head.id)
            .is_none_or(|attempt| attempt.host != Some(from))
        {
            return self.stray(head.id);
        }
        if status != Status::OK && self.hosts[from.0 as usize].mesh {
            let refusal = not_run(head.serialization, &frame[HEAD_LEN..]);
            if let Some(cause) = refusal {
                let failure = Failure::Unreachable;
                return self.attempt_failed(now, head.id, failure, &cause, None);
            }
        }
        let Some(call) = self.finish(head.id) else {
            return;
        };
        let body = &frame[HEAD_LEN..];
        let outcome = match reply::kind(status, head.serialization, body) {
            reply::Kind::Exception => Outcome::Exception,
            reply::Kind::Error => Outcome::Error,
            _ => Outcome::Ok,
        };
        let side = self.side(call.session);
        let calls = &mut self.stats.calls[side];
        calls.finished[outcome] += 1;
        calls
            .duration
            .observe(now.saturating_duration_since(call.started));
        if outcome == Outcome::Error {
            calls.provider_errors[ProviderStatus::of(status)] += 1;
        }
        self.hosts[from.0 as usize].finished[outcome] += 1;
        self.services.get_mut(call.service).finished[outcome] += 1;
        frame[ID].copy_from_slice(&call.id.0.to_be_bytes());
        match self.closing(now, from, head, frame) {
            None => self.deliver(call.session, source, frame),
            Some(stripped) => self.deliver(call.session, Source::Copy, &stripped),
        }
        self.recycle(call.copy);
    }

    /// Takes a call out of the table, with all its attempts: the first answer frees all.
    #[inline]
    pub(super) fn finish(&mut self, id: RequestId) -> Option<Call> {
        let primary = match self.calls.get(id)?.of {
            Of::Call(_) => id,
            Of::Primary(primary) => primary,
        };
        let mut attempt = self.calls.remove(primary)?;
        self.deadlines.cancel(Slots::<Attempt>::slot_of(primary));
        let mut next = attempt.next;
        while let Some(sibling) = next.and_then(|id| self.calls.remove(id)) {
            self.leave(sibling.host);
            next = sibling.next;
        }
        self.leave(attempt.host.take());
        let Of::Call(mut call) = attempt.of else {
            return None;
        };
        self.unhold(&mut call);
        if let Some(session) = self.session_mut(call.session) {
            session.in_flight -= 1;
        }
        Some(call)
    }

    /// An attempt runs no longer on its host.
    #[inline]
    pub(super) fn leave(&mut self, host: Option<HostId>) {
        let Some(id) = host else { return };
        let Some(host) = self.hosts.get_mut(id.0 as usize) else {
            return;
        };
        host.in_flight -= 1;
        if host.retired {
            self.retired.push(id);
        }
    }

    /// Puts a frame into the output of a session that still exists and reads.
    #[inline]
    pub(super) fn deliver(&mut self, to: SessionId, source: Source, frame: &[u8]) {
        let most = self.settings.limits.session_queue;
        let Some(session) = self.session_mut(to) else {
            return;
        };
        if session.output.pending() > most {
            return self.close_session(to, CloseReason::SlowReader);
        }
        match source {
            Source::Read(place) if !session.output.is_blocked() => {
                session.output.push(place, frame.len());
            }
            _ => session.output.append(frame),
        }
        let side = session.side;
        self.stats.sessions[side].io.frames_out += 1;
        self.touch_session(to);
    }

    /// The next thing to do beside moving bytes.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        while let Some(host) = self.retired.pop() {
            self.forget_if_unused(host);
        }
        self.actions.pop_front()
    }

    /// Closes the connection to a host whose stream is broken, or skips what is too long.
    fn broken_host(&mut self, now: Instant, from: HostId, at: usize, error: frame::Error) -> Taken {
        match error {
            frame::Error::TooLong { head, .. } if head.body_len <= i32::MAX.cast_unsigned() => {
                if matches!(head.kind, Kind::Response { .. }) {
                    self.reply_too_long(now, from, head.id, error);
                }
                Taken {
                    bytes: at,
                    next: Next::Skip(head.frame_len()),
                }
            }
            error => {
                self.broken = Some(format!("bad answer: {error}"));
                Taken {
                    bytes: at,
                    next: Next::Stop,
                }
            }
        }
    }

    /// The side that a session came in on.
    #[inline]
    pub(super) fn side(&self, of: SessionId) -> Side {
        self.sessions
            .get(of.index as usize)
            .map_or(Side::Outbound, |s| s.side)
    }
}

/// Details of an overflow of the table.
pub(super) const TABLE_FULL: &str =
    "too many calls in flight (limits.max_in_flight, limits.max_in_flight_per_session)";

/// What the sidecar of a provider says of a call that it did not let run: that another may.
#[cold]
fn not_run(serialization: Serialization, body: &[u8]) -> Option<String> {
    let text = reply::error_text(serialization, body)?;
    let codes = ["NR ", "UH ", "UF ", "UO "];
    let is_ours = codes.iter().any(|code| text.starts_with(code));
    is_ours.then(|| format!("the provider's sidecar did not let it run: {text}"))
}
