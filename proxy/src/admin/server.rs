//! The server under the pages: bounded in connections, requests and time.

use std::{convert::Infallible, io, net::TcpListener, sync::Arc, thread, time::Duration};

use axum::{
    BoxError, Router,
    error_handling::HandleErrorLayer,
    extract::{Request, State as From},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, sync::Semaphore};
use tower::{
    ServiceBuilder, limit::GlobalConcurrencyLimitLayer, load_shed::LoadShedLayer,
    timeout::TimeoutLayer,
};

use super::{State, auth, router};
use crate::{
    config::{Admin, BindError, Listen, fixed},
    drain::Phase,
};

/// Takes the address of the admin.
///
/// # Errors
/// It cannot be taken.
pub fn bind(admin: &Admin) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(admin.listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| BindError {
        key: "admin.listen",
        address: Listen::Tcp(admin.listen),
        source,
    })
}

/// Serves the pages on a thread of its own, until the drain has ended.
///
/// # Errors
/// There is no thread or no runtime to be had.
pub fn start(listener: TcpListener, state: State) -> io::Result<thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let serve = async move {
        let drain = state.drain.clone();
        tokio::select! {
            () = drain.reached(Phase::Ended) => {}
            Err(error) = serve(listener, state) => tracing::error!(%error, "no admin"),
        }
    };
    thread::Builder::new()
        .name("admin".into())
        .spawn(move || runtime.block_on(serve))
}

/// Serves the pages until the future is dropped. Cancel safe: requests at work are cut off.
///
/// # Errors
/// The runtime cannot wait for the socket.
pub(super) async fn serve(listener: TcpListener, state: State) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let limits = state.config.load().limits.clone();
    // Connections that are kept open ask nothing for a while, so there may be more of them.
    let places = Arc::new(Semaphore::new(
        2 * limits.admin_requests + limits.admin_waiters,
    ));
    let mut connections = tokio::task::JoinSet::new();
    connections.spawn(state.failover.clone().follow(state.shards.clone()));
    let pages = router(state);
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((socket, _)) => {
                let pages = pages.clone();
                connections.spawn(async move {
                    let _place = place;
                    connection(socket, pages, limits.admin_timeout).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "admin cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What bounds some pages together, each with the key that sets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Requests at a time.
    pub(super) requests: (usize, &'static str),
    /// Time for one of them.
    pub(super) time: (Duration, &'static str),
}

/// Puts the bounds around `pages`: who may ask, how many at a time, how long.
pub(super) fn guard(pages: Router<State>, state: &State, bounds: Bounds) -> Router<State> {
    let bounds = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(move |error| refuse(error, bounds)))
        .layer(LoadShedLayer::new())
        // Of all pages together, not of each by itself.
        .layer(GlobalConcurrencyLimitLayer::new(bounds.requests.0))
        .layer(TimeoutLayer::new(bounds.time.0));
    pages
        .layer(middleware::from_fn_with_state(state.clone(), auth::check))
        .layer(bounds)
}

/// Counts what `pages` answer.
pub(super) fn count(pages: Router<State>, state: &State) -> Router<State> {
    pages.layer(middleware::from_fn_with_state(state.clone(), counted))
}

async fn connection(socket: TcpStream, pages: Router, patience: Duration) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(fixed::ADMIN_HEAD)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(pages))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended");
    }
}

async fn refuse(error: BoxError, bounds: Bounds) -> Response {
    if error.is::<tower::timeout::error::Elapsed>() {
        let why = format!("took longer than {}\n", bounds.time.1);
        return (StatusCode::GATEWAY_TIMEOUT, why).into_response();
    }
    let why = format!("as many requests as {}\n", bounds.requests.1);
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

async fn counted(From(state): From<State>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    state
        .requests
        .by_code
        .with_label_values(&[response.status().as_str()])
        .inc();
    response
}

/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);
