//! The processes of the demo: a container with bonder, pilot, proxy and application, and two
//! providers elsewhere.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::Error;
use super::plan::{Plan, Report, SERVICE, Status, Turn, Twice, UNDECLARED, Victim};
use crate::http::exchange;
use crate::part::{Part, free_address};
use crate::time::now;

/// All of it. Dropped, everything ends: the container first, in bonder's order. If we are killed, the
/// kernel kills the rest: `launch` asks it to.
#[derive(Debug)]
pub(super) struct Stage {
    bonder: Part,
    pub(super) providers: [Provider; 2],
    pub(super) addresses: Addresses,
    /// Where the application tells how it goes.
    pub(super) application: SocketAddr,
    folder: TempDir,
}

/// A provider elsewhere.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    pub(super) part: Part,
}

/// Where the processes of the container are told to listen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) sidecar: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) xds: SocketAddr,
    pub(super) pilot: SocketAddr,
    pub(super) bonder: SocketAddr,
}

impl Stage {
    /// Starts everything, and waits until it is ready.
    pub(super) async fn new(program: &Path) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let addresses = Addresses {
            sidecar: free_address()?,
            admin: free_address()?,
            xds: free_address()?,
            pilot: free_address()?,
            bonder: free_address()?,
        };
        let provider = |n| -> Result<Provider, Error> {
            let address = free_address()?;
            let part = start_provider(program, folder.path(), n, address)?;
            Ok(Provider { address, part })
        };
        let providers = [provider(0)?, provider(1)?];
        for (name, text) in configurations(&addresses) {
            fs::write(folder.path().join(name), text)?;
        }
        let plan = folder.path().join("plan.json");
        let told = Plan {
            sidecar: addresses.sidecar,
            admin: addresses.admin,
            bonder: addresses.bonder,
            providers: providers.iter().map(|provider| provider.address).collect(),
            victim: providers[1].part.pid(),
            roster: folder.path().join(ROSTER),
        };
        fs::write(&plan, serde_json::to_vec(&told)?)?;
        let bonder = folder.path().join("bonder.yaml");
        let command = [
            &program.to_string_lossy(),
            "bonder",
            "--config",
            &bonder.to_string_lossy(),
            "--",
            &program.to_string_lossy(),
            "demo",
            "--application",
            &plan.to_string_lossy(),
        ];
        let mut bonder = Part::launch(program, "bonder", &command)?;
        bonder.address("bonder listening on ")?;
        let application = bonder.address("application on ")?;
        let stage = Self {
            bonder,
            providers,
            addresses,
            application,
            folder,
        };
        let addresses = stage.providers.iter().map(|provider| provider.address);
        stage.register(SERVICE, addresses).await?;
        for name in ["pilot", "proxy"] {
            stage.child(name).await?;
        }
        Ok(stage)
    }

    /// Registers a service, as a bonder beside each provider would.
    async fn register(
        &self,
        service: &str,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Result<(), Error> {
        let instance = |address| json!({ "service": service, "address": address });
        let body = json!(addresses.map(instance).collect::<Vec<_>>()).to_string();
        exchange(self.addresses.pilot, Method::PUT, "/v1/instances", body).await?;
        Ok(())
    }

    /// Registers the service that nobody declared.
    pub(super) async fn register_undeclared(&self) -> Result<(), Error> {
        let [first, _] = &self.providers;
        self.register(UNDECLARED, [first.address].into_iter()).await
    }

    /// The process of a child of bonder, once it is ready.
    pub(super) async fn child(&self, name: &'static str) -> Result<u32, Error> {
        let until = now() + PATIENCE;
        loop {
            let status = exchange(self.addresses.bonder, Method::GET, "/v1/status", "").await?;
            let status: Status = serde_json::from_slice(&status)?;
            if let Some(pid) = status.ready(name) {
                return Ok(pid);
            }
            if now() > until {
                return Err(self.bonder.failed().into());
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until the application knows where to go without the sidecar.
    pub(super) async fn knows_providers(&self) -> Result<(), Error> {
        let roster = self.folder.path().join(ROSTER);
        let until = now() + PATIENCE;
        while !fs::read_to_string(&roster).is_ok_and(|known| {
            let mut all = self.providers.iter();
            all.all(|provider| known.contains(&provider.address.to_string()))
        }) {
            if now() > until {
                return Err(Error::Late("the addresses of the providers"));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Starts the provider anew that was killed.
    pub(super) fn restart_provider(&mut self, program: &Path) -> Result<(), Error> {
        let [_, provider] = &mut self.providers;
        provider.part = start_provider(program, self.folder.path(), 1, provider.address)?;
        Ok(())
    }

    pub(super) async fn turn(&self, turn: Turn) -> Result<(), Error> {
        let body = serde_json::to_vec(&turn)?;
        exchange(self.application, Method::PUT, "/turn", body).await?;
        Ok(())
    }

    pub(super) async fn kill(&self, victim: Victim) -> Result<(), Error> {
        let body = serde_json::to_vec(&victim)?;
        exchange(self.application, Method::PUT, "/kill", body).await?;
        Ok(())
    }

    /// How long the first and the second call of the service took that nobody declared, in ms.
    pub(super) async fn call_undeclared(&self) -> Result<[f64; 2], Error> {
        let body = serde_json::to_vec(&Twice {
            service: UNDECLARED.into(),
        })?;
        let answer = exchange(self.application, Method::PUT, "/twice", body).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    pub(super) async fn report(&self) -> Result<Report, Error> {
        self.get("/report").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let answer = exchange(self.application, Method::GET, path, "").await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Waits until the application reports what is `wanted`.
    pub(super) async fn reports(
        &self,
        what: &'static str,
        wanted: impl Fn(&Report) -> bool,
    ) -> Result<Report, Error> {
        let until = now() + PATIENCE;
        loop {
            let report = self.report().await?;
            if wanted(&report) {
                return Ok(report);
            }
            if now() > until {
                return Err(Error::Late(what));
            }
            sleep(PAUSE).await;
        }
    }

    /// The numbers of all payments that ran, each as often as it did.
    pub(super) fn ran(&self) -> io::Result<Vec<u64>> {
        let mut ran = Vec::new();
        for n in 0..self.providers.len() {
            let journal = fs::File::open(self.folder.path().join(journal(n)))?;
            for line in BufReader::new(journal).lines() {
                let number = line?.parse().map_err(io::Error::other)?;
                ran.push(number);
            }
        }
        Ok(ran)
    }
}

fn start_provider(
    program: &Path,
    folder: &Path,
    n: usize,
    address: SocketAddr,
) -> Result<Part, Error> {
    let (listen, journal) = (address.to_string(), folder.join(journal(n)));
    let command = [
        &program.to_string_lossy(),
        "demo",
        "--provider",
        &listen,
        "--journal",
        &journal.to_string_lossy(),
    ];
    let mut part = Part::launch(program, "provider", &command)?;
    part.address("listening on ")?;
    Ok(part)
}

fn journal(n: usize) -> String {
    format!("payments-{n}")
}

/// Of each process of the container.
fn configurations(at: &Addresses) -> [(&'static str, String); 3] {
    let Addresses {
        sidecar,
        admin,
        xds,
        pilot,
        bonder,
        ..
    } = at;
    [
        (
            "pilot.yaml",
            format!(
                "xds: {{ listen: \"{xds}\" }}
http: {{ listen: \"{pilot}\" }}
registries: [embedded: {{ path: registry.redb }}]
"
            ),
        ),
        (
            "proxy.yaml",
            format!(
                "node: {{ id: demo-1, cluster: demo }}
outbound: {{ listen: \"{sidecar}\", own_addresses: false }}
admin: {{ listen: \"{admin}\" }}
xds: {{ servers: \"{xds}\" }}
dependencies: dependencies.json
"
            ),
        ),
        (
            "bonder.yaml",
            format!(
                "http: {{ listen: \"{bonder}\" }}
pilot: pilot.yaml
proxy: proxy.yaml
"
            ),
        ),
    ]
}

const ROSTER: &str = "roster.json";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
