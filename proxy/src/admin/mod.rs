//! HTTP for people and machines that watch and steer the proxy, with Envoy's names where Envoy has
//! the page. `GET /help` lists them all.
//!
//! Runs on a runtime apart from the shards, so that a slow scrape costs no call. What a page shows
//! comes in by [`State`]; nothing here knows a shard.

mod auth;
mod clusters;
mod control;
mod failover;
mod levels;
mod server;
mod stats;
mod status;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use axum::{
    Router,
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;

use crate::{
    config::{Config, Listen},
    drain::{Drain, Phase},
    metrics,
};

pub use failover::Failover;
pub use levels::Levels;
pub use server::{bind, start};

/// All that the pages show and steer. Clones share it.
#[derive(Debug, Clone)]
pub struct State {
    /// The configuration as it is now.
    pub config: Arc<ArcSwap<Config>>,
    /// Every family.
    pub registry: prometheus::Registry,
    /// The families of the shards, to be asked for before they are shown.
    pub shards: metrics::Shards,
    /// What the admin counts of itself.
    pub requests: metrics::AdminRequests,
    /// Whether the proxy takes calls.
    pub ready: Readiness,
    /// How far it has drained.
    pub drain: Drain,
    /// The listeners as bound: `outbound` or `inbound`, and where.
    pub listeners: Arc<[(&'static str, Listen)]>,
    /// What is logged.
    pub levels: Levels,
    /// The providers that clients go to without us, as seen last.
    pub failover: Failover,
    /// How it stands with the control plane, if the configuration names one.
    pub control_plane: Option<metrics::ControlPlane>,
    /// When the proxy started.
    pub started: Instant,
}

/// Whether the proxy takes calls: no, until it is told once that it does. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on it does. A flag by itself: it guards no memory.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl State {
    /// The state of the server, as Envoy names it.
    fn server_state(&self) -> &'static str {
        match (self.drain.phase(), self.ready.is_set()) {
            (Phase::Running, true) => "LIVE",
            (Phase::Running, false) => "PRE_INITIALIZING",
            _ => "DRAINING",
        }
    }
}

/// Every page: path, method and what it is for.
const PAGES: [(&str, &str, &str); 13] = [
    ("/", "GET", "this list"),
    ("/help", "GET", "this list"),
    (
        "/ready",
        "GET",
        "200 LIVE while the proxy takes calls, else 503; needs no token",
    ),
    ("/server_info", "GET", "version, state, node and uptime"),
    (
        "/stats",
        "GET",
        "every metric; ?filter=TEXT, ?usedonly, ?format=json",
    ),
    ("/stats/prometheus", "GET", "every metric, for Prometheus"),
    ("/clusters", "GET", "services and their hosts; ?format=json"),
    (
        "/failover",
        "GET",
        "providers to call without us; ?service=KEY, ?limit=10, ?wait=30s with if-none-match",
    ),
    ("/listeners", "GET", "where the proxy listens; ?format=json"),
    (
        "/config_dump",
        "GET",
        "the effective configuration, secrets left out, and how it stands with the control plane",
    ),
    (
        "/logging",
        "GET",
        "what is logged; POST ?level=LEVEL changes it until the next restart",
    ),
    (
        "/drain_listeners",
        "POST",
        "stops accepting and tells peers so",
    ),
    ("/quitquitquit", "POST", "drains and ends, as on SIGTERM"),
];

fn router(state: State) -> Router {
    let pages = Router::new()
        .route("/", get(help))
        .route("/help", get(help))
        .route("/server_info", get(status::server_info))
        .route("/stats", get(stats::stats))
        .route("/stats/prometheus", get(stats::prometheus))
        .route("/clusters", get(clusters::clusters))
        .route("/listeners", get(status::listeners))
        .route("/config_dump", get(status::config_dump))
        .route("/logging", get(control::level).post(control::set_level))
        .route("/drain_listeners", post(control::drain_listeners))
        .route("/quitquitquit", post(control::quit))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method);
    // Who probes it often cannot keep a secret, and must not be refused for others' scrapes.
    let ready = Router::new()
        .route("/ready", get(status::ready))
        .method_not_allowed_fallback(wrong_method);
    let limits = state.config.load().limits.clone();
    let bounds = server::Bounds {
        requests: (limits.admin_requests, "limits.admin_requests"),
        time: (limits.admin_timeout, "limits.admin_timeout"),
    };
    let pages = server::guard(pages, &state, bounds);
    // Who waits here keeps nobody from the other pages.
    let failover = Router::new()
        .route("/failover", get(failover::failover))
        .method_not_allowed_fallback(wrong_method);
    let bounds = server::Bounds {
        requests: (limits.admin_waiters, "limits.admin_waiters"),
        time: (
            failover::MAX_WAIT + limits.admin_timeout,
            "limits.admin_timeout",
        ),
    };
    let failover = server::guard(failover, &state, bounds);
    server::count(pages.merge(failover).merge(ready), &state).with_state(state)
}

async fn help() -> String {
    let lines = PAGES
        .iter()
        .map(|(path, method, what)| format!("{method:4} {path:18} {what}\n"));
    lines.collect()
}

async fn unknown(uri: Uri) -> Response {
    let hint = format!("no page {}; GET /help lists all\n", uri.path());
    (StatusCode::NOT_FOUND, hint).into_response()
}

async fn wrong_method() -> Response {
    (
        StatusCode::METHOD_NOT_ALLOWED,
        "not with this method; GET /help lists all\n",
    )
        .into_response()
}

/// How a page is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Query {
    format: Option<String>,
    filter: String,
    usedonly: Option<String>,
}

impl Query {
    /// Whether JSON is asked for.
    fn json(&self) -> bool {
        self.format.as_deref() == Some("json")
    }
}

/// `value` as an answer, a line for people.
fn json(value: &serde_json::Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        format!("{value:#}\n"),
    )
        .into_response()
}

#[cfg(test)]
mod tests;
