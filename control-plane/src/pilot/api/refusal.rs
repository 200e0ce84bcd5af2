//! Why something is not done, as an answer.

use std::error::Error as _;

use axum::{
    Json,
    body::to_bytes,
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
};

use super::{IntoResponse, Response, StatusCode, json};
use crate::registry;

/// Why something is not done. Says the cure.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the body is no JSON of instances: {0}")]
    Json(#[from] serde_json::Error),
    #[error("instance {at}: {what}")]
    Instance { at: usize, what: String },
    #[error("service: {0}")]
    Service(String),
    #[error("{limit} watch already, which is the most")]
    Watchers { limit: usize },
    #[error(transparent)]
    Registry(#[from] registry::Error),
}

impl Refusal {
    /// All of it, with its causes.
    pub(super) fn text(&self) -> String {
        let mut text = self.to_string();
        let mut source = match self {
            Self::Registry(error) => error.source(),
            _ => None,
        };
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = match &self {
            Self::Json(_) | Self::Instance { .. } | Self::Service(_) => StatusCode::BAD_REQUEST,
            Self::Watchers { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Registry(registry::Error::Full { .. }) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Registry(registry::Error::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, self.text()).into_response()
    }
}

/// What is refused in a text, as JSON.
pub(super) async fn as_json(answer: Response) -> Response {
    let (mut head, body) = answer.into_parts();
    if !head.status.is_client_error() && !head.status.is_server_error() {
        return Response::from_parts(head, body);
    }
    let text = to_bytes(body, MAX_TEXT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    head.headers.remove(CONTENT_TYPE);
    head.headers.remove(CONTENT_LENGTH);
    let mut answer = Json(json!({ "error": text.trim_end() })).into_response();
    *answer.status_mut() = head.status;
    answer.headers_mut().extend(head.headers);
    answer
}

/// Bytes of the longest reason.
const MAX_TEXT: usize = 16 << 10;
