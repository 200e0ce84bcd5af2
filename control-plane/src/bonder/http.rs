//! One HTTP request on a connection of its own: to the pilot, and to a child's `/ready`.

use std::{io, net::SocketAddr, time::Duration};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::config::Token;

/// Why there is no answer, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("HTTP failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request is malformed: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("no answer in time")]
    Late,
    #[error("{0}: {1}")]
    Refused(StatusCode, String),
}

/// Asks `address`, with a JSON document where there is one. Any answer but a success is an error.
///
/// # Errors
/// [`Error`]; what was asked may have been done all the same.
///
/// Cancel safe: the connection is closed.
pub(super) async fn ask(
    address: SocketAddr,
    token: Option<&Token>,
    (method, path): (Method, &str),
    document: Option<String>,
    within: Duration,
) -> Result<(), Error> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(HOST, address.to_string());
    let request = match token {
        Some(token) => request.header(AUTHORIZATION, token.bearer()),
        None => request,
    };
    let request = request.header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::<Bytes>::from(document.unwrap_or_default()))?;
    let answer = timeout(within, exchange(address, request)).await;
    answer.unwrap_or(Err(Error::Late))
}

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<(), Error> {
    let stream = TcpStream::connect(address).await.map_err(Error::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        if head.status.is_success() {
            return Ok(());
        }
        let why = Limited::new(body, MAX_REASON).collect().await;
        let why = why.map(|why| String::from_utf8_lossy(&why.to_bytes()).trim().to_owned());
        Err(Error::Refused(head.status, why.unwrap_or_default()))
    };
    // The connection is driven here and not in a task, so that giving up ends both.
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended?;
            answer.await
        }
    }
}

/// Bytes of the longest reason that is read.
const MAX_REASON: usize = 4 << 10;
