//! Where providers are registered and found: what every registry can do, whatever it is.
//!
//! Nobody reads a registry as a whole. Whoever wants to know of a service subscribes to it, and gets
//! the whole list of its instances with each change: what was missed in between does not matter, so
//! that a reader who is slow costs one list, never a queue.

pub mod embedded;
mod inbox;

use std::{collections::BTreeMap, fmt, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use dubbo_proto::key::ServiceKey;

pub use inbox::Inbox;

/// One provider of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// What it provides.
    pub service: ServiceKey,
    /// Where it listens; canonical, so that one address is one instance.
    pub address: SocketAddr,
    /// Its share of the calls, in proportion to the others'; 1 to 10,000.
    pub weight: u32,
    /// Whatever else is known of it, as `mesh` and `direct`.
    pub metadata: BTreeMap<String, String>,
}

impl Instance {
    /// The weight of one that names none, as in Dubbo.
    pub const WEIGHT: u32 = 100;
    /// The largest weight, which keeps the sum of a service's far from overflow.
    pub const MAX_WEIGHT: u32 = 10_000;
}

/// An instance as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Who.
    pub instance: Instance,
    /// How long it stays unless it is registered again; `None`: until it is removed.
    pub ttl: Option<Duration>,
}

/// What a registry says of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These are its instances now: all of them, at least one, by address, none twice.
    Set(Arc<[Instance]>),
    /// It has none.
    Gone,
}

/// Where providers are found.
pub trait Discover: fmt::Debug + Send + Sync {
    /// Puts what is registered of `service` into `inbox`, now and whenever it changes, until the
    /// subscription is dropped.
    ///
    /// A registry that has read the service already puts it there before this returns; one that
    /// cannot yet say whether the service exists puts nothing there.
    fn subscribe(&self, service: &ServiceKey, inbox: &Inbox) -> Subscription;

    /// Whether all was read that is subscribed to. Until then, what is not known is pending, not
    /// absent.
    fn is_complete(&self) -> bool;

    /// Every service that has an instance, in order, each with how many there are.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    fn services(&self) -> Answer<'_, Vec<(ServiceKey, u64)>>;
}

/// Where providers are registered.
pub trait Register: fmt::Debug + Send + Sync {
    /// Registers all of these or none. One that is registered already is replaced, and its lease
    /// begins anew. When this returns, a crash of whoever holds the registry loses none of them.
    ///
    /// # Errors
    /// The registry does not take them. A future that is dropped leaves open whether it did.
    fn put(&self, registrations: Vec<Registration>) -> Answer<'_, ()>;

    /// Removes the instances at these addresses, and says how many of them there were.
    ///
    /// # Errors
    /// As [`Self::put`].
    fn remove(&self, instances: Vec<(ServiceKey, SocketAddr)>) -> Answer<'_, usize>;
}

/// What a registry answers in time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Why a registry does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would hold more than it may.
    #[error("there are {limit} {what} already, which is the most; remove some first")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// It cannot be read or written now.
    #[error("the registry does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The interest in one service, until it is dropped.
#[must_use = "dropped, it ends at once"]
pub struct Subscription(#[expect(dead_code, reason = "held to be dropped")] Box<dyn Send + Sync>);

impl Subscription {
    /// One that drops `guard` when it ends.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

#[cfg(test)]
mod conformance;
