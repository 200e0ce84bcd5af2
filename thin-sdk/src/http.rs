//! One HTTP request on a connection of its own, to the sidecar's admin and to bonder.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH};
use hyper::http::request;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: Bytes,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("HTTP failed")]
    Http(#[source] hyper::Error),
    #[error("the request is malformed")]
    Request(#[source] hyper::http::Error),
    #[error("no whole answer of less than {MAX_BODY} bytes")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer in time")]
    Late,
}

/// Who is asked.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// What it wants to see.
    pub(crate) token: Option<Token>,
}

/// A secret. Never printed.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

impl Peer {
    /// Asks for `path`; `etag` as the one that is known.
    ///
    /// # Errors
    /// No answer within `within`. Any status is an answer.
    pub(crate) async fn get(
        &self,
        path: &str,
        etag: Option<&str>,
        within: Duration,
    ) -> Result<Response, Error> {
        let mut request = self.request(Method::GET, path);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request = request.body(Full::default()).map_err(Error::Request)?;
        send(self.address, request, within).await
    }

    /// Puts a JSON document to `path`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) async fn put(
        &self,
        path: &str,
        document: String,
        within: Duration,
    ) -> Result<Response, Error> {
        let request = self.request(Method::PUT, path);
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(document.into()).map_err(Error::Request)?;
        send(self.address, request, within).await
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(HOST, self.address.to_string());
        match &self.token {
            Some(Token(token)) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }
}

async fn send(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
    within: Duration,
) -> Result<Response, Error> {
    let answer = timeout(within, exchange(address, request)).await;
    answer.unwrap_or(Err(Error::Late))
}

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Response, Error> {
    let stream = TcpStream::connect(address).await.map_err(Error::Connect)?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(Error::Http)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(Error::Http)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let etag = head.headers.get(ETAG);
        Ok(Response {
            status: head.status.as_u16(),
            etag: etag.and_then(|etag| etag.to_str().ok()).map(str::to_owned),
            body: body.map_err(Error::Body)?.to_bytes(),
        })
    };
    // The connection is driven here and not in a task, so that giving up ends both.
    tokio::pin!(answer, connection);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended.map_err(Error::Http)?;
            answer.await
        }
    }
}

/// Longest answer: ten addresses each of some thousand services.
const MAX_BODY: usize = 4 * 1024 * 1024;
