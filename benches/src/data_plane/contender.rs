//! What stands between the loader and a provider, or nothing.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use dubbo_proto::key::ServiceKey;
use hyper::Method;
use serde_json::json;
use tempfile::TempDir;

use super::Error;
use super::cores::Cores;
use crate::configuration::{self, PILOT};
use crate::http::exchange;
use crate::part::{Part, free_address};

/// One way to a provider, ready for calls.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    /// What it says of itself.
    pub(super) version: Option<String>,
    /// Where it takes calls.
    pub(super) address: SocketAddr,
    /// The services that calls go to, in turn.
    pub(super) services: Vec<ServiceKey>,
    /// How many of the providers are behind it.
    pub(super) providers: usize,
    /// Where its metrics are to be had, if they are scraped.
    pub(super) scraped: Option<SocketAddr>,
    part: Option<Part>,
    /// What it needs besides.
    _others: Vec<Part>,
    _folder: Option<TempDir>,
}

/// A program to run beside ours, as `NAME=COMMAND`, where `{listen}` and `{upstream}` stand for its
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Yardstick {
    name: String,
    command: Vec<String>,
}

/// Starts contenders.
#[derive(Debug)]
pub(super) struct Starter<'a> {
    /// `dubbo-mesh`.
    pub(super) program: &'a Path,
    pub(super) cores: &'a Cores,
    /// All providers; most contenders have the first one.
    pub(super) providers: &'a [SocketAddr],
}

impl Contender {
    /// Its process; none if calls go direct.
    pub(super) fn pid(&self) -> Option<u32> {
        self.part.as_ref().map(Part::pid)
    }
}

impl FromStr for Yardstick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').ok_or(NO_YARDSTICK)?;
        let command: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        let has = |what| command.iter().any(|word| word.contains(what));
        if name.is_empty() || !has(LISTEN) || !has(UPSTREAM) {
            return Err(NO_YARDSTICK.to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            command,
        })
    }
}

impl Starter<'_> {
    /// Nothing between.
    pub(super) fn direct(&self) -> Contender {
        Contender {
            name: DIRECT.to_owned(),
            version: None,
            address: self.providers[0],
            services: keys(1),
            providers: 1,
            scraped: None,
            part: None,
            _others: Vec::new(),
            _folder: None,
        }
    }

    /// HAProxy with one thread, relaying bytes.
    pub(super) fn haproxy(&self, program: &Path) -> Result<Contender, Error> {
        let (address, folder) = (free_address()?, tempfile::tempdir()?);
        let file = folder.path().join("haproxy.cfg");
        let upstream = self.providers[0];
        fs::write(
            &file,
            format!(
                "global\n  nbthread 1\n\
                 defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
                 listen relay\n  bind {address}\n  server provider {upstream}\n"
            ),
        )?;
        let command = [
            &program.to_string_lossy(),
            "-db",
            "-f",
            &file.to_string_lossy(),
        ];
        let version = version(program);
        self.foreign(HAPROXY, &command, address, version, Some(folder))
    }

    /// Envoy with one worker and its Dubbo proxy.
    pub(super) fn envoy(&self, program: &Path) -> Result<Contender, Error> {
        let (address, folder) = (free_address()?, tempfile::tempdir()?);
        let file = folder.path().join("envoy.yaml");
        let [service] = &keys(1)[..] else {
            unreachable!("one key")
        };
        fs::write(&file, envoy(address, self.providers[0], service))?;
        let command = [
            &program.to_string_lossy(),
            "-c",
            &file.to_string_lossy(),
            "-l",
            "warning",
            "--concurrency",
            "1",
            "--disable-hot-restart",
        ];
        let version = version(program);
        self.foreign(ENVOY, &command, address, version, Some(folder))
    }

    pub(super) fn yardstick(&self, yardstick: &Yardstick) -> Result<Contender, Error> {
        let (address, upstream) = (free_address()?, self.providers[0].to_string());
        let fill = |word: &String| {
            let word = word.replace(LISTEN, &address.to_string());
            word.replace(UPSTREAM, &upstream)
        };
        let command: Vec<_> = yardstick.command.iter().map(fill).collect();
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        self.foreign(&yardstick.name, &command, address, None, None)
    }

    /// Our proxy, bare: one service, and one provider or several.
    pub(super) fn mesh(
        &self,
        name: &str,
        services: u32,
        providers: usize,
    ) -> Result<Contender, Error> {
        self.proxy(name, services, providers, 1)
    }

    /// Our proxy with two shards.
    pub(super) fn two_shards(&self) -> Result<Contender, Error> {
        self.proxy(TWO_SHARDS, 1, 1, 2)
    }

    fn proxy(
        &self,
        name: &str,
        services: u32,
        providers: usize,
        workers: u32,
    ) -> Result<Contender, Error> {
        let endpoints: Vec<_> = self.providers[..providers].iter().collect();
        let service = |key: &ServiceKey| json!({ "key": key.to_string(), "endpoints": endpoints });
        let services = keys(services);
        let all: Vec<_> = services.iter().map(service).collect();
        let folder = tempfile::tempdir()?;
        let rest = format!(
            "workers: {workers}\nstatic: {}\n",
            json!({ "services": all })
        );
        let (part, address, _) = self.sidecar(&folder, &rest)?;
        Ok(Contender {
            name: name.to_owned(),
            address,
            services,
            providers,
            part: Some(part),
            _folder: Some(folder),
            ..self.direct()
        })
    }

    /// Our proxy as it is used: a pilot tells it of twenty services, their calls may be sent again,
    /// and its metrics are scraped.
    pub(super) async fn everything(&self) -> Result<Contender, Error> {
        let (folder, services) = (tempfile::tempdir()?, keys(20));
        fs::write(folder.path().join("pilot.yaml"), PILOT)?;
        let file = folder.path().join("pilot.yaml");
        let command = [
            &self.program.to_string_lossy(),
            "pilot",
            "--config",
            &file.to_string_lossy(),
        ];
        let mut pilot = Part::launch(self.program, "pilot", &command)?;
        let xds = pilot.address("xds listening on ")?;
        let http = pilot.address("http listening on ")?;
        let instance = |key: &ServiceKey| {
            json!({
                "service": key.to_string(),
                "address": self.providers[0],
                "metadata": { "retries": "2", "mesh.idempotent": "true" },
            })
        };
        let instances: Vec<_> = services.iter().map(instance).collect();
        let body = json!(instances).to_string();
        exchange(http, Method::PUT, "/v1/instances", body).await?;
        let names: Vec<_> = services.iter().map(ToString::to_string).collect();
        let declared = json!({ "version": 1, "services": names }).to_string();
        fs::write(folder.path().join("dependencies.json"), declared)?;
        let rest = format!("xds: {{ servers: \"{xds}\" }}\ndependencies: dependencies.json\n");
        let (part, address, admin) = self.sidecar(&folder, &rest)?;
        Ok(Contender {
            name: EVERYTHING.to_owned(),
            address,
            services,
            scraped: Some(admin),
            part: Some(part),
            _others: vec![pilot],
            _folder: Some(folder),
            ..self.direct()
        })
    }

    /// A proxy whose configuration ends with `rest`; where it takes calls, and its admin.
    fn sidecar(
        &self,
        folder: &TempDir,
        rest: &str,
    ) -> Result<(Part, SocketAddr, SocketAddr), Error> {
        let (address, admin) = (free_address()?, free_address()?);
        let file = folder.path().join("proxy.yaml");
        fs::write(&file, configuration::proxy("bench", address, admin, rest))?;
        let command = [
            &self.program.to_string_lossy(),
            "proxy",
            "--config",
            &file.to_string_lossy(),
        ];
        let mut part = self.measured("sidecar", &command)?;
        part.wait_for(address)?;
        part.wait_for(admin)?;
        Ok((part, address, admin))
    }

    /// A process on the core of what is measured.
    fn measured(&self, name: &'static str, command: &[&str]) -> Result<Part, Error> {
        let launch = || Ok(Part::launch(self.program, name, command)?);
        self.cores.measured(launch)
    }

    fn foreign(
        &self,
        name: &str,
        command: &[&str],
        address: SocketAddr,
        version: Option<String>,
        folder: Option<TempDir>,
    ) -> Result<Contender, Error> {
        let mut part = self.measured("peer", command)?;
        part.wait_for(address)?;
        Ok(Contender {
            version,
            part: Some(part),
            _folder: folder,
            name: name.to_owned(),
            address,
            ..self.direct()
        })
    }
}

/// A program by its name: on the path, or where Debian has daemons. One that is there says its
/// version.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let places = [PathBuf::from(name), Path::new("/usr/sbin").join(name)];
    places.into_iter().find(|place| version(place).is_some())
}

/// What a program says when it is asked for its version, in the way of HAProxy or of Envoy.
fn version(program: &Path) -> Option<String> {
    ["-v", "--version"].iter().find_map(|option| {
        let told = Command::new(program).arg(option).output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let line = told.lines().map(str::trim).find(|line| !line.is_empty());
        line.filter(|_| told.contains("version")).map(str::to_owned)
    })
}

fn keys(count: u32) -> Vec<ServiceKey> {
    let key = |n| format!("bench.Service{n}:1.0.0").parse();
    (0..count)
        .map(|n| key(n).unwrap_or_else(|_| unreachable!("a key")))
        .collect()
}

fn envoy(address: SocketAddr, provider: SocketAddr, service: &ServiceKey) -> String {
    let at = |address: SocketAddr| json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } });
    let dubbo = "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy";
    let route = json!({
        "match": { "method": { "name": { "safe_regex": { "regex": ".*" } } } },
        "route": { "cluster": "provider" },
    });
    let filter = json!({
        "name": "envoy.filters.network.dubbo_proxy",
        "typed_config": {
            "@type": dubbo,
            "stat_prefix": "dubbo",
            "route_config": [{
                "name": "local",
                "interface": service.interface(),
                "routes": [route],
            }],
            "dubbo_filters": [{ "name": "envoy.filters.dubbo.router" }],
        },
    });
    let listener = json!({ "address": at(address), "filter_chains": [{ "filters": [filter] }] });
    let breaker = json!({
        "max_connections": 10000,
        "max_pending_requests": 100_000,
        "max_requests": 100_000,
    });
    let cluster = json!({
        "name": "provider",
        "type": "STATIC",
        "connect_timeout": "1s",
        "circuit_breakers": { "thresholds": [breaker] },
        "load_assignment": {
            "cluster_name": "provider",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": at(provider) } }] }],
        },
    });
    json!({ "static_resources": { "listeners": [listener], "clusters": [cluster] } }).to_string()
}

/// Names of contenders.
pub(super) const DIRECT: &str = "direct";
pub(super) const HAPROXY: &str = "HAProxy";
pub(super) const ENVOY: &str = "Envoy";
pub(super) const MESH: &str = "mesh";
pub(super) const TEN_PROVIDERS: &str = "mesh, 10 providers";
pub(super) const TWENTY_SERVICES: &str = "mesh, 20 services";
pub(super) const TWO_SHARDS: &str = "mesh, 2 shards";
pub(super) const EVERYTHING: &str = "mesh, everything on";
/// Ours in other circumstances than the bare ones.
pub(super) const VARIANTS: [&str; 4] = [TEN_PROVIDERS, TWENTY_SERVICES, TWO_SHARDS, EVERYTHING];
const LISTEN: &str = "{listen}";
const UPSTREAM: &str = "{upstream}";
const NO_YARDSTICK: &str =
    "write NAME=COMMAND, with {listen} and {upstream} where its addresses go";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yardstick_has_a_name_and_two_addresses() {
        let relay: Yardstick = "relay=socat -d {listen} {upstream}".parse().expect("one");
        assert_eq!(relay.name, "relay");
        assert_eq!(relay.command, ["socat", "-d", "{listen}", "{upstream}"]);
        for wrong in [
            "relay",
            "=a {listen} {upstream}",
            "relay=a {listen}",
            "relay=",
        ] {
            assert!(wrong.parse::<Yardstick>().is_err(), "{wrong}");
        }
    }
}
