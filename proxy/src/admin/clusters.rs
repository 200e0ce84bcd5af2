//! Services and their hosts.

use std::{collections::HashMap, fmt::Write, net::SocketAddr};

use axum::{
    extract::{Query as Asked, State as From},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{Query, State, json, status::socket_address};
use crate::metrics::{HostState, HostStats, Label, Outcome, ServiceHost, ServiceStats};

/// `GET /clusters`: a line for each number of each host of each service, or JSON.
///
/// Numbers are the host's, all its services together.
pub(super) async fn clusters(From(state): From<State>, Asked(query): Asked<Query>) -> Response {
    let gathered = state.shards.refresh().await;
    let hosts: HashMap<_, _> = gathered
        .hosts()
        .into_iter()
        .map(|host| (host.address, host))
        .collect();
    let services = gathered.services();
    if query.json() {
        let services: Vec<_> = services
            .iter()
            .map(|service| cluster(service, &hosts))
            .collect();
        return json(&json!({ "cluster_statuses": services }));
    }
    let mut text = String::new();
    for service in &services {
        for host in &service.hosts {
            let address = host.address;
            for (what, value) in facts(host, hosts.get(&address)) {
                let value = value.as_str().map_or_else(|| value.to_string(), Into::into);
                let _ = writeln!(text, "{}::{address}::{what}::{value}", service.key);
            }
        }
    }
    text.into_response()
}

fn cluster(service: &ServiceStats, hosts: &HashMap<SocketAddr, HostStats>) -> Value {
    let each = service.hosts.iter().map(|provider| {
        let host = hosts.get(&provider.address);
        let facts = facts(provider, host)
            .into_iter()
            .map(|(what, value)| (what.into(), value));
        let mut status: Map<String, Value> = facts.collect();
        status.insert("address".into(), socket_address(provider.address));
        status.insert(
            "finished".into(),
            host.map_or_else(Map::new, finished).into(),
        );
        Value::Object(status)
    });
    json!({
        "name": service.key.to_string(),
        "wildcard": service.wildcard,
        "host_statuses": each.collect::<Vec<_>>(),
    })
}

/// What is told of a host, with Envoy's names where Envoy has one. One that no shard has had to do
/// with yet is idle.
fn facts(provider: &ServiceHost, host: Option<&HostStats>) -> Vec<(&'static str, Value)> {
    let state = host.map_or(HostState::Idle, |host| host.state);
    let profile = &provider.profile;
    let health = match profile.healthy {
        true => "healthy",
        false => "/failed_eds_health",
    };
    let mut facts = vec![
        ("weight", profile.weight.into()),
        ("health_flags", health.into()),
        ("state", state.as_str().into()),
    ];
    if let Some(direct) = profile.direct {
        facts.push(("direct", direct.to_string().into()));
    }
    let Some(host) = host else { return facts };
    let (total, successes) = (host.finished.total(), successes(host));
    let numbers = [
        ("cx_active", is_connected(host).into()),
        ("cx_total", host.connected),
        ("cx_connect_fail", host.connect_failures),
        ("rq_active", host.in_flight),
        ("rq_total", total),
        ("rq_success", successes),
        ("rq_error", total - successes),
        ("rq_timeout", host.finished[Outcome::Timeout]),
        ("queued_bytes", host.queued_bytes),
    ];
    facts.extend(numbers.map(|(what, number)| (what, number.into())));
    facts
}

/// The outcomes that came.
fn finished(host: &HostStats) -> Map<String, Value> {
    let came = host.finished.iter().filter(|(_, count)| *count > 0);
    came.map(|(outcome, count)| (outcome.as_str().into(), count.into()))
        .collect()
}

/// Calls that the host answered as it should: an exception of the application is an answer.
fn successes(host: &HostStats) -> u64 {
    host.finished[Outcome::Ok] + host.finished[Outcome::Exception]
}

fn is_connected(host: &HostStats) -> bool {
    matches!(host.state, HostState::Connected | HostState::ReadOnly)
}
