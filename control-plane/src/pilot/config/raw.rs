//! The configuration as it is written: every key optional, nothing checked but its type.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::endpoint::RawEndpoint;

/// A value with the place where it stands.
type Text = Option<Spanned<String>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) xds: Option<RawEndpoint>,
    pub(super) http: Option<RawEndpoint>,
    pub(super) registries: Option<Spanned<Vec<RawRegistry>>>,
    pub(super) logging: Option<RawLogging>,
}

/// A registry; the key says of which kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum RawRegistry {
    Embedded(RawEmbedded),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEmbedded {
    pub(super) path: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogging {
    pub(super) level: Text,
}
