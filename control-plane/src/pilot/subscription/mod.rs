//! What one client asks for and what it was told: a machine without I/O, one for each stream.
//!
//! ```text
//! request ──> names, ACK, NACK ──> due ──┐        ┌──> answer, remembered until its ACK or NACK
//! change of a service ─────────────> due ┴ look up ┤
//!                                    (when the     └──> pending: not a word, until it changes
//!                                   client reads)
//! ```
//!
//! A change only marks a name as due. What it is then is looked up when the client takes the next
//! answer: a client that is slow gets the newest, and whatever happens meanwhile costs one mark.
//! A name that is told once is told again when, and only when, it differs from what the client has,
//! or when the client asks for it anew. What was rejected is not sent again until it changes.
//!
//! Both forms of the protocol run on the same names: `delta` and `sotw` read their requests and write
//! their answers.
//!
//! Source: Envoy's documentation, "xDS REST and gRPC protocol".

mod delta;
mod interest;
mod node;
mod sotw;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names::{self, Type},
    xds::core,
};

use self::interest::Interest;
pub use self::{
    interest::{Rejection, Summary},
    node::Node,
};
use super::resources::{Found, Resources, routes};
use crate::catalog::Catalog;

/// One stream of one client.
#[derive(Debug, Default)]
pub struct Subscription {
    node: Arc<Node>,
    /// Of each type that was asked for, in the order in which a client can use them.
    interests: Vec<Interest>,
    /// Services that at least one name stands for, and how many do.
    services: BTreeMap<ServiceKey, usize>,
    needs: VecDeque<Need>,
    /// What the tables of routes are made of.
    routed: BTreeSet<ServiceKey>,
    nonce: u64,
}

/// What has to be done so that a client can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The service is wanted from now on.
    Want(ServiceKey),
    /// It is wanted no longer.
    Leave(ServiceKey),
}

/// What answers are made from.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// What services there are.
    pub catalog: &'a Catalog,
    /// What these are on the wire.
    pub resources: &'a Resources,
}

/// Why a client gets no further answers: it asks for more than one client may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Names of one type.
    #[error("more than {MAX_NAMES} names of {0}")]
    Names(String),
    /// Types.
    #[error("more than {MAX_TYPES} types of resources")]
    Types,
    /// The name or the type URL is longer than any of a service.
    #[error("a name or type URL of more than {MAX_NAME} bytes")]
    Name,
}

/// When something happened, and what the client said of it.
#[derive(Debug)]
struct Verdict<'a> {
    nonce: &'a str,
    error: Option<&'a str>,
    now: SystemTime,
}

impl Subscription {
    /// Takes out the next thing that has to be done.
    pub fn poll_need(&mut self) -> Option<Need> {
        self.needs.pop_front()
    }

    /// These services changed. Whether any of them is asked for here.
    pub fn changed(&mut self, services: &[ServiceKey]) -> bool {
        let mut ours = false;
        for service in services {
            if self.services.contains_key(service) {
                ours = true;
                for interest in &mut self.interests {
                    interest.service_changed(service);
                }
            }
        }
        ours
    }

    /// Any service may have changed.
    pub fn all_changed(&mut self) {
        for interest in &mut self.interests {
            interest.all_changed();
        }
    }

    /// Whether [`Self::delta`] or [`Self::sotw`] may have something to say.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.interests.iter().any(Interest::is_due)
    }

    /// Who the client says it is.
    #[must_use]
    pub const fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// How it stands with each type.
    #[must_use]
    pub fn summary(&self) -> Vec<Summary> {
        self.interests.iter().map(Interest::summary).collect()
    }

    /// Takes over what a request says of its sender. Clients say it in the first request of a stream;
    /// ours may say it again, when it depends on other services.
    fn meet(&mut self, node: Option<core::Node>) -> Result<(), Error> {
        let Some(node) = node else { return Ok(()) };
        let node = Node::read(node);
        if node.services.len() > MAX_NAMES {
            return Err(Error::Names(names::NODE_SERVICES.into()));
        }
        let before = std::mem::replace(&mut self.node, Arc::new(node));
        if before.services != self.node.services {
            for at in 0..self.interests.len() {
                self.spread(at);
            }
            self.reroute();
        }
        Ok(())
    }

    /// The place of a type among [`Self::interests`].
    fn interest(&mut self, url: &str) -> Result<usize, Error> {
        if let Some(at) = self.interests.iter().position(|known| known.url() == url) {
            return Ok(at);
        }
        if self.interests.len() == MAX_TYPES {
            return Err(Error::Types);
        }
        if url.len() > MAX_NAME {
            return Err(Error::Name);
        }
        let interest = Interest::new(url);
        let later = |known: &Interest| known.order() > interest.order();
        let at = self.interests.iter().position(later);
        let at = at.unwrap_or(self.interests.len());
        self.interests.insert(at, interest);
        Ok(at)
    }

    /// Subscribes to `name` by its name.
    fn subscribe(&mut self, at: usize, name: &str) -> Result<(), Error> {
        let interest = &mut self.interests[at];
        if name.len() > MAX_NAME {
            return Err(Error::Name);
        }
        if interest.len() >= MAX_NAMES && !interest.has(name) {
            return Err(Error::Names(interest.url().into()));
        }
        if let Some(service) = interest.subscribe(name) {
            self.add(service);
        }
        Ok(())
    }

    /// Ends a subscription by name.
    fn unsubscribe(&mut self, at: usize, name: &str) {
        if let Some(service) = self.interests[at].unsubscribe(name) {
            self.drop_one(&service);
        }
    }

    /// Subscribes to whatever the node depends on, or no longer.
    fn wildcard(&mut self, at: usize, wanted: bool) {
        if self.interests[at].set_wildcard(wanted) {
            self.spread(at);
        }
    }

    /// Brings the names that a wildcard stands for up to date.
    fn spread(&mut self, at: usize) {
        let (added, left) = self.interests[at].spread(&self.node.services);
        added.into_iter().for_each(|service| self.add(service));
        left.iter().for_each(|service| self.drop_one(service));
    }

    fn add(&mut self, service: ServiceKey) {
        let names = self.services.entry(service.clone()).or_default();
        *names += 1;
        if *names == 1 {
            self.needs.push_back(Need::Want(service));
        }
    }

    fn drop_one(&mut self, service: &ServiceKey) {
        if let Some(names) = self.services.get_mut(service) {
            *names -= 1;
            if *names == 0 {
                self.services.remove(service);
                self.needs.push_back(Need::Leave(service.clone()));
            }
        }
    }

    /// Looks whether the tables of routes are still those of the clusters that the client knows.
    fn reroute(&mut self) {
        let clusters = self
            .interests
            .iter()
            .filter(|interest| interest.kind() == Some(Type::Cluster));
        let mut routed = self.node.services.clone();
        routed.extend(clusters.flat_map(Interest::services).cloned());
        if routed != self.routed {
            self.routed = routed;
            let tables = self.interests.iter_mut();
            tables
                .filter(|interest| interest.kind() == Some(Type::Routes))
                .for_each(Interest::all_changed);
        }
    }

    fn next_nonce(&mut self) -> String {
        self.nonce += 1;
        format!("{:x}", self.nonce)
    }
}

/// What there is under a name, as far as it is known.
fn look_up(
    interest: &Interest,
    name: &str,
    routed: &BTreeSet<ServiceKey>,
    known: Known<'_>,
) -> Found {
    match (interest.kind(), interest.service(name)) {
        (Some(Type::Routes), _) => Found::Present(Arc::new(routes(name, routed))),
        (Some(kind), Some(service)) => known.resources.find(known.catalog, kind, service),
        // Neither a type nor a name of ours: that is certain without asking anybody.
        (None, _) | (_, None) => Found::Absent,
    }
}

/// Most names of one type that a client may ask for: all that a proxy may be told to declare, and
/// what it learns besides.
pub const MAX_NAMES: usize = 200_000;
/// Most types: ours, and those of a client that speaks of more than we do.
pub const MAX_TYPES: usize = 16;
/// Most bytes of a name: a key of three long parts.
pub const MAX_NAME: usize = 1024;
/// Bytes of resources that an answer has at most if it has several. Clients take messages of 4 MiB.
const MAX_BYTES: usize = 1 << 20;
/// Most answers of one type that wait for ACK or NACK; until there is room, changes gather.
const MAX_IN_FLIGHT: usize = 8;

#[cfg(test)]
mod tests;
