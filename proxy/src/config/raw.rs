//! The configuration as it is written: every key optional, nothing checked but its type.
//!
//! Numbers, sizes and times stay texts here, so that a wrong one is reported with all the others.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
    ser::Serializer,
};

use super::limits::RawLimits;

/// The whole file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) node: Option<RawNode>,
    pub(super) outbound: Option<RawOutbound>,
    pub(super) inbound: Option<RawInbound>,
    pub(super) admin: Option<RawAdmin>,
    pub(super) logging: Option<RawLogging>,
    pub(super) workers: Option<Quantity>,
    pub(super) quarantine: Option<String>,
    pub(super) limits: Option<RawLimits>,
    pub(super) xds: Option<RawXds>,
    pub(super) dependencies: Option<String>,
    #[serde(rename = "static")]
    pub(super) fixed: Option<RawStatic>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawNode {
    pub(super) id: Option<String>,
    pub(super) cluster: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawOutbound {
    pub(super) listen: Option<OneOrMany>,
    pub(super) own_addresses: Option<bool>,
    pub(super) default: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawInbound {
    pub(super) listen: Option<OneOrMany>,
    pub(super) provider: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) listen: Option<String>,
    pub(super) token_file: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogging {
    pub(super) level: Option<String>,
    pub(super) format: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawXds {
    pub(super) servers: Option<OneOrMany>,
    pub(super) token_file: Option<String>,
    pub(super) cache: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStatic {
    pub(super) services: Option<Vec<RawService>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawService {
    pub(super) key: Option<String>,
    pub(super) endpoints: Option<Vec<RawEndpoint>>,
    pub(super) timeout: Option<Quantity>,
    pub(super) retries: Option<Quantity>,
    pub(super) idempotent: Option<RawIdempotent>,
    pub(super) balance: Option<String>,
}

/// A number, a size or a time. Written back, a bare number is one.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Quantity(pub(super) String);

/// One text or a list of them.
#[derive(Debug)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// An address, or an address with what else is known of it.
#[derive(Debug)]
pub(super) enum RawEndpoint {
    Address(String),
    Weighted(RawWeighted),
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWeighted {
    pub(super) address: Option<String>,
    pub(super) weight: Option<Quantity>,
    pub(super) mesh: Option<bool>,
    pub(super) direct: Option<String>,
}

/// All methods or none, or a list of them.
#[derive(Debug)]
pub(super) enum RawIdempotent {
    All(bool),
    Methods(Vec<String>),
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address as ADDRESS:PORT or a list of these")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMany, A::Error> {
                texts(items).map(OneOrMany::Many)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de> Deserialize<'de> for RawEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawEndpoint;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("IP:port, name:port or { address, weight, mesh, direct }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawEndpoint, E> {
                Ok(RawEndpoint::Address(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawEndpoint, A::Error> {
                RawWeighted::deserialize(MapAccessDeserializer::new(map)).map(RawEndpoint::Weighted)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de> Deserialize<'de> for RawIdempotent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawIdempotent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a list of methods")
            }

            fn visit_bool<E: de::Error>(self, all: bool) -> Result<RawIdempotent, E> {
                Ok(RawIdempotent::All(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RawIdempotent, A::Error> {
                texts(items).map(RawIdempotent::Methods)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<u64>() {
            Ok(number) => number.serialize(serializer),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl Serialize for OneOrMany {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(text) => text.serialize(serializer),
            Self::Many(texts) => texts.serialize(serializer),
        }
    }
}

impl Serialize for RawEndpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address(address) => address.serialize(serializer),
            Self::Weighted(weighted) => weighted.serialize(serializer),
        }
    }
}

impl Serialize for RawIdempotent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(all) => all.serialize(serializer),
            Self::Methods(methods) => methods.serialize(serializer),
        }
    }
}

/// The items of a list of texts.
fn texts<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Vec<String>, A::Error> {
    let mut texts = Vec::new();
    while let Some(text) = items.next_element()? {
        texts.push(text);
    }
    Ok(texts)
}
