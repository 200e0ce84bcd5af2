//! The file: which instances there are, and how many of each service.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use parking_lot::RwLock;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition,
};
use serde::{Deserialize, Serialize};

use super::Size;
use crate::registry::{Instance, Registration};

/// The file. Many read at a time, one writes.
pub(super) struct Store {
    file: PathBuf,
    database: RwLock<Option<Arc<Database>>>,
}

/// Why a file is no registry.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("another process has it open; end that one, or name another file")]
    Held,
    /// It is of a release that is not known here.
    #[error("it is of version {0}, of which nothing is known here; take a newer release")]
    Version(u64),
    /// It cannot be read or written.
    #[error("it cannot be opened")]
    Storage(#[from] Error),
}

/// Why the file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or what keeps it.
    #[error("the registry's file fails")]
    Database(#[source] Box<redb::Error>),
    /// Something is in it that nobody wrote.
    #[error("the registry's file has something at {0} that is no instance")]
    Broken(String),
    /// It failed before, and is being opened anew.
    #[error("the registry's file is being opened anew")]
    Closed,
}

impl Store {
    /// Opens the file, or makes one. After a crash, what was committed last is there.
    pub(super) fn open(file: &Path) -> Result<Self, OpenError> {
        let database = database(file)?;
        Ok(Self {
            file: file.into(),
            database: RwLock::new(Some(Arc::new(database))),
        })
    }

    /// Opens the file anew, which is what it needs after it could not be written.
    pub(super) fn reopen(&self) -> Result<(), OpenError> {
        let mut place = self.database.write();
        // Only one may have it at a time, whoever reads at the moment included.
        drop(place.take());
        *place = Some(Arc::new(database(&self.file)?));
        Ok(())
    }

    /// Whether it is not to be opened anew.
    pub(super) fn is_open(&self) -> bool {
        self.database.read().is_some()
    }

    /// What is registered of `service`, by address.
    pub(super) fn list(&self, service: &ServiceKey) -> Result<Vec<Registration>, Error> {
        let read = self.database()?.begin_read()?;
        let table = read.open_table(INSTANCES)?;
        let name = service.to_string();
        let name = name.as_str();
        let mut list = Vec::new();
        for entry in table.range((name, &FIRST)..=(name, &LAST))? {
            let (key, value) = entry?;
            list.push(registration(service, key.value().1, value.value())?);
        }
        Ok(list)
    }

    /// Every instance that is registered for a time.
    pub(super) fn leased(&self) -> Result<Vec<(ServiceKey, SocketAddr, Duration)>, Error> {
        let read = self.database()?.begin_read()?;
        let mut leased = Vec::new();
        for entry in read.open_table(INSTANCES)?.iter()? {
            let (key, value) = entry?;
            let (name, address) = key.value();
            let service = service(name)?;
            let found = registration(&service, address, value.value())?;
            if let Some(ttl) = found.ttl {
                leased.push((service, found.instance.address, ttl));
            }
        }
        Ok(leased)
    }

    /// Every service, in order, with how many instances it has.
    pub(super) fn services(&self) -> Result<Vec<(ServiceKey, u64)>, Error> {
        let read = self.database()?.begin_read()?;
        let mut services = Vec::new();
        for entry in read.open_table(SERVICES)?.iter()? {
            let (name, count) = entry?;
            services.push((service(name.value())?, count.value()));
        }
        services.sort();
        Ok(services)
    }

    /// How much is registered.
    pub(super) fn size(&self) -> Result<Size, Error> {
        let read = self.database()?.begin_read()?;
        Ok(Size {
            services: read.open_table(SERVICES)?.len()?,
            instances: read.open_table(INSTANCES)?.len()?,
        })
    }

    /// Whether all of these are registered just so.
    pub(super) fn has(&self, registrations: &[Registration]) -> Result<bool, Error> {
        let read = self.database()?.begin_read()?;
        let table = read.open_table(INSTANCES)?;
        for wanted in registrations {
            let name = wanted.instance.service.to_string();
            let address = bytes_of(wanted.instance.address);
            let found = table.get((name.as_str(), &address))?;
            if found.is_none_or(|found| found.value() != value_of(wanted)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Has `change` change the tables. All of it is durable when this returns, or nothing happens.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&mut Tables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let write = self.database()?.begin_write()?;
        let changed = {
            let mut tables = Tables {
                instances: write.open_table(INSTANCES)?,
                services: write.open_table(SERVICES)?,
            };
            change(&mut tables)?
        };
        write.commit()?;
        Ok(changed)
    }

    #[cfg(test)]
    pub(super) fn fail(&self) {
        std::fs::rename(&self.file, self.file.with_extension("away")).expect("renamed");
        std::fs::write(&self.file, "no database").expect("a text in its place");
        *self.database.write() = None;
    }

    #[cfg(test)]
    pub(super) fn mend(&self) {
        std::fs::rename(self.file.with_extension("away"), &self.file).expect("renamed");
    }

    fn database(&self) -> Result<Arc<Database>, Error> {
        self.database.read().clone().ok_or(Error::Closed)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("file", &self.file).finish()
    }
}

/// The tables while they are changed.
pub(super) struct Tables<'a> {
    instances: Table<'a, Key<'static>, &'static [u8]>,
    services: Table<'a, &'static str, u64>,
}

/// What there would be too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMany {
    Instances,
    OfAService,
}

impl Tables<'_> {
    /// Registers all of these, or none if that would be too many.
    pub(super) fn put(
        &mut self,
        registrations: &[Registration],
    ) -> Result<Result<(), TooMany>, Error> {
        // With what each service will have, before anything is written.
        let mut added: BTreeMap<String, BTreeMap<[u8; ADDRESS], &Registration>> = BTreeMap::new();
        for registration in registrations {
            let name = registration.instance.service.to_string();
            let address = bytes_of(registration.instance.address);
            added.entry(name).or_default().insert(address, registration);
        }
        let mut all = self.instances.len()?;
        let mut counts = Vec::new();
        for (name, instances) in &added {
            let mut count = self.count(name)?;
            for address in instances.keys() {
                if self.instances.get((name.as_str(), address))?.is_none() {
                    (count, all) = (count + 1, all + 1);
                }
            }
            if count > MAX_OF_A_SERVICE {
                return Ok(Err(TooMany::OfAService));
            }
            counts.push(count);
        }
        if all > MAX_INSTANCES {
            return Ok(Err(TooMany::Instances));
        }
        for ((name, instances), count) in added.iter().zip(counts) {
            for (address, registration) in instances {
                let value = value_of(registration);
                self.instances
                    .insert((name.as_str(), address), value.as_slice())?;
            }
            self.services.insert(name.as_str(), count)?;
        }
        Ok(Ok(()))
    }

    /// Removes one, and says whether it was there.
    pub(super) fn remove(
        &mut self,
        service: &ServiceKey,
        address: SocketAddr,
    ) -> Result<bool, Error> {
        let name = service.to_string();
        let key = (name.as_str(), &bytes_of(address));
        if self.instances.remove(key)?.is_none() {
            return Ok(false);
        }
        match self.count(&name)? {
            0 | 1 => self.services.remove(name.as_str())?,
            count => self.services.insert(name.as_str(), count - 1)?,
        };
        Ok(true)
    }

    fn count(&self, name: &str) -> Result<u64, Error> {
        Ok(self.services.get(name)?.map_or(0, |count| count.value()))
    }
}

/// Opens the file and makes what is missing in it.
fn database(file: &Path) -> Result<Database, OpenError> {
    let opened = Database::builder().set_cache_size(CACHE).create(file);
    let database = opened.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Held,
        other => OpenError::Storage(Error::from(other)),
    })?;
    let write = database.begin_write().map_err(Error::from)?;
    let version = {
        let mut about = write.open_table(ABOUT).map_err(Error::from)?;
        let found = about.get("version").map_err(Error::from)?;
        let found = found.map(|version| version.value());
        if found.is_none() {
            about.insert("version", VERSION).map_err(Error::from)?;
        }
        // So that whoever reads finds them.
        write.open_table(INSTANCES).map_err(Error::from)?;
        write.open_table(SERVICES).map_err(Error::from)?;
        found.unwrap_or(VERSION)
    };
    if version != VERSION {
        return Err(OpenError::Version(version));
    }
    write.commit().map_err(Error::from)?;
    Ok(database)
}

/// What is known of an instance beside its key.
#[derive(Debug, Serialize, Deserialize)]
struct Value {
    weight: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

fn value_of(registration: &Registration) -> Vec<u8> {
    let value = Value {
        weight: registration.instance.weight,
        metadata: registration.instance.metadata.clone(),
        ttl_ms: registration
            .ttl
            .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
    };
    serde_json::to_vec(&value).expect("numbers and texts are JSON")
}

fn registration(
    service: &ServiceKey,
    address: &[u8; ADDRESS],
    value: &[u8],
) -> Result<Registration, Error> {
    let broken = || Error::Broken(service.to_string());
    let value: Value = serde_json::from_slice(value).map_err(|_| broken())?;
    Ok(Registration {
        instance: Instance {
            service: service.clone(),
            address: address_of(address).ok_or_else(broken)?,
            weight: value.weight,
            metadata: value.metadata,
        },
        ttl: value.ttl_ms.map(Duration::from_millis),
    })
}

fn service(name: &str) -> Result<ServiceKey, Error> {
    name.parse().map_err(|_| Error::Broken(name.into()))
}

/// An address, in the order of addresses: family, IP, port.
fn bytes_of(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = FIRST;
    let (ip, port) = (&mut bytes[..17], address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(v4) => {
            ip[0] = 4;
            ip[1..5].copy_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            ip[0] = 6;
            ip[1..].copy_from_slice(&v6.octets());
        }
    }
    bytes[17..].copy_from_slice(&port);
    bytes
}

fn address_of(bytes: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first()?;
    let (ip, port) = rest.split_first_chunk::<16>()?;
    let ip: IpAddr = match family {
        4 => IpAddr::from(*ip.first_chunk::<4>()?),
        6 => IpAddr::from(*ip),
        _ => return None,
    };
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some(SocketAddr::new(ip, port))
}

/// The name of a service and an address.
type Key<'a> = (&'a str, &'a [u8; ADDRESS]);

/// Bytes of an address.
const ADDRESS: usize = 19;
const FIRST: [u8; ADDRESS] = [0; ADDRESS];
const LAST: [u8; ADDRESS] = [0xff; ADDRESS];

const INSTANCES: TableDefinition<'_, Key<'_>, &[u8]> = TableDefinition::new("instances");
/// How many instances a service has; a service that has none is not here.
const SERVICES: TableDefinition<'_, &str, u64> = TableDefinition::new("services");
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// Of what is in the tables.
const VERSION: u64 = 1;
/// Bytes of the file that are kept in memory: the instances that are read again and again are few.
const CACHE: usize = 32 << 20;
/// Most instances of all services together, some hundred megabytes.
pub const MAX_INSTANCES: u64 = 1_000_000;
/// Most instances of one service: its whole list is told with each change.
pub const MAX_OF_A_SERVICE: u64 = 10_000;

/// Every error of the library is one of the file: whoever asks can do nothing else about it.
macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Database(Box::new(error.into()))
            }
        }
    )*};
}
from_redb!(
    DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

impl Error {
    /// Whether only opening the file anew can help.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::Database(_) | Self::Closed => true,
            Self::Broken(_) => false,
        }
    }
}
