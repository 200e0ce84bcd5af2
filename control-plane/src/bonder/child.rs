//! Follows a pilot or a proxy that runs: where its HTTP is, by what it prints, and whether it is
//! ready, by asking there.

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use hyper::Method;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
    sync::{mpsc, watch},
    time::sleep,
};

use super::{http, supervisor::Role};
use crate::output::Output;

/// What is learned of a child.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// Where its HTTP is.
    Address(SocketAddr),
    /// Whether it is ready.
    Ready(bool),
}

/// Passes on to `stdout` what the child writes to `output`, and tells what is learned from it, until
/// the task is dropped, which it is when the child has ended.
pub(super) async fn follow(
    role: Role,
    output: OwnedFd,
    stdout: Output,
    news: mpsc::Sender<(Role, News)>,
) {
    let (found, mut address) = watch::channel(None);
    let tell = async {
        let found = match address.wait_for(Option::is_some).await {
            Ok(found) => *found,
            Err(_) => None,
        };
        let Some(address) = found else {
            return;
        };
        if news.send((role, News::Address(address))).await.is_err() {
            return;
        }
        let mut before = false;
        loop {
            // Needs no token.
            let page = (Method::GET, "/ready");
            let ready = http::ask(address, None, page, None, PATIENCE).await;
            if let Err(error) = &ready {
                tracing::debug!(child = role.as_str(), %error, "not ready");
            }
            let ready = ready.is_ok();
            if ready != before && news.send((role, News::Ready(ready))).await.is_err() {
                return;
            }
            before = ready;
            sleep(if ready { LOOK } else { SOON }).await;
        }
    };
    let pass = async {
        if let Err(error) = pass_on(role, output, &stdout, found).await {
            tracing::warn!(child = role.as_str(), %error, "its output is lost");
        }
    };
    tokio::join!(tell, pass);
}

/// Writes each line to our own output, and finds the address among them.
async fn pass_on(
    role: Role,
    output: OwnedFd,
    stdout: &Output,
    found: watch::Sender<Option<SocketAddr>>,
) -> io::Result<()> {
    let mut output = BufReader::new(pipe::Receiver::from_owned_fd(output)?);
    let mut line = Vec::new();
    while (&mut output)
        .take(MAX_LINE)
        .read_until(b'\n', &mut line)
        .await?
        > 0
    {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        stdout.line(format!("{text}\n").into());
        let address = text.strip_prefix(prefix(role)).map(str::parse);
        if let Some(Ok(address)) = address {
            found.send_replace(Some(address));
        }
        line.clear();
    }
    Ok(())
}

/// How the line begins that tells where its HTTP is.
fn prefix(role: Role) -> &'static str {
    match role {
        Role::Pilot => "http listening on ",
        Role::Proxy | Role::Application => "admin listening on ",
    }
}

/// Bytes of the longest line that is passed on in one.
const MAX_LINE: u64 = 64 << 10;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at a child that is ready, and at one that is not.
const LOOK: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(20);
