//! Pages that change something.

use axum::{
    extract::{Query as Asked, State as From},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::State;

/// `POST /drain_listeners`: stops accepting, and stays so.
pub(super) async fn drain_listeners(From(state): From<State>) -> &'static str {
    state.drain.begin_listeners();
    "OK\n"
}

/// `POST /quitquitquit`: drains and ends, as on SIGTERM.
pub(super) async fn quit(From(state): From<State>) -> &'static str {
    state.drain.begin();
    "OK\n"
}

/// `GET /logging`.
pub(super) async fn level(From(state): From<State>) -> String {
    format!("{}\n", state.levels.text())
}

/// What `POST /logging` asks for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    level: Option<String>,
}

/// `POST /logging?level=LEVEL`.
pub(super) async fn set_level(From(state): From<State>, Asked(wanted): Asked<Wanted>) -> Response {
    let changed = match wanted.level {
        None => Err("write ?level=LEVEL".into()),
        Some(level) => state.levels.set(&level),
    };
    match changed {
        Ok(()) => {
            let level = state.levels.text();
            tracing::info!(level, "log level changed");
            format!("{level}\n").into_response()
        }
        Err(cure) => (StatusCode::BAD_REQUEST, format!("{cure}\n")).into_response(),
    }
}
