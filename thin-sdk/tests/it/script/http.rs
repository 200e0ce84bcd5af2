//! An HTTP server that answers as a test says, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The server.
pub(crate) struct Desk {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

impl Desk {
    /// Answers each request with a status line's end, perhaps with headers, and a body.
    pub(crate) async fn open(
        answer: impl Fn(&Request) -> (&'static str, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a bound socket");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = read(&mut stream).await else {
                    continue;
                };
                let (head, body) = answer(&request);
                seen.lock().expect("no panic").push(request);
                let len = body.len();
                let text = format!(
                    "HTTP/1.1 {head}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        Self { address, requests }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut input = Vec::new();
    loop {
        if let Some(request) = parse(&String::from_utf8_lossy(&input)) {
            return Some(request);
        }
        if stream.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
    }
}

/// A request, if it is whole.
fn parse(text: &str) -> Option<Request> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (line, headers) = head.split_once("\r\n")?;
    let headers = headers.lines().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let request = Request {
        line: line.to_owned(),
        headers: headers.collect(),
        body: body.to_owned(),
    };
    let len: usize = request
        .header("content-length")
        .unwrap_or("0")
        .parse()
        .ok()?;
    (request.body.len() >= len).then_some(request)
}
