//! The configuration as it is written: every key optional, nothing checked but its type.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_saphyr::Spanned;

use crate::{
    bonder::provided::{Whole, Written},
    endpoint::RawEndpoint,
};

/// A value with the place where it stands.
type Text = Option<Spanned<String>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) http: Option<RawEndpoint>,
    pub(super) pilot: Option<RawPilot>,
    pub(super) proxy: Text,
    pub(super) state: Text,
    pub(super) advertise: Text,
    pub(super) dependencies: Option<Vec<Spanned<String>>>,
    pub(super) providers: Option<Vec<Spanned<RawProvider>>>,
    pub(super) restart: Text,
    pub(super) logging: Option<RawLogging>,
    pub(super) limits: Option<RawLimits>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogging {
    pub(super) level: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLimits {
    pub(super) ready_time: Text,
    pub(super) drain_time: Text,
    pub(super) stop_time: Text,
}

/// The file of one that is started, or more of it.
#[derive(Debug)]
pub(super) enum RawPilot {
    Config(String),
    Whole(Box<WholePilot>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WholePilot {
    pub(super) config: Text,
    pub(super) address: Text,
    pub(super) token_file: Text,
}

/// A key, or a key with more of it.
#[derive(Debug, Clone)]
pub(super) struct RawProvider(pub(super) Written);

impl<'de> Deserialize<'de> for RawPilot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawPilot;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the pilot's configuration file or { config | address, token_file }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawPilot, E> {
                Ok(RawPilot::Config(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawPilot, A::Error> {
                let whole = WholePilot::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawPilot::Whole(Box::new(whole)))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de> Deserialize<'de> for RawProvider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = RawProvider;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a service key or { service, address, metadata }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawProvider, E> {
                Ok(RawProvider(Written::Key(text.into())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawProvider, A::Error> {
                let whole = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawProvider(Written::Whole(whole)))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}
