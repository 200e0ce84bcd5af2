//! HTTP for the processes of the container, which tell what they call and provide, and for people.

use axum::{
    Router,
    body::Bytes,
    extract::State as From,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use super::{
    config::Token,
    dependencies::{self, Dependencies},
    ledger::{Document, Refusal},
    providers::{self, Providers},
    registration::Progress,
    status::{Phase, Status},
};
use crate::server;

/// All that the pages show and change. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) dependencies: Dependencies,
    pub(super) providers: Providers,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) status: watch::Receiver<Status>,
}

/// Every page: path, methods and what it is for.
const PAGES: [(&str, &str, &str); 5] = [
    ("/", "GET", "this list"),
    (
        "/ready",
        "GET",
        "200 while every child is ready, else 503; needs no token",
    ),
    (
        "/v1/status",
        "GET",
        "every child: since when, restarts, last exit, readiness",
    ),
    (
        "/v1/dependencies",
        "GET, PUT",
        "services that are called here; {\"client\", \"pid\", \"ttl_s\", \"services\": [KEY]}",
    ),
    (
        "/v1/providers",
        "GET, PUT",
        "services that are provided here; as above, also {\"service\", \"address\", \"metadata\"}",
    ),
];

/// The pages, within their bounds.
pub(super) fn router(state: State, token: Option<Token>) -> Router {
    let pages = Router::new()
        .route("/", get(help))
        .route("/v1/status", get(status))
        .route("/v1/dependencies", get(declared).put(declare))
        .route("/v1/providers", get(provided).put(provide))
        .with_state(state.clone());
    // Who probes it often cannot keep a secret.
    let ready = Router::new().route("/ready", get(ready)).with_state(state);
    server::guard(pages, token).merge(ready)
}

async fn help() -> String {
    let lines = PAGES
        .iter()
        .map(|(path, methods, what)| format!("{methods:8} {path:17} {what}\n"));
    lines.collect()
}

async fn ready(From(state): From<State>) -> Response {
    let phase = state.status.borrow().phase();
    let code = match phase {
        Phase::Ready => StatusCode::OK,
        Phase::Starting | Phase::Ending => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", phase.as_str())).into_response()
}

async fn status(From(state): From<State>) -> Response {
    let status = state.status.borrow().print();
    json(&status)
}

async fn declared(From(state): From<State>) -> Response {
    json(&state.dependencies.declared())
}

async fn declare(From(state): From<State>, body: Bytes) -> Response {
    let document: Document<String> = match parse(&body) {
        Ok(document) => document,
        Err(refused) => return refused.into_response(),
    };
    match state.dependencies.put(document).await {
        Ok(()) => json(&state.dependencies.declared()),
        Err(error) => {
            use dependencies::Error::{Bytes, Key, Over, Refused, Write};
            let code = match &error {
                Refused(refusal) => code(refusal),
                Key(_) | Bytes => StatusCode::BAD_REQUEST,
                Write { .. } => StatusCode::INTERNAL_SERVER_ERROR,
                Over => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, format!("{error}\n")).into_response()
        }
    }
}

/// What is provided, and how far the registry has followed.
#[derive(Debug, Serialize)]
struct ProvidedPage {
    #[serde(flatten)]
    shown: providers::Shown,
    #[serde(flatten)]
    progress: Progress,
}

async fn provided(From(state): From<State>) -> Response {
    json(&ProvidedPage {
        shown: state.providers.shown(),
        progress: state.progress.borrow().clone(),
    })
}

async fn provide(From(state): From<State>, body: Bytes) -> Response {
    let document = match parse(&body) {
        Ok(document) => document,
        Err(refused) => return refused.into_response(),
    };
    match state.providers.put(document).await {
        Ok(()) => provided(From(state)).await,
        Err(error) => {
            use providers::Error::{Addresses, Invalid, Over, Refused};
            let code = match &error {
                Refused(refusal) => code(refusal),
                Invalid(..) | Addresses => StatusCode::BAD_REQUEST,
                Over => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, format!("{error}\n")).into_response()
        }
    }
}

/// The document that a body is, whatever type it claims to be of.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| {
        let cure = "write {\"client\", \"pid\", \"ttl_s\", \"services\"}";
        (StatusCode::BAD_REQUEST, format!("{error}; {cure}\n"))
    })
}

fn code(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Client | Refusal::Ttl(_) | Refusal::Endless(_) => StatusCode::BAD_REQUEST,
        Refusal::Services | Refusal::Clients => StatusCode::CONFLICT,
    }
}

/// `value` as an answer, readable for people too.
fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string_pretty(value).expect("texts, numbers and lists are JSON");
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, text + "\n").into_response()
}
