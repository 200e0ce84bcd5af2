//! Where a process is asked: an address, and the token that is wanted there.

use std::{net::SocketAddr, path::Path};

use mesh_proto::token::Token;
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use crate::yaml::Problems;

/// An address that a process listens on. Beyond loopback it wants a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// What a request must bear. Default: nothing.
    pub token: Option<Token>,
}

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawEndpoint {
    listen: Option<Spanned<String>>,
    token_file: Option<Spanned<String>>,
}

impl Endpoint {
    /// What is written at `key`, with paths in the folder `dir`, or listening on `default`.
    pub(crate) fn resolve(
        raw: Option<&RawEndpoint>,
        key: &str,
        default: SocketAddr,
        dir: &Path,
        problems: &mut Problems,
    ) -> Self {
        let (at, file) = (format!("{key}.listen"), format!("{key}.token_file"));
        let listen = raw.and_then(|raw| raw.listen.as_ref());
        let token = raw.and_then(|raw| raw.token_file.as_ref());
        let endpoint = Self {
            listen: problems
                .parse(&at, listen, |text| address(text))
                .unwrap_or(default),
            token: problems.parse(&file, token, |path| Token::read(&dir.join(path))),
        };
        if !endpoint.listen.ip().is_loopback() && token.is_none() {
            let cure = format!("is beyond loopback; write {file} too, or listen on 127.0.0.1");
            problems.add(listen.map(|text| text.referenced), &at, cure);
        }
        endpoint
    }

    /// As it is written, with every default. Of a token, its file.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = json!({ "listen": self.listen });
        if let Some(token) = &self.token {
            all["token_file"] = json!(token.file);
        }
        all
    }
}

/// An address that is written as `IP:port`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no IP:port"))
}
