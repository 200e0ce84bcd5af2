//! Whether a provider of this host serves: it does while it answers heartbeats of Dubbo, which a
//! socket that is merely open, or an application that hangs, does not.

use std::{io, net::SocketAddr, time::Duration};

use dubbo_proto::{
    frame,
    mux::{self, Client, Event, link::Timing},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::backoff::Backoff;

/// Why a connection to a provider is over.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection is lost: {0}")]
    Lost(#[from] io::Error),
    #[error("no Dubbo: {0}")]
    Protocol(#[from] frame::Error),
    #[error("closed by the provider")]
    Closed,
    #[error("no heartbeat was answered in time")]
    Silent,
}

/// Says in `serves` whether the provider at `address` does, until nobody wants to know.
///
/// Cancel safe.
pub(super) async fn keep(address: SocketAddr, serves: watch::Sender<bool>) {
    let mut backoff = Backoff::new(PAUSE, MAX_PAUSE);
    let ask = async {
        loop {
            let mut proven = false;
            let error = match ask(address, &serves, &mut proven).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // One that served until now may only have closed an idle connection.
            if proven {
                backoff.reset();
            } else if set(&serves, false) {
                tracing::warn!(%address, %error, "a provider of this host does not serve");
            }
            sleep(backoff.next(fastrand::u64(..))).await;
        }
    };
    tokio::select! {
        () = ask => {}
        () = serves.closed() => {}
    }
}

/// Asks over one connection, until it is over.
async fn ask(
    address: SocketAddr,
    serves: &watch::Sender<bool>,
    proven: &mut bool,
) -> Result<std::convert::Infallible, Error> {
    let connected = timeout(PATIENCE, TcpStream::connect(address)).await;
    let mut stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(Error::Connect)?;
    let now = || Instant::now().into_std();
    let mut client = Client::<()>::new(now(), config());
    client.ping();
    let first = Instant::now() + PATIENCE;
    let (mut settled, mut leaves) = (None, false);
    let (mut buffer, mut filled) = (vec![0; BUFFER], 0);
    loop {
        while !client.output().is_empty() {
            let written = stream.write(client.output()).await?;
            client.sent(now(), written);
        }
        let due = Instant::from_std(client.poll_timeout());
        let due = if client.is_answered() {
            due
        } else {
            due.min(first)
        };
        let settling = settled.filter(|_| !*proven && !leaves);
        let due = settling.map_or(due, |at| due.min(at));
        let room = buffer.get_mut(filled..).unwrap_or_default();
        tokio::select! {
            read = stream.read(room) => match read? {
                0 => return Err(Error::Closed),
                count => filled += count,
            },
            () = sleep_until(due) => {
                let silent = !client.is_answered() && Instant::now() >= first;
                if silent || client.handle_timeout(now()) == Some(Event::Dead) {
                    return Err(Error::Silent);
                }
            }
        }
        let mut input = buffer.get(..filled).unwrap_or_default();
        while let Some(event) = client.receive(now(), &mut input)? {
            match event {
                // It goes, and says so: until it says otherwise, or its successor answers, which is
                // not asked before this connection has ended.
                Event::ReadOnly => {
                    leaves = true;
                    if set(serves, false) {
                        tracing::info!(%address, "a provider of this host says that it goes");
                    }
                }
                Event::Writeable => leaves = false,
                Event::Dead => {}
                Event::Reply { .. } | Event::TimedOut { .. } => {}
            }
        }
        let left = input.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
        if client.is_answered() && !leaves {
            let settled = *settled.get_or_insert_with(|| Instant::now() + SETTLE);
            if Instant::now() >= settled {
                *proven = true;
                if set(serves, true) {
                    tracing::info!(%address, "a provider of this host serves");
                }
            }
        }
    }
}

fn set(serves: &watch::Sender<bool>, now: bool) -> bool {
    serves.send_if_modified(|serves| std::mem::replace(serves, now) != now)
}

fn config() -> mux::Config {
    mux::Config {
        // Events are a few bytes. With its head, a frame always fits in the buffer.
        limits: frame::Limits { max_body: MAX_BODY },
        timing: Timing {
            heartbeat: EVERY,
            timeout: 3 * EVERY,
        },
        max_calls: 1,
        max_queued: BUFFER,
    }
}

/// Between two heartbeats; three without an answer, and it does not serve.
const EVERY: Duration = Duration::from_secs(3);
/// Longest wait for a connection, and for the first answer on it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a provider serves before that is believed. Its sidecar, which asks every 200 ms, has found
/// it by then.
const SETTLE: Duration = Duration::from_millis(500);
/// Pause before the next connection, doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of the longest body that is read.
const MAX_BODY: u32 = 4 << 10;
/// Bytes of the buffer for what is read, and most that waits to be written.
const BUFFER: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use dubbo_proto::mux::Server;
    use tokio::net::TcpListener;

    use super::*;

    /// Answers heartbeats on one connection until `stop`, which READONLY precedes.
    async fn serve(stream: &mut TcpStream, mut stop: watch::Receiver<bool>) {
        let now = || Instant::now().into_std();
        let mut server = Server::new(now(), mux::Config::default());
        let mut buffer = vec![0; 1 << 10];
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => {
                    let count = read.expect("a read");
                    if count == 0 {
                        return;
                    }
                    let mut input = &buffer[..count];
                    while server.receive(now(), &mut input).expect("Dubbo").is_some() {}
                }
                _ = stop.wait_for(|stop| *stop) => server.drain(),
            }
            stream.write_all(server.output()).await.expect("written");
            let len = server.output().len();
            server.sent(now(), len);
            if *stop.borrow() {
                return;
            }
        }
    }

    #[tokio::test]
    async fn who_answers_heartbeats_serves_until_it_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (sender, mut serves) = watch::channel(false);
        let probe = tokio::spawn(keep(address, sender));
        // The first connection is closed, the second is served.
        drop(listener.accept().await.expect("accepted"));
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let (stop, stopped) = watch::channel(false);
        let served = tokio::spawn(async move {
            serve(&mut stream, stopped).await;
            stream
        });
        serves.wait_for(|serves| *serves).await.expect("it asks");
        stop.send_replace(true);
        let _stream = served.await.expect("served");
        drop(listener);
        serves.wait_for(|serves| !*serves).await.expect("it asks");
        drop(serves);
        probe.await.expect("it ends with who wants to know");
    }

    #[tokio::test]
    async fn who_says_that_it_goes_serves_no_more_while_it_lets_calls_finish() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (sender, mut serves) = watch::channel(false);
        let _probe = tokio::spawn(keep(address, sender));
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let (leave, leaves) = watch::channel(false);
        let served = tokio::spawn(async move {
            serve(&mut stream, leaves).await;
            stream
        });
        // It answers whoever comes meanwhile.
        let (_stay, stays) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                serve(&mut stream, stays.clone()).await;
            }
        });
        serves.wait_for(|serves| *serves).await.expect("it asks");
        leave.send_replace(true);
        let stream = served.await.expect("served");
        let believed = timeout(EVERY, serves.wait_for(|serves| !*serves)).await;
        drop(believed.expect("at once").expect("it asks"));
        drop(stream);
        serves.wait_for(|serves| *serves).await.expect("it asks");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_socket_that_nobody_serves_is_no_provider() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (serves, _kept) = watch::channel(true);
        let mut proven = false;
        let error = match ask(address, &serves, &mut proven).await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        assert!(matches!(error, Error::Silent) && !proven, "{error}");
    }
}
