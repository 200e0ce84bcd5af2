//! A registry of our own, in one durable file: for whoever has none, and for tests.
//!
//! One thread writes, many requests in one transaction; whoever reads does so from a snapshot and
//! waits for nobody. What is registered for a time is a lease: leases are kept in memory alone, and
//! run on from the start, so that nobody is dropped because the pilot was away, and a renewal writes
//! nothing.

mod leases;
mod store;
mod watchers;
mod writer;

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use dubbo_proto::key::ServiceKey;
use tokio::sync::oneshot;

use self::{
    store::Store,
    watchers::Watchers,
    writer::{Request, Writer},
};
use super::{Answer, Discover, Error, Inbox, Register, Registration, Subscription};

pub use store::{MAX_INSTANCES, MAX_OF_A_SERVICE, OpenError};

/// The registry in a file. Dropped, it writes what it was asked to, and closes the file.
pub struct Embedded {
    store: Arc<Store>,
    watchers: Arc<Watchers>,
    requests: Option<mpsc::SyncSender<Request>>,
    writer: Option<thread::JoinHandle<()>>,
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file cannot be used.
    #[error("{}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// There is no thread for the one who writes.
    #[error("cannot start a thread for the registry")]
    Thread(#[from] io::Error),
}

/// How much is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Services that have an instance.
    pub services: u64,
    /// Instances of all services.
    pub instances: u64,
}

impl Embedded {
    /// Opens the registry in `file`, or makes one. Whatever was answered before a crash is there.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(file: &Path) -> Result<Self, StartError> {
        let opened = Store::open(file).map_err(|source| StartError::Open {
            file: file.into(),
            source,
        });
        let store = Arc::new(opened?);
        let watchers = Arc::new(Watchers::new(Arc::clone(&store)));
        let (requests, received) = mpsc::sync_channel(MAX_WAITING);
        let writer = Writer::new(Arc::clone(&store), Arc::clone(&watchers), received);
        let writer = writer.map_err(|source| StartError::Open {
            file: file.into(),
            source: source.into(),
        })?;
        let writer = thread::Builder::new()
            .name("registry".into())
            .spawn(move || writer.run())?;
        Ok(Self {
            store,
            watchers,
            requests: Some(requests),
            writer: Some(writer),
        })
    }

    /// What is registered of `service`, by address.
    pub fn registrations(&self, service: &ServiceKey) -> Answer<'_, Vec<Registration>> {
        let service = service.clone();
        self.read(move |store| store.list(&service))
    }

    /// How much is registered.
    pub fn size(&self) -> Answer<'_, Size> {
        self.read(Store::size)
    }

    /// Has the file fail until it is mended.
    #[cfg(test)]
    pub(crate) fn fail(&self) {
        self.store.fail();
    }

    /// Reads on a thread that may wait for the disk.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> Result<T, store::Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || read(&store));
            let read = read.await.map_err(unavailable)?;
            read.map_err(unavailable)
        })
    }

    /// Has the writer do what `request` makes of the way for its answer.
    fn write<T: Send + 'static>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Request + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let sent = match &self.requests {
                Some(requests) => requests.try_send(request(reply)),
                None => unreachable!("it is taken when this is dropped"),
            };
            match sent {
                Ok(()) => answer.await.map_err(unavailable)?,
                Err(mpsc::TrySendError::Full(_)) => Err(Error::Full {
                    what: "requests that wait",
                    limit: MAX_WAITING as u64,
                }),
                Err(gone @ mpsc::TrySendError::Disconnected(_)) => {
                    Err(unavailable(io::Error::other(gone.to_string())))
                }
            }
        })
    }
}

impl Discover for Embedded {
    fn subscribe(&self, service: &ServiceKey, inbox: &Inbox) -> Subscription {
        self.watchers.subscribe(service, inbox)
    }

    fn is_complete(&self) -> bool {
        self.watchers.are_told()
    }

    fn services(&self) -> Answer<'_, Vec<(ServiceKey, u64)>> {
        self.read(Store::services)
    }
}

impl Register for Embedded {
    fn put(&self, registrations: Vec<Registration>) -> Answer<'_, ()> {
        self.write(|reply| Request::Put(registrations, reply))
    }

    fn remove(&self, instances: Vec<(ServiceKey, SocketAddr)>) -> Answer<'_, usize> {
        self.write(|reply| Request::Remove(instances, reply))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The writer ends when nobody can ask it any more.
        drop(self.requests.take());
        if self
            .writer
            .take()
            .is_some_and(|writer| writer.join().is_err())
        {
            tracing::error!("the registry's writer failed");
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unavailable(Box::new(error))
}

/// Requests that may wait for the writer, which takes them all at once.
const MAX_WAITING: usize = 1024;

#[cfg(test)]
mod tests;
