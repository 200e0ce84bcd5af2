//! HTTP for whoever registers instances and whoever wants to see them. Bodies are JSON, whatever
//! their content type says, and so is what is answered, errors included.

mod clients;
mod instances;
mod refusal;
mod watch;

use std::{sync::Arc, time::Instant};

use axum::{
    Json, Router,
    extract::State as From,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use mesh_proto::token::Token;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::refusal::Refusal;
use super::{Clients, Discovery};
use crate::{
    catalog,
    registry::{Discover, embedded::Embedded},
    server,
};

/// All that the pages show and change. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) registry: Arc<Embedded>,
    pub(super) discovery: Discovery,
    pub(super) clients: Clients,
    pub(super) started: Instant,
    /// Places for those who watch.
    watchers: Arc<Semaphore>,
}

impl State {
    pub(super) fn new(
        registry: Arc<Embedded>,
        discovery: Discovery,
        clients: Clients,
        started: Instant,
    ) -> Self {
        Self {
            registry,
            discovery,
            clients,
            started,
            watchers: Arc::new(Semaphore::new(watch::MAX_WATCHERS)),
        }
    }
}

/// Every page: path, methods and what it is for.
const PAGES: [(&str, &str, &str); 7] = [
    ("/", "GET", "this list"),
    (
        "/ready",
        "GET",
        "200 while the pilot serves; needs no token",
    ),
    (
        "/v1/instances",
        "GET, PUT, DELETE",
        "?service=KEY lists; one or a list of {service, address, weight, metadata, ttl_s} registers; \
         one or a list of {service, address} removes",
    ),
    (
        "/v1/services",
        "GET",
        "every service, and how many instances it has",
    ),
    (
        "/v1/watch",
        "GET",
        "?service=KEY: its instances, now and after each change, as events",
    ),
    (
        "/v1/clients",
        "GET",
        "who is connected, and how it stands with each; ?node=ID, ?limit=N, 1000 by default",
    ),
    (
        "/v1/status",
        "GET",
        "what is registered, what of it is wanted, and what proxies do not take",
    ),
];

/// The pages, within their bounds.
pub(super) fn router(state: State, token: Option<Token>) -> Router {
    let pages = Router::new()
        .route("/", get(help))
        .route(
            "/v1/instances",
            get(instances::list)
                .put(instances::register)
                .delete(instances::remove),
        )
        .route("/v1/services", get(services))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/clients", get(clients::list))
        .route("/v1/status", get(status))
        .with_state(state);
    // Who probes it often cannot keep a secret.
    let ready = Router::new().route("/ready", get(|| async { "LIVE\n" }));
    let pages = server::guard(pages, token).merge(ready);
    // Outermost: what the bounds refuse is JSON too.
    pages.layer(middleware::map_response(refusal::as_json))
}

async fn help() -> String {
    let lines = PAGES
        .iter()
        .map(|(path, methods, what)| format!("{methods:16} {path:13} {what}\n"));
    lines.collect()
}

async fn services(From(state): From<State>) -> Result<Json<Value>, Refusal> {
    let services = state.registry.services().await?;
    let services = services.into_iter();
    let services = services.map(
        |(service, instances)| json!({ "service": service.to_string(), "instances": instances }),
    );
    Ok(Json(json!({ "services": services.collect::<Vec<_>>() })))
}

async fn status(From(state): From<State>) -> Json<Value> {
    // What is wrong with it is part of the status.
    let registered = state.registry.size().await.map_err(Refusal::from);
    let is_read = registered.is_ok();
    let registered = registered.map_or_else(
        |error| json!({ "error": error.text() }),
        |size| json!({ "services": size.services, "instances": size.instances }),
    );
    let (mut pending, mut present, mut absent) = (0, 0, 0);
    for (_, known) in state.discovery.catalog().iter() {
        *match known {
            catalog::State::Pending => &mut pending,
            catalog::State::Present(_) => &mut present,
            catalog::State::Absent => &mut absent,
        } += 1;
    }
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": state.started.elapsed().as_secs(),
        "complete": is_read && state.discovery.is_complete() && pending == 0,
        "registered": registered,
        "wanted": { "pending": pending, "present": present, "absent": absent },
        "clients": clients::summary(&state),
    }))
}

#[cfg(test)]
mod tests;
