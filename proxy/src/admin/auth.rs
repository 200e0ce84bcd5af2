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
    let admitted = match &config.admin.token {
        None => true,
        Some(token) => bearer(&request).is_some_and(|text| token.matches(text)),
    };
    if admitted {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let hint = "send the token of admin.token_file as authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, challenge, hint).into_response()
}

fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

const SCHEME: &[u8] = b"Bearer ";
