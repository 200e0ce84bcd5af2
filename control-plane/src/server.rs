//! An HTTP server for people and machines that watch and steer a process: bounded in connections,
//! requests, bytes and time, and closed to who does not bear its token.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    BoxError, Router,
    error_handling::HandleErrorLayer,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use mesh_proto::token::Token;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tower::{
    ServiceBuilder, limit::GlobalConcurrencyLimitLayer, load_shed::LoadShedLayer,
    timeout::TimeoutLayer,
};

use crate::patience::Patient;

/// Takes an address. `key` is the one that names it.
///
/// # Errors
/// It cannot be taken; the text names the key and the cure.
pub(crate) fn bind(key: &str, address: SocketAddr) -> Result<std::net::TcpListener, String> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let cure = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "stop the process that listens there, or write another address"
            }
            io::ErrorKind::AddrNotAvailable => "write an address of this host",
            _ => "write another address",
        };
        format!("{key}: cannot listen on {address}: {error}; {cure}")
    })
}

/// Puts the bounds around `pages`: who may ask, how many at a time, how long, how much.
pub(crate) fn guard(pages: Router, token: Option<Token>) -> Router {
    let bounds = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(refuse))
        .layer(LoadShedLayer::new())
        // Of all pages together, not of each by itself.
        .layer(GlobalConcurrencyLimitLayer::new(MAX_REQUESTS))
        .layer(TimeoutLayer::new(PATIENCE));
    pages
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page; GET / lists all\n") })
        .method_not_allowed_fallback(|| async {
            let hint = "not with this method; GET / lists all\n";
            (StatusCode::METHOD_NOT_ALLOWED, hint)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(token, check))
        .layer(bounds)
}

/// Serves `pages` until the future is dropped. Cancel safe: requests at work are cut off.
///
/// # Errors
/// The runtime cannot wait for the socket.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    pages: Router,
) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    // Connections that are kept open ask nothing for a while, so there may be more of them.
    let places = Arc::new(Semaphore::new(2 * MAX_REQUESTS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((socket, _)) => {
                let pages = pages.clone();
                connections.spawn(async move {
                    let _place = place;
                    connection(socket, pages).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, pages: Router) {
    let socket = Patient::new(socket, PATIENCE);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(pages))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Lets a request through that bears the token, or any if there is none.
async fn check(State(token): State<Option<Token>>, request: Request, next: Next) -> Response {
    let borne = request.headers().get(header::AUTHORIZATION);
    let admitted =
        token.is_none_or(|token| borne.is_some_and(|value| token.is_borne_by(value.as_bytes())));
    if admitted {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let hint = "send the token of http.token_file as authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, challenge, hint).into_response()
}

async fn refuse(error: BoxError) -> Response {
    if error.is::<tower::timeout::error::Elapsed>() {
        return (StatusCode::GATEWAY_TIMEOUT, "took too long\n").into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "too many requests at a time\n",
    )
        .into_response()
}

/// Requests at a time; more are refused.
const MAX_REQUESTS: usize = 64;
/// Bytes of the longest body: some thousand services.
const MAX_BODY: usize = 2 << 20;
/// Bytes of the longest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// Time for one request, and for its asker to read some of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::sleep,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_left() {
        // More than the kernel takes for a peer that does not read.
        let whole = 64 << 20;
        let pages = Router::new().route("/", get(move || async move { vec![0; whole] }));
        let listener = bind("test", "127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, pages));
        let mut asker = TcpStream::connect(address).await.expect("accepted");
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        asker.write_all(request).await.expect("sent");
        // Virtual time, which goes on when nothing else does.
        sleep(2 * PATIENCE).await;
        let mut read = Vec::new();
        // It may break off in a reset.
        let _ = asker.read_to_end(&mut read).await;
        assert!((1..whole).contains(&read.len()), "{} bytes", read.len());
    }
}
