//! Scripted Dubbo peers over raw TCP: a test says what they send, and when they misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dubbo_proto::frame::{Frame, Limits};
use dubbo_proto::head::{Kind, RequestId, Serialization, Status};
use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::hessian2::{self, Reader, Tables, Token};
use dubbo_proto::invocation::{self, Outgoing};
use dubbo_proto::reply;

use crate::wait::until;

/// One end of a connection that speaks frames.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: BytesMut,
}

impl Peer {
    /// Connects, as a consumer does.
    ///
    /// # Panics
    /// If nobody listens there.
    #[track_caller]
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|e| panic!("cannot connect to {address}: {e}"));
        Self::new(stream)
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("nodelay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            stream,
            input: BytesMut::new(),
        }
    }

    /// Sends bytes as they are, whether they are frames or not.
    ///
    /// # Panics
    /// If they are not taken within 10 s.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the peer takes bytes");
    }

    /// The next frame from the other side.
    ///
    /// # Panics
    /// If none comes within 10 s, or the connection ends, or what comes is no frame.
    #[track_caller]
    pub fn receive(&mut self) -> Frame {
        loop {
            let frame = Frame::decode(&mut self.input, Limits::default());
            if let Some(frame) = frame.expect("a frame") {
                return frame;
            }
            match self.read() {
                Ok(0) => panic!("closed where a frame should come, after {:?}", self.input),
                Ok(_) => {}
                Err(e) => panic!("no frame within {PATIENCE:?}: {e}, after {:?}", self.input),
            }
        }
    }

    /// The next frame that is neither a heartbeat nor another event.
    ///
    /// # Panics
    /// As [`Peer::receive`].
    #[track_caller]
    pub fn receive_call(&mut self) -> Frame {
        loop {
            let frame = self.receive();
            if matches!(
                frame.head.kind,
                Kind::Request { .. } | Kind::Response { .. }
            ) {
                return frame;
            }
        }
    }

    /// Waits for the other side to close or reset the connection, with nothing more sent on it.
    ///
    /// # Panics
    /// If it sends something, or is still open after 10 s.
    #[track_caller]
    pub fn expect_end(&mut self) {
        assert!(
            self.input.is_empty(),
            "bytes before the end: {:?}",
            self.input
        );
        match self.read() {
            Ok(0) => {}
            Ok(_) => panic!("bytes where the end should be: {:?}", self.input),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
            Err(e) => panic!("not closed within {PATIENCE:?}: {e}"),
        }
    }

    /// Says that nothing more will be sent, and goes on receiving.
    ///
    /// # Panics
    /// If the connection has ended.
    pub fn half_close(&self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("an open connection");
    }

    /// Aborts the connection with a reset.
    ///
    /// # Panics
    /// If the socket does not allow it.
    pub fn reset(self) {
        let linger = Some(Duration::ZERO);
        socket2::SockRef::from(&self.stream)
            .set_linger(linger)
            .expect("linger");
    }

    /// The address of this end.
    ///
    /// # Panics
    /// If the socket has none.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a bound socket")
    }

    fn read(&mut self) -> std::io::Result<usize> {
        let mut chunk = [0; 16 * 1024];
        let read = self.stream.read(&mut chunk)?;
        self.input.extend_from_slice(&chunk[..read]);
        Ok(read)
    }
}

/// Where a scripted provider waits for connections.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn bind() -> Self {
        Self::bind_to(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Listens on `address`.
    ///
    /// # Panics
    /// If it is taken.
    #[must_use]
    pub fn bind_to(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free address");
        listener.set_nonblocking(true).expect("non-blocking");
        Self(listener)
    }

    /// Its address.
    ///
    /// # Panics
    /// Never for a bound socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket")
    }

    /// The next connection.
    ///
    /// # Panics
    /// If none comes within 10 s.
    #[track_caller]
    #[must_use]
    pub fn accept(&self) -> Peer {
        let stream = until("connection", PATIENCE, || self.0.accept().ok()).0;
        stream.set_nonblocking(false).expect("blocking");
        Peer::new(stream)
    }

    /// Whether a connection waits to be accepted; it is taken and dropped.
    #[must_use]
    pub fn was_dialled(&self) -> bool {
        self.0.accept().is_ok()
    }
}

/// A whole two-way Hessian2 request of `method(String)` with the attachments that Java sends.
#[must_use]
pub fn request(id: u64, service: &str, method: &str, argument: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    Writer::new(&mut encoded).text(argument);
    request_with(id, service, method, &encoded, &[])
}

/// As [`request`], with the argument encoded already and further attachments.
#[must_use]
pub fn request_with(
    id: u64,
    service: &str,
    method: &str,
    argument: &[u8],
    further: &[(&str, &str)],
) -> Vec<u8> {
    let mut attachments = vec![
        ("path", service),
        ("interface", service),
        ("version", "0.0.0"),
    ];
    attachments.extend(further);
    let mut body = Vec::new();
    let call = Outgoing {
        path: service,
        version: "0.0.0",
        method,
        types: "Ljava/lang/String;",
        arguments: argument,
        attachments: &attachments,
    };
    invocation::write(&mut body, &call);
    frame(Kind::Request { two_way: true }, id, &body)
}

/// The body of a request of `hello("x")` up to where its attachments belong: with `N` after it, as
/// some proxies write it, or cut off.
#[must_use]
pub fn hello_up_to_attachments(service: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = Writer::new(&mut body);
    for text in [
        "2.0.2",
        service,
        "0.0.0",
        "hello",
        "Ljava/lang/String;",
        "x",
    ] {
        writer.text(text);
    }
    body
}

/// A whole frame around a Hessian2 body.
///
/// # Panics
/// If the body is longer than a header can say.
#[must_use]
pub fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
    let body = Bytes::copy_from_slice(body);
    let frame = Frame::new(kind, Serialization::HESSIAN2, RequestId(id), body);
    let mut out = BytesMut::new();
    frame.expect("a body of less than 2 GiB").encode(&mut out);
    out.to_vec()
}

/// A whole answer of status 20 with a string.
#[must_use]
pub fn answer(id: RequestId, text: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    Writer::new(&mut encoded).text(text);
    let mut out = Vec::new();
    reply::value(&mut out, id, true, Some(&encoded));
    out
}

/// The status of an answer.
///
/// # Panics
/// If it is none.
#[track_caller]
#[must_use]
pub fn status(answer: &Frame) -> Status {
    match answer.head.kind {
        Kind::Response { status } => status,
        other => panic!("{other:?} where a response should be"),
    }
}

/// The string that an answer holds: the value of status 20, the error of any other.
///
/// # Panics
/// If it holds none.
#[track_caller]
#[must_use]
pub fn text(answer: &Frame) -> String {
    let (limits, mut tables) = (hessian2::Limits::default(), Tables::default());
    let mut reader = Reader::new(&answer.body, &limits, &mut tables);
    if status(answer) == Status::OK {
        reader.skip().expect("a type in front of the value");
    }
    match reader.token() {
        Ok(Token::Text(text)) => text.to_string(),
        other => panic!("{other:?} where a string should be in {answer:?}"),
    }
}

/// How long a peer waits for the other side.
const PATIENCE: Duration = Duration::from_secs(10);
