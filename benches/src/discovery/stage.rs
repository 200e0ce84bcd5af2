//! The processes: a pilot with a full registry, a proxy that asks it, two providers; and the
//! application, which is this process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Method;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use thin_sdk::Client;

use super::{Error, Size};
use crate::configuration::{self, ANYWHERE, PILOT};
use crate::http::Connection;
use crate::part::{Part, free_address};
use crate::time::now;

/// All of it. Dropped, everything ends, the proxy first.
#[derive(Debug)]
pub(super) struct Stage {
    size: Size,
    client: Client,
    registry: Connection,
    pub(super) proxy: Part,
    pub(super) pilot: Part,
    /// Everybody's provider.
    old: Provider,
    /// The one that comes and goes.
    new: Provider,
    _folder: TempDir,
}

/// A provider, known by the length of what it answers.
#[derive(Debug)]
struct Provider {
    address: SocketAddr,
    len: usize,
    _part: Part,
}

impl Stage {
    /// Starts everything, and waits until the declared services can be called.
    pub(super) async fn new(program: &Path, size: Size, bar: &ProgressBar) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let (old, new) = (Provider::start(program, 1)?, Provider::start(program, 2)?);

        let file = folder.path().join("pilot.yaml");
        fs::write(&file, PILOT)?;
        let arguments = ["pilot", "--config", &file.to_string_lossy()];
        let mut pilot = Part::subcommand(program, "pilot", &arguments)?;
        let xds = pilot.address("xds listening on ")?;
        let http = pilot.address("http listening on ")?;
        let mut registry = Connection::open(http, PATIENCE).await?;
        // One whose connection all share, so that no change waits for it.
        put(&mut registry, &[instance(ANCHOR, new.address)]).await?;
        fill(
            &mut registry,
            0..size.services,
            |n| instance(&key(n), old.address),
            bar,
        )
        .await?;

        let declared = (0..size.declared).map(key).chain([ANCHOR.to_owned()]);
        let dependencies = json!({ "version": 1, "services": declared.collect::<Vec<_>>() });
        fs::write(folder.path().join(DEPENDENCIES), dependencies.to_string())?;
        let outbound = free_address()?;
        let file = folder.path().join("proxy.yaml");
        let rest = format!("xds: {{ servers: \"{xds}\" }}\ndependencies: {DEPENDENCIES}\n");
        let text = configuration::proxy("bench", outbound, ANYWHERE, &rest);
        fs::write(&file, text)?;
        let arguments = ["proxy", "--config", &file.to_string_lossy()];
        let mut proxy = Part::subcommand(program, "proxy", &arguments)?;
        proxy.wait_for(outbound)?;
        let client = Client::builder().sidecar(outbound);
        let client = client.admin(None).bonder(None).build()?;
        meets(&client, ANCHOR, new.len, 1).await?;
        for n in 0..size.declared {
            meets(&client, &key(n), old.len, 1).await?;
        }
        Ok(Self {
            size,
            client,
            registry,
            proxy,
            pilot,
            old,
            new,
            _folder: folder,
        })
    }

    /// Calls the service of that number.
    pub(super) async fn call(&self, n: u32) -> Result<(), Error> {
        call(&self.client, &key(n)).await.map(drop)
    }

    /// Registers the other provider of a service beside its first; when that was answered, and when
    /// a call met it.
    pub(super) async fn add(&mut self, n: u32) -> Result<(Instant, Instant), Error> {
        let service = key(n);
        let body = [instance(&service, self.new.address)];
        tokio::try_join!(
            async {
                put(&mut self.registry, &body).await?;
                Ok(now())
            },
            async {
                meets(&self.client, &service, self.new.len, 1).await?;
                Ok(now())
            }
        )
    }

    /// Takes it away again, and waits until no call meets it.
    pub(super) async fn remove(&mut self, n: u32) -> Result<(), Error> {
        let service = key(n);
        let body = instance(&service, self.new.address);
        let registry = &mut self.registry;
        registry
            .exchange(Method::DELETE, INSTANCES, body.to_string())
            .await?;
        // Half of them would meet it.
        meets(&self.client, &service, self.old.len, 30).await
    }

    /// Changes every service that nobody declared.
    pub(super) async fn change_others(&mut self, bar: &ProgressBar) -> Result<(), Error> {
        let others = self.size.declared..self.size.services;
        let heavier = |n| {
            let mut instance = instance(&key(n), self.old.address);
            instance["weight"] = json!(200);
            instance
        };
        fill(&mut self.registry, others, heavier, bar).await
    }

    /// How many answers the pilot has sent to the proxy.
    pub(super) async fn sent(&mut self) -> Result<u64, Error> {
        let registry = &mut self.registry;
        let clients = registry.exchange(Method::GET, "/v1/clients", "").await?;
        let clients: Clients = serde_json::from_slice(&clients)?;
        let types = clients.clients.iter().flat_map(|client| &client.types);
        Ok(types.map(|kind| kind.sent).sum())
    }
}

impl Provider {
    fn start(program: &Path, len: usize) -> Result<Self, Error> {
        let payload = len.to_string();
        let arguments = ["provider", "--listen", "127.0.0.1:0", "--payload", &payload];
        let mut part = Part::subcommand(program, "provider", &arguments)?;
        Ok(Self {
            address: part.address("listening on ")?,
            len,
            _part: part,
        })
    }
}

/// What the pilot says of its clients, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Clients {
    clients: Vec<Standing>,
}

#[derive(Debug, Deserialize)]
struct Standing {
    types: Vec<OfType>,
}

#[derive(Debug, Deserialize)]
struct OfType {
    sent: u64,
}

/// Calls a service until so many answers one after another have that length.
async fn meets(client: &Client, service: &str, len: usize, times: u32) -> Result<(), Error> {
    let until = now() + PATIENCE;
    let mut met = 0;
    while met < times {
        met = if call(client, service).await? == len {
            met + 1
        } else {
            0
        };
        if now() > until {
            return Err(Error::Late(service.to_owned(), PATIENCE));
        }
    }
    Ok(())
}

/// Calls a service; the length of the answer.
async fn call(client: &Client, service: &str) -> Result<usize, Error> {
    let call = client.call(service, "find").deadline(PATIENCE);
    let answer: Result<String, _> = call.send().await;
    answer.map(|text| text.len()).map_err(|source| Error::Call {
        service: service.to_owned(),
        source: Box::new(source),
    })
}

/// Registers an instance for each number, many at a time.
async fn fill(
    registry: &mut Connection,
    numbers: std::ops::Range<u32>,
    instance: impl Fn(u32) -> Value,
    bar: &ProgressBar,
) -> Result<(), Error> {
    for first in numbers.clone().step_by(BATCH) {
        let last = numbers
            .end
            .min(first + u32::try_from(BATCH).unwrap_or(u32::MAX));
        let batch: Vec<_> = (first..last).map(&instance).collect();
        put(registry, &batch).await?;
        bar.inc(u64::from(last - first));
    }
    Ok(())
}

async fn put(registry: &mut Connection, instances: &[Value]) -> Result<(), Error> {
    let body = serde_json::to_string(instances)?;
    registry.exchange(Method::PUT, INSTANCES, body).await?;
    Ok(())
}

fn key(n: u32) -> String {
    format!("bench.discovery.Service{n}:1.0.0")
}

fn instance(service: &str, address: SocketAddr) -> Value {
    json!({ "service": service, "address": address })
}

const DEPENDENCIES: &str = "dependencies.json";
const INSTANCES: &str = "/v1/instances";
/// The service that is always provided by the provider that comes and goes elsewhere.
const ANCHOR: &str = "bench.discovery.Anchor:1.0.0";
/// Instances that are registered at a time.
const BATCH: usize = 2000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);
