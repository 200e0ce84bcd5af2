//! Which call goes to which cluster, for clients that want a table of it: stock Envoy.

use std::{cmp::Reverse, collections::BTreeSet};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    digest::Digest,
    names::{self, Type},
    xds::{
        dubbo::{
            MethodMatch, MultipleRouteConfiguration, Route, RouteAction, RouteConfiguration,
            RouteMatch, route_action::ClusterSpecifier,
        },
        matcher::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
};

use super::Resource;

/// The table called `name`, with an entry for each of `services`.
///
/// It depends on nothing else: providers that come and go leave it as it is.
#[must_use]
pub fn routes(name: &str, services: &BTreeSet<ServiceKey>) -> Resource {
    let mut ordered: Vec<_> = services.iter().collect();
    // The first that matches is taken, and an entry without group or version matches every one.
    ordered.sort_by_key(|key| Reverse((!key.group().is_empty(), !key.version().is_empty())));
    let message = MultipleRouteConfiguration {
        name: name.into(),
        route_config: ordered.into_iter().map(entry).collect(),
    };
    let digest = services
        .iter()
        .fold(Digest::new().text(name), |digest, key| {
            digest.text(&key.to_string())
        });
    Resource::new(Type::Routes, name.into(), digest, &message)
}

fn entry(key: &ServiceKey) -> RouteConfiguration {
    let any = RegexMatcher {
        regex: ".*".into(),
        ..Default::default()
    };
    let any = StringMatcher {
        match_pattern: Some(MatchPattern::SafeRegex(any)),
        ..Default::default()
    };
    let every_method = RouteMatch {
        method: Some(MethodMatch {
            name: Some(any),
            ..Default::default()
        }),
        ..Default::default()
    };
    let to_its_cluster = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(names::cluster(key))),
        ..Default::default()
    };
    RouteConfiguration {
        name: key.to_string(),
        interface: key.interface().into(),
        group: key.group().into(),
        version: key.version().into(),
        routes: vec![Route {
            r#match: Some(every_method),
            route: Some(to_its_cluster),
        }],
    }
}
