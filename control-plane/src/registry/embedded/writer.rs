//! The thread that writes: whatever was asked for meanwhile goes into one transaction.

use std::{
    collections::BTreeSet,
    error::Error as _,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use dubbo_proto::key::ServiceKey;
use tokio::sync::oneshot;

use super::{
    leases::{Clock, Leases, Name},
    store::{self, MAX_INSTANCES, MAX_OF_A_SERVICE, Store, Tables, TooMany},
    unavailable,
    watchers::Watchers,
};
use crate::registry::{Error, Registration};

/// What the writer is asked to do, and where it answers.
pub(super) enum Request {
    Put(Vec<Registration>, oneshot::Sender<Result<(), Error>>),
    Remove(Vec<Name>, oneshot::Sender<Result<usize, Error>>),
}

/// The one who writes.
pub(super) struct Writer {
    store: Arc<Store>,
    watchers: Arc<Watchers>,
    requests: Receiver<Request>,
    leases: Leases,
    clock: Clock,
}

/// What became of a request, to be told when it is durable.
enum Done {
    Put(Result<(), TooMany>),
    Removed(usize),
}

impl Writer {
    /// The writer of `store`. Every lease begins anew.
    pub(super) fn new(
        store: Arc<Store>,
        watchers: Arc<Watchers>,
        requests: Receiver<Request>,
    ) -> Result<Self, store::Error> {
        let now = now();
        let mut leases = Leases::default();
        for (service, address, ttl) in store.leased()? {
            leases.set(now, (service, address), Some(ttl));
        }
        Ok(Self {
            store,
            watchers,
            requests,
            leases,
            clock: Clock::new(now),
        })
    }

    /// Writes until nobody can ask any more.
    pub(super) fn run(mut self) {
        let mut time = self.clock.after(Duration::ZERO, now());
        loop {
            let end = self.leases.next_end();
            let wait = end.map_or(IDLE, |end| end.saturating_duration_since(time).min(IDLE));
            let first = match self.requests.recv_timeout(wait) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            time = self.clock.after(wait, now());
            let batch = first.into_iter().chain(self.requests.try_iter());
            let batch = batch.take(MAX_BATCH).collect();
            self.serve(batch, time);
            // After the requests: one of them may have renewed a lease that just ended.
            self.expire(time);
            self.reopen();
            self.watchers.tell_unread();
        }
    }

    /// Does all that is asked in one transaction, then answers.
    fn serve(&mut self, batch: Vec<Request>, now: Instant) {
        let mut writes = Vec::new();
        for request in batch {
            match request {
                // Nothing is written: a fleet that renews its leases costs no disk. Behind a write
                // what is there now need not be there then.
                Request::Put(known, reply)
                    if writes.is_empty() && self.store.has(&known).unwrap_or(false) =>
                {
                    self.lease(known, now);
                    answer(reply, Ok(()));
                }
                other => writes.push(other),
            }
        }
        if writes.is_empty() {
            return;
        }
        let written = self.store.write(|tables| {
            let each = writes.iter().map(|request| request.apply(tables));
            each.collect::<Result<Vec<_>, _>>()
        });
        match written {
            Ok(done) => self.finish(writes, done, now),
            Err(error) => {
                self.recover(&error);
                let error = Arc::new(error);
                for request in writes {
                    request.fail(&error);
                }
            }
        }
    }

    /// What was written is told, and then answered: whoever has the answer knows that all others who
    /// want to know have been told.
    fn finish(&mut self, requests: Vec<Request>, done: Vec<Done>, now: Instant) {
        let changed: BTreeSet<_> = requests
            .iter()
            .zip(&done)
            .filter(|(_, done)| !matches!(done, Done::Put(Err(_))))
            .flat_map(|(request, _)| request.services())
            .collect();
        self.watchers.tell(changed);
        for (request, done) in requests.into_iter().zip(done) {
            match (request, done) {
                (Request::Put(registrations, reply), Done::Put(Ok(()))) => {
                    self.lease(registrations, now);
                    answer(reply, Ok(()));
                }
                (Request::Put(_, reply), Done::Put(Err(too_many))) => {
                    answer(reply, Err(too_many.into()));
                }
                (Request::Remove(names, reply), Done::Removed(count)) => {
                    names.iter().for_each(|name| self.leases.remove(name));
                    answer(reply, Ok(count));
                }
                (Request::Put(..), Done::Removed(_)) | (Request::Remove(..), Done::Put(_)) => {
                    unreachable!("each request is done as what it is")
                }
            }
        }
    }

    fn lease(&mut self, registrations: Vec<Registration>, now: Instant) {
        for Registration { instance, ttl } in registrations {
            self.leases
                .set(now, (instance.service, instance.address), ttl);
        }
    }

    /// Removes what was not renewed.
    fn expire(&mut self, now: Instant) {
        let ended = self.leases.ended(now, MAX_BATCH);
        if ended.is_empty() {
            return;
        }
        let removed = self.store.write(|tables| {
            ended
                .iter()
                .try_for_each(|(service, address)| tables.remove(service, *address).map(drop))
        });
        match removed {
            Ok(()) => {
                for name in &ended {
                    tracing::info!(service = %name.0, address = %name.1, "a lease ended");
                    self.leases.remove(name);
                }
                let services: BTreeSet<_> = ended.into_iter().map(|(service, _)| service).collect();
                self.watchers.tell(&services);
            }
            // They stay, and are tried again.
            Err(error) => self.recover(&error),
        }
    }

    /// After an error of the file, nothing can be read or written before it is opened anew.
    fn recover(&self, error: &store::Error) {
        tracing::error!(%error, source = error.source(), "the registry cannot be written");
        if error.is_fatal()
            && let Err(error) = self.store.reopen()
        {
            tracing::error!(%error, source = error.source(), "the registry cannot be opened anew");
        }
    }

    /// Opens the file anew that could not be before: for those who read, if nobody writes.
    fn reopen(&self) {
        if self.store.is_open() {
            return;
        }
        match self.store.reopen() {
            Ok(()) => tracing::info!("the registry is open again"),
            Err(error) => tracing::debug!(%error, "the registry cannot be opened yet"),
        }
    }
}

impl Request {
    /// What it is about, some of it perhaps twice.
    fn services(&self) -> Vec<&ServiceKey> {
        match self {
            Self::Put(registrations, _) => {
                let instances = registrations.iter().map(|new| &new.instance);
                instances.map(|instance| &instance.service).collect()
            }
            Self::Remove(names, _) => names.iter().map(|(service, _)| service).collect(),
        }
    }

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Done, store::Error> {
        match self {
            Self::Put(registrations, _) => tables.put(registrations).map(Done::Put),
            Self::Remove(names, _) => {
                let mut count = 0;
                for (service, address) in names {
                    count += usize::from(tables.remove(service, *address)?);
                }
                Ok(Done::Removed(count))
            }
        }
    }

    fn fail(self, error: &Arc<store::Error>) {
        let error = unavailable(Arc::clone(error));
        match self {
            Self::Put(_, reply) => answer(reply, Err(error)),
            Self::Remove(_, reply) => answer(reply, Err(error)),
        }
    }
}

impl From<TooMany> for Error {
    fn from(too_many: TooMany) -> Self {
        let (what, limit) = match too_many {
            TooMany::Instances => ("instances", MAX_INSTANCES),
            TooMany::OfAService => ("instances of one service", MAX_OF_A_SERVICE),
        };
        Self::Full { what, limit }
    }
}

/// Whoever asked may have gone away.
fn answer<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}

/// Longest wait of the writer, after which it tries again what failed.
const IDLE: Duration = Duration::from_secs(1);
/// Most requests, and most leases that end, in one transaction.
const MAX_BATCH: usize = 1000;

#[expect(clippy::disallowed_methods, reason = "the driver of the leases")]
fn now() -> Instant {
    Instant::now()
}
