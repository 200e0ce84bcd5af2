//! What the proxy is and how it is configured.

use std::{fmt::Write, net::SocketAddr};

use axum::{
    extract::{Query as Asked, State as From},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{Query, State, json};
use crate::{config::Listen, metrics::ControlPlane};

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
    let effective = json!({ "name": "effective", "config": state.config.load().to_json() });
    let control_plane = state.control_plane.as_ref().map(control_plane);
    let configs: Vec<_> = [effective].into_iter().chain(control_plane).collect();
    json(&json!({ "configs": configs }))
}

/// How it stands with the control plane, and how old what is known is.
fn control_plane(of: &ControlPlane) -> Value {
    let standing = of.standing();
    let age = standing.confirmed.and_then(|at| at.elapsed().ok());
    let (services, pending) = standing.services;
    json!({
        "name": "xds",
        "connected": standing.server.map(|server| server.to_string()),
        "lost": standing.lost,
        "rejected": standing.refused,
        "age_seconds": age.map(|age| age.as_secs()),
        "services": services,
        "pending": pending,
        "learned": standing.learned,
        "dependencies": standing.dependencies,
    })
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
