//! Taking the addresses that the configuration names.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};

use super::keeper::{self, Inherited, KeeperError};
use crate::{
    config::{BindError, Config, Listen},
    model::Side,
};

/// A socket that listens.
#[derive(Debug)]
pub struct Bound {
    /// Who connects here.
    pub side: Side,
    /// Where, with the port that was found for port 0.
    pub address: Listen,
    /// Whether connections from other hosts are reset.
    pub local_only: bool,
    /// What a keeper knows it by: side and address as configured.
    pub(super) name: String,
    pub(super) socket: Socket,
    pub(super) file: Option<SocketFile>,
}

/// Why listeners cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be taken.
    #[error(transparent)]
    Taken(#[from] BindError),
    /// Sockets cannot be taken over or handed over.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
}

/// Takes every address of both sides, or none: on an error those already taken are given back.
/// What is inherited is not bound again, and what of it is not wanted is closed.
///
/// `own` are the host's own addresses, on which outbound listens too if it shall.
///
/// # Errors
/// The first address that cannot be taken, or a socket that is not what it is said to be.
pub fn bind(
    config: &Config,
    own: &[IpAddr],
    mut inherited: Inherited,
) -> Result<Vec<Bound>, Error> {
    let backlog = i32::try_from(config.limits.accept_backlog).unwrap_or(i32::MAX);
    let mut bound = Vec::new();
    if let Some(outbound) = &config.outbound {
        let kind = Kind {
            side: Side::Outbound,
            local_only: outbound.own_addresses,
            backlog,
        };
        for listen in &outbound.listen {
            let all = own_as_well(listen, outbound.own_addresses, own, &outbound.listen);
            let sockets = bind_together(&all, kind, &mut inherited);
            bound.extend(sockets.map_err(|error| error.of("outbound.listen"))?);
        }
    }
    for listen in config.inbound.iter().flat_map(|inbound| &inbound.listen) {
        let kind = Kind {
            side: Side::Inbound,
            local_only: false,
            backlog,
        };
        let sockets = bind_together(std::slice::from_ref(listen), kind, &mut inherited);
        bound.extend(sockets.map_err(|error| error.of("inbound.listen"))?);
    }
    inherited.close();
    Ok(bound)
}

/// The path of a Unix socket, removed when nobody answers there any more.
#[derive(Debug)]
pub(super) struct SocketFile(Option<PathBuf>);

impl SocketFile {
    /// Leaves the file where it is: somebody else will remove it.
    pub(super) fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // If it is gone already, so much the better.
            let _ = fs::remove_file(path);
        }
    }
}

/// What the sockets are for.
#[derive(Clone, Copy)]
struct Kind {
    side: Side,
    local_only: bool,
    backlog: i32,
}

/// Why a socket could not be had: an address with what the system said, or what is inherited.
enum Refusal {
    Taken(Listen, io::Error),
    Wrong(KeeperError),
}

impl Refusal {
    fn of(self, key: &'static str) -> Error {
        match self {
            Self::Taken(address, source) => Error::Taken(BindError {
                key,
                address,
                source,
            }),
            Self::Wrong(error) => Error::Keeper(error),
        }
    }
}

/// `listen`, and on loopback the host's own addresses of the same family with the same port.
fn own_as_well(listen: &Listen, wanted: bool, own: &[IpAddr], others: &[Listen]) -> Vec<Listen> {
    let mut all = vec![listen.clone()];
    if let Listen::Tcp(address) = listen
        && wanted
        && address.ip().is_loopback()
    {
        let same_family = own.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
        let own = same_family.map(|ip| Listen::Tcp(SocketAddr::new(*ip, address.port())));
        all.extend(own.filter(|own| address.port() == 0 || !others.contains(own)));
    }
    all
}

/// Takes all of them, at one port if the first has port 0.
fn bind_together(
    all: &[Listen],
    kind: Kind,
    inherited: &mut Inherited,
) -> Result<Vec<Bound>, Refusal> {
    // A port that is inherited stays.
    let any_port = is_port_0(&all[0]) && !inherited.has(kind.side, &all[0]);
    for _ in 1..PORT_TRIES {
        match bind_once(all, kind, inherited) {
            // The port found for the first one is taken elsewhere: find another.
            Err(Refusal::Taken(address, error))
                if any_port && address != all[0] && error.kind() == ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    bind_once(all, kind, inherited)
}

fn bind_once(all: &[Listen], kind: Kind, inherited: &mut Inherited) -> Result<Vec<Bound>, Refusal> {
    let mut bound: Vec<Bound> = Vec::with_capacity(all.len());
    for wanted in all {
        let found = bound.first().and_then(|first| match &first.address {
            Listen::Tcp(first) => Some(first.port()),
            Listen::Unix(_) => None,
        });
        let listen = match (wanted, found) {
            (Listen::Tcp(own), Some(port)) => Listen::Tcp(SocketAddr::new(own.ip(), port)),
            _ => wanted.clone(),
        };
        let claimed = inherited.claim(kind.side, wanted, found);
        // The file of a socket that somebody keeps is theirs to remove.
        let (socket, file) = match claimed.map_err(Refusal::Wrong)? {
            Some(socket) => (adopt(socket, kind.backlog), None),
            None => {
                let socket = listen_on(&listen, kind.backlog);
                let file = socket.is_ok().then(|| file(&listen)).flatten();
                (socket, file)
            }
        };
        match socket.and_then(|socket| Ok((socket.local_addr()?, socket))) {
            Ok((at, socket)) => bound.push(Bound {
                side: kind.side,
                local_only: kind.local_only,
                name: keeper::name(kind.side, wanted),
                file,
                address: at.as_socket().map_or(listen, Listen::Tcp),
                socket,
            }),
            // An own address may have gone, or not be usable yet; loopback may not.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable && !bound.is_empty() => {
                tracing::warn!(address = %listen, "own address cannot be listened on");
            }
            Err(error) => return Err(Refusal::Taken(listen, error)),
        }
    }
    Ok(bound)
}

/// A socket that listens already, made as ours are.
fn adopt(socket: Socket, backlog: i32) -> io::Result<Socket> {
    socket.set_nonblocking(true)?;
    socket.listen(backlog)?;
    Ok(socket)
}

fn listen_on(listen: &Listen, backlog: i32) -> io::Result<Socket> {
    match listen {
        Listen::Tcp(address) => listen_tcp(*address, backlog),
        Listen::Unix(path) => listen_unix(path, backlog),
    }
}

fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A restart must not wait for connections of before to be forgotten.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket)
}

fn listen_unix(path: &Path, backlog: i32) -> io::Result<Socket> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // As a port of loopback: for every user of the host.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Removes a socket that nobody answers at, which a process that was killed leaves behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "what stands there is no socket",
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(ErrorKind::AddrInUse.into()),
    }
}

fn file(listen: &Listen) -> Option<SocketFile> {
    match listen {
        Listen::Unix(path) => Some(SocketFile(Some(path.clone()))),
        Listen::Tcp(_) => None,
    }
}

fn is_port_0(listen: &Listen) -> bool {
    matches!(listen, Listen::Tcp(address) if address.port() == 0)
}

/// How often another port is looked for, where one is free on some addresses only.
const PORT_TRIES: usize = 16;
