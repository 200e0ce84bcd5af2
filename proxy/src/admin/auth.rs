//! Who may ask: whoever bears the token, where there is one.

use axum::{
    extract::{Request, State as From},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::State;

/// Lets a request through that bears the token, or any if none is configured.
pub(super) async fn check(From(state): From<State>, request: Request, next: Next) -> Response {
    let config = state.config.load();
    let borne = request.headers().get(header::AUTHORIZATION);
    let admitted = match &config.admin.token {
        None => true,
        Some(token) => borne.is_some_and(|value| token.is_borne_by(value.as_bytes())),
    };
    if admitted {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let hint = "send the token of admin.token_file as authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, challenge, hint).into_response()
}
