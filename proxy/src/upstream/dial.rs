//! Dialing a host.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Connects, at most for `timeout`; the error names the address.
///
/// Unacknowledged bytes end the connection after `dead`, keepalive probes find a silent host.
/// Cancel safe: dropped, the attempt ends.
pub(crate) async fn dial(
    address: SocketAddr,
    timeout: Duration,
    dead: Duration,
) -> Result<TcpStream, String> {
    let connected = match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer in {timeout:?}"),
        )),
    };
    connected
        .and_then(|stream| tune(&stream, dead).map(|()| stream))
        .map_err(|error| format!("connect to {address}: {error}"))
}

fn tune(stream: &TcpStream, dead: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(dead).with_interval(dead / 3))?;
    socket.set_tcp_user_timeout(Some(dead))
}
