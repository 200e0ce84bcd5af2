//! Who a client says it is.

use std::collections::BTreeSet;

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names,
    xds::{
        core,
        protobuf::{Struct, Value, value::Kind},
    },
};

/// The sender of a stream's requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its id, cut after 256 bytes. Empty until it says so.
    pub id: String,
    /// What it is part of, cut likewise.
    pub cluster: String,
    /// What it depends on, which is what its wildcards mean.
    pub services: BTreeSet<ServiceKey>,
}

impl Node {
    /// Reads what a request says. Texts that are no key stand for no service.
    pub(super) fn read(node: core::Node) -> Self {
        Self {
            id: cut(node.id),
            cluster: cut(node.cluster),
            services: node.metadata.map(services).unwrap_or_default(),
        }
    }
}

fn services(mut metadata: Struct) -> BTreeSet<ServiceKey> {
    let listed = metadata.fields.remove(names::NODE_SERVICES);
    let Some(Kind::ListValue(listed)) = listed.and_then(|value| value.kind) else {
        return BTreeSet::new();
    };
    let key = |value: Value| match value.kind? {
        Kind::StringValue(text) => names::key(&text).ok(),
        _ => None,
    };
    listed.values.into_iter().filter_map(key).collect()
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// Most bytes that are kept of an id: it is only shown.
const MAX_TEXT: usize = 256;
