//! The configuration as it is meant, written as it could have been: every default filled in.
//!
//! A secret cannot be printed by accident: what is written names the file of a token, not the token.

use std::fmt::Display;

use super::{
    Config, Listen, LogFormat, Outbound, Token,
    limits::RawLimits,
    quantity,
    raw::{
        OneOrMany, Quantity, Raw, RawAdmin, RawEndpoint, RawIdempotent, RawInbound, RawLogging,
        RawNode, RawOutbound, RawService, RawStatic, RawWeighted, RawXds,
    },
};
use crate::model::{Endpoint, Idempotent, Service};

impl Config {
    /// The effective configuration as YAML: read again, it is the same configuration.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&self.to_raw()).expect("texts, lists and maps of these are YAML")
    }

    /// The effective configuration as JSON, with the same keys.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.to_raw()).expect("texts, lists and maps of these are JSON")
    }

    fn to_raw(&self) -> Raw {
        Raw {
            node: Some(RawNode {
                id: Some(self.node.id.clone()),
                cluster: Some(self.node.cluster.clone()),
            }),
            outbound: Some(outbound(self.outbound.as_ref())),
            inbound: self.inbound.as_ref().map(|inbound| RawInbound {
                listen: Some(listeners(&inbound.listen)),
                provider: text(&inbound.provider),
            }),
            admin: Some(RawAdmin {
                listen: text(self.admin.listen),
                token_file: token_file(self.admin.token.as_ref()),
            }),
            logging: Some(RawLogging {
                level: Some(self.logging.level.clone()),
                format: text(match self.logging.format {
                    LogFormat::Text => "text",
                    LogFormat::Json => "json",
                }),
            }),
            workers: number(self.workers),
            quarantine: text(self.quarantine.display()),
            xds: self.xds.as_ref().map(|xds| RawXds {
                servers: Some(match xds.servers.as_slice() {
                    [one] => OneOrMany::One(one.to_string()),
                    many => OneOrMany::Many(many.iter().map(ToString::to_string).collect()),
                }),
                token_file: token_file(xds.token.as_ref()),
                cache: text(xds.cache.display()),
            }),
            dependencies: self
                .dependencies
                .as_ref()
                .and_then(|file| text(file.display())),
            limits: Some(RawLimits::of(&self.limits)),
            fixed: Some(RawStatic {
                services: Some(
                    self.services
                        .iter()
                        .map(|service| raw_service(service))
                        .collect(),
                ),
            }),
        }
    }
}

fn outbound(outbound: Option<&Outbound>) -> RawOutbound {
    let Some(outbound) = outbound else {
        return RawOutbound {
            listen: Some(OneOrMany::Many(Vec::new())),
            ..RawOutbound::default()
        };
    };
    RawOutbound {
        listen: Some(listeners(&outbound.listen)),
        own_addresses: Some(outbound.own_addresses),
        default: outbound.default.as_ref().and_then(text),
    }
}

fn raw_service(service: &Service) -> RawService {
    let key = &service.key;
    // A bare interface would stand for every version; `0.0.0` is none.
    let exact = !service.wildcard && key.group().is_empty() && key.version().is_empty();
    RawService {
        key: if exact {
            Some(format!("{key}:0.0.0"))
        } else {
            text(key)
        },
        endpoints: Some(service.endpoints.iter().map(raw_endpoint).collect()),
        timeout: service.timeout.map(quantity::time::print).map(Quantity),
        retries: number(service.retries),
        idempotent: Some(match &service.idempotent {
            Idempotent::None => RawIdempotent::All(false),
            Idempotent::All => RawIdempotent::All(true),
            Idempotent::Methods(methods) => {
                RawIdempotent::Methods(methods.iter().map(ToString::to_string).collect())
            }
        }),
        balance: text(service.balance.as_str()),
    }
}

fn raw_endpoint(endpoint: &Endpoint) -> RawEndpoint {
    RawEndpoint::Weighted(RawWeighted {
        address: text(&endpoint.address),
        weight: number(endpoint.profile.weight),
        mesh: Some(endpoint.profile.mesh),
        direct: endpoint.profile.direct.and_then(text),
    })
}

fn listeners(listen: &[Listen]) -> OneOrMany {
    match listen {
        [one] => OneOrMany::One(one.to_string()),
        many => OneOrMany::Many(many.iter().map(ToString::to_string).collect()),
    }
}

/// Of a token, its file.
fn token_file(token: Option<&Token>) -> Option<String> {
    token.and_then(|token| text(token.file.display()))
}

fn text(value: impl Display) -> Option<String> {
    Some(value.to_string())
}

fn number(value: impl Display) -> Option<Quantity> {
    Some(Quantity(value.to_string()))
}
