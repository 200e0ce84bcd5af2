//! HTTP/1.1 between the processes of a tool: small documents, both sides.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{self, JoinSet};
use tokio::time::{sleep, timeout};

/// What somebody asks for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { status, body }
    }
}

/// A connection to a server, for one request after another.
#[derive(Debug)]
pub(crate) struct Connection {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there.
    #[error("cannot connect to {address}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The connection broke, or its peer does not speak HTTP.
    #[error("no answer of {address}")]
    Broken {
        /// Whose.
        address: SocketAddr,
        /// Why.
        source: hyper::Error,
    },
    /// The request cannot be written.
    #[error("no such request")]
    Request(#[from] hyper::http::Error),
    /// The answer breaks off, or is longer than any document of an evaluation.
    #[error("no whole answer of {address} within {MAX_BODY} bytes")]
    Body {
        /// Whose.
        address: SocketAddr,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer takes too long.
    #[error("no answer of {0} in time")]
    Late(SocketAddr),
    /// The server says no.
    #[error("{address} answers {status} for {path}: {said}")]
    Refused {
        /// Who.
        address: SocketAddr,
        /// What was asked for.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The reason.
        said: String,
    },
}

/// Asks a server for something that it must grant, on a connection of its own, within ten seconds.
///
/// # Errors
/// [`Error`].
pub(crate) async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Result<Bytes, Error> {
    let mut connection = Connection::open(address, PATIENCE).await?;
    connection.exchange(method, path, body).await
}

impl Connection {
    /// Connects, inside a local runtime.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Broken`] or [`Error::Late`].
    pub(crate) async fn open(address: SocketAddr, within: Duration) -> Result<Self, Error> {
        let opened = timeout(within, async {
            let connected = TcpStream::connect(address).await;
            let stream = connected.and_then(|s| s.set_nodelay(true).map(|()| s));
            let stream = stream.map_err(|source| Error::Connect { address, source })?;
            let shaken = handshake(TokioIo::new(stream)).await;
            shaken.map_err(|source| Error::Broken { address, source })
        });
        let (sender, connection) = opened.await.map_err(|_| Error::Late(address))??;
        // Ends with its sender. What it dies of, the sender tells too.
        task::spawn_local(async move {
            let _ = connection.await;
        });
        Ok(Self { address, sender })
    }

    /// Sends a request and waits for its answer, whatever the status. After an error, or if the
    /// future is dropped, the connection is of no use.
    ///
    /// # Errors
    /// All but [`Error::Connect`].
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Response, Error> {
        let address = self.address;
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, address.to_string())
            .body(Full::new(body))?;
        let answer = timeout(within, async {
            let broken = |source| Error::Broken { address, source };
            self.sender.ready().await.map_err(broken)?;
            let answer = self.sender.send_request(request).await.map_err(broken)?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await;
            let body = body.map_err(|source| Error::Body { address, source })?;
            Ok(Response::new(head.status, body.to_bytes()))
        });
        answer.await.map_err(|_| Error::Late(address))?
    }

    /// As [`Self::send`], of something that must be granted, within ten seconds.
    ///
    /// # Errors
    /// All but [`Error::Connect`].
    pub(crate) async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, Error> {
        let answer = self.send(method, path, body.into(), PATIENCE).await?;
        if answer.status == StatusCode::OK {
            return Ok(answer.body);
        }
        Err(Error::Refused {
            address: self.address,
            path: path.to_owned(),
            status: answer.status.as_u16(),
            said: String::from_utf8_lossy(&answer.body).trim().to_owned(),
        })
    }
}

/// Answers every request, for ever; dropped, it breaks its connections. Inside a local runtime.
pub(crate) async fn serve<A, F>(listener: TcpListener, answer: A) -> Infallible
where
    A: Fn(Request) -> F + Clone + 'static,
    F: Future<Output = Response> + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn_local(connection(stream, answer.clone()));
                }
                // Out of descriptors, most likely: some may come back.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<A, F>(stream: TcpStream, answer: A)
where
    A: Fn(Request) -> F + Clone + 'static,
    F: Future<Output = Response> + 'static,
{
    // A connection without it is slow, no more.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = answer.clone();
        async move {
            let response = match read(request).await {
                Some(request) => answer(request).await,
                None => Response::new(StatusCode::PAYLOAD_TOO_LARGE, "too long\n"),
            };
            let mut told = hyper::Response::new(Full::new(response.body));
            *told.status_mut() = response.status;
            Ok::<_, Infallible>(told)
        }
    });
    // A peer that breaks off or does not speak HTTP costs its own connection.
    let _ = Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn read(request: hyper::Request<Incoming>) -> Option<Request> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.ok()?;
    Some(Request {
        method: head.method,
        path: head.uri.path().to_owned(),
        body: body.to_bytes(),
    })
}

/// How long a server may take for what it must grant.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a document.
const MAX_BODY: usize = 64 * 1024;
/// Connections that are served at a time; more wait in the backlog.
const MAX_CONNECTIONS: usize = 10_000;

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn requests_are_answered_and_long_ones_refused() {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            task::spawn_local(serve(listener, |request: Request| async move {
                let told = format!("{} {} {}", request.method, request.path, request.body.len());
                Response::new(StatusCode::OK, told)
            }));
            let mut connection = Connection::open(address, WITHIN).await.expect("a server");
            for body in ["", "four"] {
                let body = Bytes::from(body);
                let told = format!("PUT /way {}", body.len());
                let answer = connection.send(Method::PUT, "/way?x=1", body, WITHIN).await;
                assert_eq!(answer.expect("one"), Response::new(StatusCode::OK, told));
            }
            let long = Bytes::from(vec![0; MAX_BODY + 1]);
            let answer = connection.send(Method::PUT, "/", long, WITHIN).await;
            assert_eq!(answer.expect("one").status, StatusCode::PAYLOAD_TOO_LARGE);
            let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = silent.local_addr().expect("an address");
            let mut connection = Connection::open(address, WITHIN).await.expect("a backlog");
            let soon = Duration::from_millis(20);
            let answer = connection.send(Method::GET, "/", Bytes::new(), soon).await;
            assert!(matches!(answer, Err(Error::Late(_))), "{answer:?}");
        });
    }

    const WITHIN: Duration = Duration::from_secs(20);
}
