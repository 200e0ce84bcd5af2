//! A copy on disk of what the control plane said, to start from when it is away.
//!
//! A thread of its own writes: whoever learns something notes it and goes on. What is not yet written
//! is kept once per service, in its newest form, so that a slow disk costs no memory. Every file is
//! replaced whole (write, fsync, rename): one that is found is as it was written, or foreign.

mod disk;
mod document;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use dubbo_proto::key::ServiceKey;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::disk::{Disk, Writer};
use crate::{metrics, model::Service};

/// The copy, while its thread keeps it. Clones share it; when the last one is dropped, the thread
/// ends after what is noted is written, or failed to be.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Handle>);

/// What a copy holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The services, by key, none twice.
    pub services: Vec<Learned>,
    /// When all of it was true last, as far as anybody noted.
    pub confirmed: Option<SystemTime>,
}

/// A service that was learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// The service.
    pub service: Arc<Service>,
    /// When it came, or came to be like this.
    pub since: SystemTime,
}

#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told when there is something to write, or nothing to come.
    work: Condvar,
    /// Told when all is written.
    done: Condvar,
    /// Services that are kept.
    most: usize,
    metrics: metrics::CopyOnDisk,
}

#[derive(Debug, Default)]
struct State {
    todo: Todo,
    /// What is in the copy, or will be once all is written.
    kept: BTreeSet<ServiceKey>,
    /// The thread writes.
    busy: bool,
    /// Nobody notes anything any more.
    closed: bool,
}

/// What is to be written.
#[derive(Debug, Default)]
struct Todo {
    /// Services as they are, or `None` where they are gone.
    services: BTreeMap<ServiceKey, Option<Learned>>,
    confirmed: Option<SystemTime>,
}

impl Cache {
    /// Reads the copy in `folder`, which is made if it is not there, and keeps it from then on: at
    /// most `most` services, the first ones.
    ///
    /// While another process writes there, this one only reads, and writes when that one has ended.
    ///
    /// # Errors
    /// The folder can neither be made nor read, or there is no thread to be had.
    pub fn open(
        folder: &Path,
        most: usize,
        metrics: metrics::CopyOnDisk,
    ) -> io::Result<(Self, Known)> {
        let disk = Disk::open(folder)?;
        let known = disk.load(most)?;
        let keys = known.services.iter().map(|one| one.service.key.clone());
        let kept: BTreeSet<_> = keys.collect();
        metrics.services.set(count(&kept));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                kept,
                ..State::default()
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            most,
            metrics,
        });
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("xds-cache".into())
            .spawn(move || theirs.write_all(&disk))?;
        Ok((Self(Arc::new(Handle(shared))), known))
    }

    /// Keeps a service as it is now, if there is room.
    pub fn keep(&self, learned: Learned) {
        let key = learned.service.key.clone();
        let most = self.0.0.most;
        self.note(|state| {
            if !state.kept.contains(&key) {
                if state.kept.len() >= most {
                    tracing::warn!(service = %key, "limits.copied_services: the copy on disk is full");
                    return;
                }
                state.kept.insert(key.clone());
            }
            state.todo.services.insert(key, Some(learned));
        });
    }

    /// Keeps a service no longer.
    pub fn forget(&self, key: &ServiceKey) {
        self.note(|state| {
            if state.kept.remove(key) {
                state.todo.services.insert(key.clone(), None);
            }
        });
    }

    /// Notes that all that is kept is true at this time.
    pub fn confirm(&self, at: SystemTime) {
        self.note(|state| state.todo.confirmed = Some(at));
    }

    /// Waits until all that is noted is written. Says whether it was, within that time. Blocks.
    #[must_use]
    pub fn flush(&self, within: Duration) -> bool {
        let shared = &self.0.0;
        let mut state = shared.state.lock();
        let unwritten = |state: &mut State| state.busy || !state.todo.is_empty();
        let waited = shared.done.wait_while_for(&mut state, unwritten, within);
        !waited.timed_out()
    }

    fn note(&self, note: impl FnOnce(&mut State)) {
        let shared = &self.0.0;
        let mut state = shared.state.lock();
        note(&mut state);
        shared.metrics.services.set(count(&state.kept));
        shared.work.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.work.notify_one();
    }
}

impl Shared {
    /// The thread.
    fn write_all(&self, disk: &Disk) {
        let mut writer = None;
        let mut failing = false;
        while let Some(todo) = self.next() {
            let written = self.write(disk, &mut writer, todo);
            let mut state = self.state.lock();
            state.busy = false;
            match written {
                Ok(()) => failing = false,
                Err((left, error)) => {
                    self.metrics.failed.inc();
                    if !failing {
                        tracing::warn!(%error, "the copy on disk is not kept up; tried again");
                    }
                    failing = true;
                    // The folder may be another by then.
                    writer = None;
                    state.todo.put_back(left);
                    if !self.pause(&mut state) {
                        return;
                    }
                }
            }
            if state.todo.is_empty() {
                self.done.notify_all();
            }
        }
    }

    /// Waits for something to write; `None` if nothing will come.
    fn next(&self) -> Option<Todo> {
        let mut state = self.state.lock();
        let idle = |state: &mut State| state.todo.is_empty() && !state.closed;
        self.work.wait_while(&mut state, idle);
        if state.todo.is_empty() {
            return None;
        }
        state.busy = true;
        Some(std::mem::take(&mut state.todo))
    }

    /// Waits a while before the next try. Says whether there shall be one.
    fn pause(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let open = |state: &mut State| !state.closed;
        self.work.wait_while_for(state, open, PAUSE).timed_out()
    }

    /// Writes what is to be written; on an error, what was not.
    fn write(
        &self,
        disk: &Disk,
        writer: &mut Option<Writer>,
        mut todo: Todo,
    ) -> Result<(), (Todo, io::Error)> {
        match self.try_write(disk, writer, &mut todo) {
            Ok(()) => Ok(()),
            Err(error) => Err((todo, error)),
        }
    }

    fn try_write(
        &self,
        disk: &Disk,
        writer: &mut Option<Writer>,
        todo: &mut Todo,
    ) -> io::Result<()> {
        if writer.is_none() {
            *writer = disk.writer()?;
        }
        let Some(writer) = writer else {
            return Err(io::Error::other("another process writes there"));
        };
        while let Some(entry) = todo.services.first_entry() {
            match entry.get() {
                Some(learned) => writer.write(learned)?,
                None => writer.remove(entry.key())?,
            }
            self.metrics.written.inc();
            entry.remove();
        }
        if let Some(at) = todo.confirmed {
            writer.confirm(at)?;
            todo.confirmed = None;
        }
        writer.sync()
    }
}

impl Todo {
    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.confirmed.is_none()
    }

    /// Adds what was taken out before, where nothing newer has come.
    fn put_back(&mut self, before: Self) {
        for (key, learned) in before.services {
            self.services.entry(key).or_insert(learned);
        }
        self.confirmed = self.confirmed.or(before.confirmed);
    }
}

fn count(kept: &BTreeSet<ServiceKey>) -> i64 {
    i64::try_from(kept.len()).unwrap_or(i64::MAX)
}

/// Pause after something could not be written.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
