//! One HTTP request at a time, for admin endpoints.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// `GET path` on a connection of its own.
///
/// # Errors
/// Whatever the connection meets, also an answer that is not HTTP or does not come within 10 s.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    send(address, "GET", path, "")
}

/// `POST path` without a body.
///
/// # Errors
/// As [`get`].
pub fn post(address: SocketAddr, path: &str) -> io::Result<Response> {
    send(address, "POST", path, "")
}

/// `method path` with that body.
///
/// # Errors
/// As [`get`].
pub fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer ends with the connection and is never chunked.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, answer))
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Response {
        status,
        body: body.to_owned(),
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
