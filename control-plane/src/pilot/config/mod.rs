//! Configuration: `pilot.yaml` becomes a [`Config`], in which nothing needs to be checked again.
//! docs/pilot.md lists every key.

mod raw;
mod resolve;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use serde_json::json;

pub use crate::{endpoint::Endpoint, yaml::Error};

/// What the pilot does: resolved, immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where proxies ask. Default `127.0.0.1:15010`.
    pub xds: Endpoint,
    /// Where the registry is asked and filled, and the pilot watched. Default `127.0.0.1:15014`.
    pub http: Endpoint,
    /// The file of the embedded registry. Default `registry.redb` beside the configuration.
    pub registry: PathBuf,
    /// What is logged, as `info` or `info,control_plane=debug`. Default `info`.
    pub log_level: String,
}

impl Config {
    /// Reads `file`. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`Error`]; of values, all that are wrong are named at once.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let raw = crate::yaml::read(file)?;
        let absolute = std::path::absolute(file).map_err(|source| Error::Read {
            file: file.into(),
            source,
        })?;
        resolve::resolve(
            &raw,
            file,
            absolute.parent().unwrap_or_else(|| Path::new("/")),
        )
    }

    /// The effective configuration as YAML: read again, it is the same configuration. A secret cannot
    /// be printed by accident: what is written names the file of a token, not the token.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let all = json!({
            "xds": self.xds.to_json(),
            "http": self.http.to_json(),
            "registries": [{ "embedded": { "path": self.registry } }],
            "logging": { "level": self.log_level },
        });
        serde_saphyr::to_string(&all).expect("texts, lists and maps of these are YAML")
    }
}

/// Where the pilot listens for proxies by default.
const XDS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15010);
/// Where the pilot's HTTP listens by default.
const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15014);
/// The file of the embedded registry by default.
const REGISTRY: &str = "registry.redb";
/// What is logged by default.
const LEVEL: &str = "info";

#[cfg(test)]
mod tests;
