//! Listening sockets that outlive us, because somebody else holds them too.

use std::{
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
};

use mesh_proto::sockets;
use socket2::{Socket, Type};

use super::bind::Bound;
use crate::{config::Listen, model::Side};

/// Who holds our sockets while we end and start again, at the other end of a Unix socket.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    connection: UnixStream,
}

/// Why sockets were not taken over, or not handed over.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Nobody listens there.
    #[error("--sockets {}: cannot connect: {source}; start what keeps the sockets first", path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What was sent is no list of sockets.
    #[error("--sockets {}: {source}", path.display())]
    Receive {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        source: sockets::Error,
    },
    /// Our sockets were not taken.
    #[error("--sockets {}: cannot hand over our sockets: {source}", path.display())]
    Send {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A socket is not what its name says.
    #[error("--sockets: {name:?} {what}")]
    Wrong {
        /// Its name.
        name: String,
        /// What it is instead.
        what: String,
    },
}

/// The sockets that were handed to us and are not yet claimed.
#[derive(Debug, Default)]
pub struct Inherited(Vec<sockets::Socket>);

impl Keeper {
    /// Connects to the keeper, and receives what it holds. Blocks for a bounded time.
    ///
    /// # Errors
    /// There is no keeper, or it sends no list of sockets.
    pub fn ask(path: &Path) -> Result<(Self, Inherited), KeeperError> {
        let path = path.to_owned();
        let connection = match UnixStream::connect(&path) {
            Ok(connection) => connection,
            Err(source) => return Err(KeeperError::Connect { path, source }),
        };
        match sockets::receive(&connection) {
            Ok(sockets) => Ok((Self { path, connection }, Inherited(sockets))),
            Err(source) => Err(KeeperError::Receive { path, source }),
        }
    }

    /// Gives the keeper all that we listen on: nothing of it is closed or removed when we end.
    /// Blocks for a bounded time.
    ///
    /// # Errors
    /// The keeper does not take it.
    pub fn give(self, bound: &mut [Bound]) -> Result<(), KeeperError> {
        let lent = bound.iter().map(|b| (&*b.name, b.socket.as_fd()));
        if let Err(source) = sockets::send(&self.connection, lent) {
            let path = self.path;
            return Err(KeeperError::Send { path, source });
        }
        for bound in bound {
            if let Some(file) = bound.file.take() {
                file.leave();
            }
        }
        Ok(())
    }
}

impl Inherited {
    /// Whether a socket was handed to us for `wanted`, as configured.
    pub(super) fn has(&self, side: Side, wanted: &Listen) -> bool {
        let name = name(side, wanted);
        self.0.iter().any(|socket| socket.name == name)
    }

    /// The socket for `wanted`, as configured; `found` is the port that stands for port 0 where that
    /// is known already.
    ///
    /// # Errors
    /// What has the name does not listen there.
    pub(super) fn claim(
        &mut self,
        side: Side,
        wanted: &Listen,
        found: Option<u16>,
    ) -> Result<Option<Socket>, KeeperError> {
        let name = name(side, wanted);
        let fits = |socket: &sockets::Socket| {
            socket.name == name
                && found.is_none_or(|port| socket.tcp().is_some_and(|at| at.port() == port))
        };
        let Some(at) = self.0.iter().position(fits) else {
            return Ok(None);
        };
        let inherited = self.0.remove(at);
        let what = difference(wanted, &inherited);
        let socket = Socket::from(inherited.socket);
        let what = what.or_else(|| (!is_listener(&socket)).then(|| "does not listen".into()));
        match what {
            None => Ok(Some(socket)),
            Some(what) => Err(KeeperError::Wrong { name, what }),
        }
    }

    /// Closes what nobody claimed: the configuration or the addresses of the host have changed.
    pub(super) fn close(self) {
        for socket in self.0 {
            tracing::warn!(
                name = socket.name,
                "a socket kept for us is not wanted any more"
            );
        }
    }
}

/// What the keeper knows a socket by.
pub(super) fn name(side: Side, listen: &Listen) -> String {
    format!("{} {listen}", side.as_str())
}

/// How a socket is bound, if not as its name says.
fn difference(wanted: &Listen, inherited: &sockets::Socket) -> Option<String> {
    let same = match wanted {
        Listen::Tcp(wanted) => inherited.tcp().is_some_and(|at| {
            at.ip() == wanted.ip() && (wanted.port() == 0 || at.port() == wanted.port())
        }),
        Listen::Unix(wanted) => inherited.file().as_ref() == Some(wanted),
    };
    if same {
        return None;
    }
    let tcp = inherited.tcp().map(Listen::Tcp);
    let bound = tcp.or_else(|| inherited.file().map(Listen::Unix));
    Some(match bound {
        Some(bound) => format!("is bound to {bound}"),
        None => "is no socket that is bound to an address or a path".into(),
    })
}

fn is_listener(socket: &Socket) -> bool {
    socket.r#type().ok() == Some(Type::STREAM) && socket.is_listener().unwrap_or(false)
}
