//! Connections of proxies, within bounds: of their number, and of the time that each may take until
//! it speaks.
//!
//! First a place, then a connection: what is beyond the bound waits in the kernel.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::server::MAX_CLIENTS;

/// A listener, and the places for those who connect.
#[derive(Debug)]
pub(super) struct Incoming {
    listener: TcpListener,
    places: Arc<Semaphore>,
    /// When it was last said that others wait.
    said: Option<Instant>,
}

/// A connection in its place.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    /// Until its client has said what every client of HTTP/2 says first.
    silence: Option<Silence>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Silence {
    /// Bytes that its client owes.
    missing: usize,
    end: Pin<Box<Sleep>>,
}

impl Incoming {
    /// With so many places.
    pub(super) fn new(listener: TcpListener, places: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(places)),
            said: None,
        }
    }

    /// One connection after the other, without end.
    pub(super) fn stream(self) -> impl Stream<Item = Result<Connection, Infallible>> {
        stream::unfold(self, async |mut incoming| {
            let connection = incoming.accept().await;
            Some((Ok(connection), incoming))
        })
    }

    async fn accept(&mut self) -> Connection {
        let place = self.place().await;
        loop {
            match self.listener.accept().await {
                Ok((socket, _)) => return Connection::new(socket, place),
                Err(error) => {
                    // Out of files or memory: the connection still waits, and trying at once would
                    // spin.
                    tracing::warn!(%error, "cannot accept");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn place(&mut self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return place;
        }
        let now = Instant::now();
        if self.said.is_none_or(|said| now >= said + SAID_AGAIN) {
            self.said = Some(now);
            tracing::warn!("as many connections as there may be: others wait");
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.expect("the semaphore is never closed")
    }
}

impl Connection {
    fn new(socket: TcpStream, place: OwnedSemaphorePermit) -> Self {
        // What is told is short, and to be told now. That is lost where the connection is.
        let _ = socket.set_nodelay(true);
        let silence = Silence {
            missing: PREFACE,
            end: Box::pin(sleep(PATIENCE)),
        };
        Self {
            socket,
            silence: Some(silence),
            _place: place,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        let Some(silence) = &mut self.silence else {
            return read;
        };
        silence.missing = (silence.missing + before).saturating_sub(buffer.filled().len());
        if silence.missing == 0 {
            self.silence = None;
        } else if read.is_pending() && silence.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}

/// As many places as this process has files for, once the registry and HTTP have theirs: one for
/// every client, and some for those who only ask how we are.
pub(super) fn places() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let files = files.map_or(usize::MAX, |files| files.saturating_sub(OTHER_FILES).max(1));
    files.min(MAX_CLIENTS + MAX_CLIENTS / 20)
}

/// Takes as many files as the system grants: a shell's 1,024 are few for proxies.
pub(super) fn lift_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let lifted = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, lifted) {
        tracing::warn!(%error, files = current, "cannot have more files");
    }
}

/// Files that are not for proxies: HTTP has most of them.
const OTHER_FILES: usize = 256;
/// What a client of HTTP/2 says first. Source: RFC 9113, 3.4.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// How long it may take to.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which it is said again that others wait.
const SAID_AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::{future::Future, net::SocketAddr};

    use rustix::net::{Shutdown, shutdown};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        task::yield_now,
        time::advance,
    };

    use super::*;

    async fn listen(places: usize) -> (Incoming, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (Incoming::new(listener, places), address)
    }

    /// Whether it is ready once everything that can happen has.
    async fn is_ready<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
        for _ in 0..100 {
            if futures_util::poll!(&mut future).is_ready() {
                return true;
            }
            yield_now().await;
        }
        false
    }

    /// As the server does it: reads until the connection ends, and drops it.
    fn serve(mut connection: Connection) {
        tokio::spawn(async move { while connection.read_u8().await.is_ok() {} });
    }

    #[tokio::test]
    async fn beyond_the_places_others_wait_until_one_is_free() {
        let (mut incoming, address) = listen(1).await;
        let _clients = [
            TcpStream::connect(address).await.expect("connected"),
            TcpStream::connect(address).await.expect("connected"),
        ];
        let first = incoming.accept().await;
        {
            let mut second = std::pin::pin!(incoming.accept());
            assert!(!is_ready(second.as_mut()).await);
            drop(first);
            second.await;
        }
        assert!(incoming.said.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_too_little_keeps_nobody_from_being_served() {
        let (mut incoming, address) = listen(2).await;
        let _silent = TcpStream::connect(address).await.expect("connected");
        let mut slow = TcpStream::connect(address).await.expect("connected");
        slow.write_all(b"PRI * HTTP/2.0").await.expect("written");
        for _ in 0..2 {
            serve(incoming.accept().await);
        }
        let mut proxy = TcpStream::connect(address).await.expect("connected");
        let served = tokio::time::timeout(PATIENCE * 2, incoming.accept()).await;
        let mut served = served.expect("a place");
        proxy.write_all(&[b'x'; PREFACE]).await.expect("written");
        served.read_exact(&mut [0; PREFACE]).await.expect("read");
        let mut read = std::pin::pin!(served.read_u8());
        assert!(!is_ready(read.as_mut()).await);
        advance(PATIENCE * 100).await;
        assert!(!is_ready(read.as_mut()).await, "it may be silent now");
    }

    /// For as long as the runtime is never idle, its clock stands still.
    #[tokio::test(start_paused = true)]
    async fn an_accept_that_fails_is_not_tried_again_at_once() {
        let (mut incoming, _) = listen(1).await;
        shutdown(&incoming.listener, Shutdown::Both).expect("shut down");
        let begun = Instant::now();
        let tried = tokio::time::timeout(PAUSE * 10, incoming.accept()).await;
        assert!(tried.is_err() && begun.elapsed() >= PAUSE * 10);
    }

    #[test]
    fn there_are_places_for_all_clients_or_for_as_many_as_there_are_files() {
        lift_files();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        let places = places();
        assert!((1..=MAX_CLIENTS + MAX_CLIENTS / 20).contains(&places));
        assert!(current.is_none_or(|files| (places as u64) < files));
    }
}
