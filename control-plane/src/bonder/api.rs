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
            use dependencies::Error::{Bytes, Key, Over, Refused, Services, Write};
            let code = match &error {
                Refused(refusal) => code(refusal),
                Key(_) | Bytes => StatusCode::BAD_REQUEST,
                Services => StatusCode::CONFLICT,
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
            use providers::Error::{Addresses, Bytes, Invalid, Over, Refused, Write};
            let code = match &error {
                Refused(refusal) => code(refusal),
                Invalid(..) | Addresses | Bytes => StatusCode::BAD_REQUEST,
                Write { .. } => StatusCode::INTERNAL_SERVER_ERROR,
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::IpAddr};

    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::bonder::registration::Place;

    /// The pages, with nothing behind them yet.
    fn pages(folder: &std::path::Path, token: Option<Token>) -> Router {
        let file = folder.join("dependencies.json");
        let (dependencies, keep) = Dependencies::open(&file, &BTreeSet::new()).expect("written");
        tokio::spawn(keep);
        let place = || Place {
            host: IpAddr::from([127, 0, 0, 1]),
            inbound: None,
        };
        let file = folder.join("providers.json");
        let wanted = watch::Sender::default();
        let (providers, keep) = Providers::start(file, BTreeSet::new(), place, wanted);
        tokio::spawn(keep);
        let (_, progress) = watch::channel(Progress::default());
        let (_, status) = watch::channel(Status::default());
        let state = State {
            dependencies,
            providers,
            progress,
            status,
        };
        router(state, token)
    }

    /// The status and the body of the answer to `METHOD PATH`.
    async fn ask(pages: &Router, line: &str, token: &str, body: &str) -> (u16, String) {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("bearer {token}"));
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let answer = pages.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = answer
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn what_is_told_is_shown_and_what_is_wrong_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let pages = pages(folder.path(), None);
        let long = " ".repeat(3_000_000);
        let provided = "{\"client\":\"a\",\"pid\":1,\"ttl_s\":9,\"services\":[\"a.A\",                        {\"service\":\"b.B\",\"address\":\"127.0.0.1:1\"}]}";
        for (line, body, status, shows) in [
            ("GET /", "", 200, "/v1/providers"),
            ("GET /ready", "", 200, "ready"),
            ("GET /v1/status", "", 200, "\"children\": []"),
            ("GET /v2/status", "", 404, "GET / lists all"),
            ("POST /v1/dependencies", "", 405, "GET / lists all"),
            ("PUT /v1/dependencies", "{", 400, "EOF"),
            ("PUT /v1/dependencies", &long, 413, ""),
            (
                "PUT /v1/dependencies",
                "{\"client\":\"a\",\"pid\":4000000,\"services\":[\"a.A\"]}",
                400,
                "ttl_s: is missing",
            ),
            (
                "PUT /v1/dependencies",
                "{\"client\":\"a\",\"pid\":1,\"ttl_s\":9,\"services\":[\"a.A\"]}",
                200,
                "\"a.A\"",
            ),
            ("GET /v1/dependencies", "", 200, "\"a.A\""),
            ("PUT /v1/providers", provided, 200, "\"registered\": []"),
            (
                "PUT /v1/providers",
                "{\"client\":\"a\",\"pid\":1,\"ttl_s\":9,\"services\":[\"a.A\",\"a b\"]}",
                400,
                "services[1].service: service key \"a b\" is malformed",
            ),
            ("GET /v1/providers", "", 200, "\"serves\": false"),
        ] {
            let (code, answer) = ask(&pages, line, "", body).await;
            assert_eq!(code, status, "{line}: {answer}");
            assert!(answer.contains(shows), "{line}: {answer}");
        }
    }

    #[tokio::test]
    async fn without_the_token_nothing_is_told_but_readiness() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret").expect("written");
        let pages = pages(folder.path(), Some(Token::read(&file).expect("a token")));
        for (line, token, status) in [
            ("GET /v1/status", "", 401),
            ("PUT /v1/dependencies", "s3cre", 401),
            ("GET /nothing", "", 401),
            ("GET /v1/status", "s3cret", 200),
            ("GET /ready", "", 200),
        ] {
            assert_eq!(ask(&pages, line, token, "").await.0, status, "{line}");
        }
    }
}
