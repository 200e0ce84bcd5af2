//! Envoy's types that we speak, under short paths.

pub use envoy_types::pb::envoy::config::{
    cluster::v3 as cluster, core::v3 as core, endpoint::v3 as endpoint,
};
pub use envoy_types::pb::envoy::service::discovery::v3 as discovery;
pub use envoy_types::pb::envoy::{
    config::route::v3 as route, extensions::filters::network::dubbo_proxy::v3 as dubbo,
    r#type::matcher::v3 as matcher,
};
pub use envoy_types::pb::google::{protobuf, rpc};
