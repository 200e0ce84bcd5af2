//! What the proxy is and how it is configured.

use std::{fmt::Write, net::SocketAddr};

use axum::{
    extract::{Query as Asked, State as From},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{Query, State, json};
use crate::config::Listen;

/// `GET /ready`.
pub(super) async fn ready(From(state): From<State>) -> Response {
    let state = state.server_state();
    let code = if state == "LIVE" {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, format!("{state}\n")).into_response()
}

/// `GET /server_info`.
pub(super) async fn server_info(From(state): From<State>) -> Response {
    let config = state.config.load();
    json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "state": state.server_state(),
        "drain_phase": state.drain.phase().as_str(),
        "node": { "id": config.node.id, "cluster": config.node.cluster },
        "uptime_current_epoch": format!("{}s", state.started.elapsed().as_secs()),
        "pid": std::process::id(),
        "workers": config.workers,
    }))
}

/// `GET /listeners`.
pub(super) async fn listeners(From(state): From<State>, Asked(query): Asked<Query>) -> Response {
    if query.json() {
        let listeners = state.listeners.iter();
        let listeners =
            listeners.map(|(name, at)| json!({ "name": name, "local_address": local_address(at) }));
        return json(&json!({ "listener_statuses": listeners.collect::<Vec<_>>() }));
    }
    let mut text = String::new();
    for (name, at) in state.listeners.iter() {
        let _ = writeln!(text, "{name}::{at}");
    }
    text.into_response()
}

/// `GET /config_dump`.
pub(super) async fn config_dump(From(state): From<State>) -> Response {
    json(&json!({ "configs": [{ "name": "effective", "config": state.config.load().to_json() }] }))
}

/// An address as Envoy writes it in JSON.
pub(super) fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } })
}

fn local_address(at: &Listen) -> Value {
    match at {
        Listen::Tcp(address) => socket_address(*address),
        Listen::Unix(path) => json!({ "pipe": { "path": path } }),
    }
}
