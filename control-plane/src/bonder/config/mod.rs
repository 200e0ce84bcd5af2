//! Configuration: `bonder.yaml` becomes a [`Config`], in which nothing needs to be checked again.
//! docs/bonder.md lists every key.

mod raw;
mod resolve;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use serde_json::json;

pub use crate::{endpoint::Endpoint, yaml::Error};
pub use mesh_proto::token::Token;

use super::{
    provided::{Provided, Written},
    supervisor::{Restart, Times},
};

/// What bonder does: resolved, immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where processes of the container tell us what they call and provide. Default `127.0.0.1:15020`.
    pub http: Endpoint,
    /// The control plane; `None` if there is none.
    pub pilot: Option<Pilot>,
    /// The configuration of the proxy.
    pub proxy: PathBuf,
    /// The folder of what is to be known after a restart. Default: that of the configuration.
    pub state: PathBuf,
    /// This host, as others reach it; `None`: its first own address.
    pub advertise: Option<IpAddr>,
    /// What is called here, beside what processes declare.
    pub dependencies: BTreeSet<ServiceKey>,
    /// What is provided here, beside what processes declare.
    pub providers: BTreeSet<Provided>,
    /// What happens when the application ends by itself. Default: everything ends.
    pub restart: Restart,
    /// What is logged, as `info` or `info,control_plane=debug`. Default `info`.
    pub log_level: String,
    /// How long each step may take.
    pub times: Times,
}

/// The control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pilot {
    /// One that bonder starts.
    Here {
        /// Its configuration.
        config: PathBuf,
        /// The token that its HTTP wants, if any.
        token: Option<Token>,
    },
    /// One that runs elsewhere.
    Elsewhere {
        /// Its HTTP.
        address: SocketAddr,
        /// The token that it wants, if any.
        token: Option<Token>,
    },
}

impl Pilot {
    /// What its HTTP wants to see.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        let (Self::Here { token, .. } | Self::Elsewhere { token, .. }) = self;
        token.as_ref()
    }
}

impl Config {
    /// Reads `file`. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`Error`]; of values, all that are wrong are named at once.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let raw = crate::yaml::read(file)?;
        let dir = std::path::absolute(file).map_err(|source| Error::Read {
            file: file.into(),
            source,
        })?;
        resolve::resolve(&raw, file, dir.parent().unwrap_or_else(|| Path::new("/")))
    }

    /// The effective configuration as YAML: read again, it is the same configuration. A secret cannot
    /// be printed by accident: what is written names the file of a token, not the token.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut all = json!({
            "http": self.http.to_json(),
            "proxy": self.proxy,
            "state": self.state,
            "advertise": self.advertise.map_or_else(|| AUTO.into(), |ip| ip.to_string()),
            "dependencies": self.dependencies.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "providers": self.providers.iter().cloned().map(Written::from).collect::<Vec<_>>(),
            "restart": match self.restart {
                Restart::Never => NEVER,
                Restart::Always => ALWAYS,
            },
            "logging": { "level": self.log_level },
            "limits": {
                "ready_time": print(self.times.ready),
                "drain_time": print(self.times.drain),
                "stop_time": print(self.times.stop),
            },
        });
        if let Some(pilot) = &self.pilot {
            all["pilot"] = match pilot {
                Pilot::Here { config, .. } => json!({ "config": config }),
                Pilot::Elsewhere { address, .. } => json!({ "address": address }),
            };
            if let Some(token) = pilot.token() {
                all["pilot"]["token_file"] = json!(token.file);
            }
        }
        serde_saphyr::to_string(&all).expect("texts, lists and maps of these are YAML")
    }
}

/// With the largest unit that leaves a whole number.
fn print(time: Duration) -> String {
    match time.as_millis() {
        millis if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

/// Where bonder listens by default.
const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15020);
/// Of `advertise`.
const AUTO: &str = "auto";
/// Of `restart`.
const ALWAYS: &str = "always";
const NEVER: &str = "never";
/// Time for each step by default; a proxy drains for at most 20 s by default.
const READY: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(25);
const STOP: Duration = Duration::from_secs(10);
/// Time to take providers out of the registry. It is not one that operators know better.
const DEREGISTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
