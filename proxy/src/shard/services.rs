//! The mirror of the mesh: which service a call is for, and which hosts of it take calls now.

use std::sync::Arc;

use dubbo_proto::{
    head::RequestId,
    invocation::Invocation,
    key::{KeyRef, ServiceKey},
};
use indexmap::{Equivalent, IndexMap};

use crate::{
    call::{HostId, ServiceId},
    mesh::{Name, Route},
    metrics::{Counts, Outcome},
    model::{Balance, Side},
    policy::balance::Ready,
};

/// The services of a shard. One that is gone has no route, and gives its place back once no call is
/// for it.
#[derive(Debug, Default)]
pub(super) struct Services {
    keys: Index,
    interfaces: Index,
    inbound: Option<ServiceId>,
    /// Where calls go whose service cannot be read.
    default: Option<ServiceKey>,
    list: Vec<Service>,
    /// Most services that calls may ask for at a time; 0 if there is nobody to ask.
    pub(super) may_ask: usize,
    /// Services that calls asked for.
    pub(super) asked: usize,
    /// Places of services that nobody names any more.
    pub(super) gone: Vec<ServiceId>,
    /// Places without a service.
    free: Vec<ServiceId>,
}

type Index = IndexMap<ServiceKey, ServiceId, foldhash::fast::RandomState>;

/// How far a service that a call asked for is from being known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Asked {
    /// No call asked for it.
    #[default]
    No,
    /// Nothing is told yet: its calls wait.
    Waiting,
    /// It is known.
    Known,
    /// There is no such service.
    Absent,
}

/// One service.
#[derive(Debug)]
pub(super) struct Service {
    /// Under which name calls find it.
    pub(super) name: Name,
    /// `None` if it is gone.
    pub(super) route: Option<Arc<Route>>,
    /// The hosts of the route, in its order.
    pub(super) hosts: Vec<HostId>,
    /// Those of them that take calls now.
    pub(super) ready: Ready,
    /// Whether calls asked for it, and what came of that.
    pub(super) asked: Asked,
    /// Calls that wait for one of them, or until it is told what the service is.
    pub(super) held: Vec<RequestId>,
    /// Calls that ended, by outcome.
    pub(super) finished: Counts<Outcome>,
}

impl Services {
    /// No services; `default` names the one for calls that cannot be read, and calls may ask for
    /// so many that are not known.
    pub(super) fn new(default: Option<ServiceKey>, may_ask: usize) -> Self {
        Self {
            default,
            may_ask,
            ..Self::default()
        }
    }

    /// The service of a call.
    ///
    /// The provider acts on `path`, so that is what decides; only if nothing is known under it, the
    /// interface does, which differs where a provider exports under a path of its own.
    #[inline]
    pub(super) fn find(&self, side: Side, call: &Invocation<'_>) -> Option<ServiceId> {
        if side == Side::Inbound {
            return self.inbound;
        }
        let (group, version) = (call.group().to_utf8(), call.version().to_utf8());
        let path = call.path().to_utf8();
        let found = self.by_key(KeyRef::new(&group, &path, &version));
        found.or_else(|| {
            let interface = call.interface().to_utf8();
            self.by_key(KeyRef::new(&group, &interface, &version))
        })
    }

    /// The service of a call that cannot be read.
    pub(super) fn unreadable(&self, side: Side) -> Option<ServiceId> {
        match side {
            Side::Inbound => self.inbound,
            Side::Outbound => self.by_key(self.default.as_ref()?.as_ref()),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: ServiceId) -> &Service {
        &self.list[id.0 as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ServiceId) -> &mut Service {
        &mut self.list[id.0 as usize]
    }

    /// The place of a name, made if it is new.
    pub(super) fn place(&mut self, name: &Name) -> ServiceId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            let id = u32::try_from(self.list.len()).expect("services are bounded");
            self.list.push(Service::new(name.clone()));
            ServiceId(id)
        });
        *self.get_mut(id) = Service::new(name.clone());
        match name {
            Name::Key(key) => drop(self.keys.insert(key.clone(), id)),
            Name::Interface(key) => drop(self.interfaces.insert(key.clone(), id)),
            Name::Inbound => self.inbound = Some(id),
        }
        id
    }

    /// The place of a name, if it has one.
    pub(super) fn id(&self, name: &Name) -> Option<ServiceId> {
        match name {
            Name::Key(key) => self.keys.get(key).copied(),
            Name::Interface(key) => self.interfaces.get(key).copied(),
            Name::Inbound => self.inbound,
        }
    }

    /// The place of a key that stands in a frame, if it has one.
    pub(super) fn place_of(&self, key: KeyRef<'_>) -> Option<ServiceId> {
        self.keys.get(&Wanted(key)).copied()
    }

    /// Gives the place of a service back that nothing refers to.
    pub(super) fn free(&mut self, id: ServiceId) {
        if let Name::Key(key) = &self.list[id.0 as usize].name {
            self.keys.swap_remove(key);
            self.free.push(id);
        }
    }

    /// Services that a host serves.
    pub(super) fn of_host(&self, host: HostId) -> Vec<ServiceId> {
        self.iter()
            .filter(|(_, s)| s.hosts.contains(&host))
            .map(|(id, _)| id)
            .collect()
    }

    /// All services, those that are gone included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        (0..).map(ServiceId).zip(&self.list)
    }

    #[inline]
    fn by_key(&self, key: KeyRef<'_>) -> Option<ServiceId> {
        let found = self
            .keys
            .get(&Wanted(key))
            .filter(|id| self.get(**id).route.is_some());
        let found = found.or_else(|| {
            let bare = self.interfaces.get(&Wanted(key.bare()));
            bare.filter(|id| self.get(**id).route.is_some())
        });
        found.copied()
    }
}

impl Service {
    fn new(name: Name) -> Self {
        Self {
            name,
            route: None,
            hosts: Vec::new(),
            ready: Ready::default(),
            asked: Asked::No,
            held: Vec::new(),
            finished: Counts::default(),
        }
    }

    /// How a host is chosen.
    #[inline]
    pub(super) fn balance(&self) -> Balance {
        self.route
            .as_ref()
            .map_or(Balance::Random, |r| r.service.balance)
    }

    /// Time for a call whose caller names none.
    #[inline]
    pub(super) fn timeout(&self) -> Option<std::time::Duration> {
        self.route.as_ref().and_then(|r| r.service.timeout)
    }

    /// Further tries of a call.
    #[inline]
    pub(super) fn retries(&self) -> u32 {
        self.route.as_ref().map_or(0, |r| r.service.retries)
    }

    /// Whether a method may be sent again after it may have run.
    #[inline]
    pub(super) fn permits(&self, method: dubbo_proto::text::Text<'_>) -> bool {
        use crate::model::Idempotent;
        match self.route.as_ref().map(|r| &r.service.idempotent) {
            None | Some(Idempotent::None) => false,
            Some(idempotent) => idempotent.permits(&method.to_utf8()),
        }
    }

    /// What people call it.
    pub(super) fn label(&self) -> String {
        match &self.name {
            Name::Key(key) | Name::Interface(key) => key.to_string(),
            Name::Inbound => "the local provider".into(),
        }
    }
}

/// A key as it stands in a frame, to look up without building one.
#[derive(Hash)]
struct Wanted<'a>(KeyRef<'a>);

impl Equivalent<ServiceKey> for Wanted<'_> {
    #[inline]
    fn equivalent(&self, key: &ServiceKey) -> bool {
        self.0 == *key
    }
}
