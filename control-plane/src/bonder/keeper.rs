//! Holds the proxy's listening sockets, so that who connects while a proxy ends and starts again
//! waits in the kernel and is not refused.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use mesh_proto::sockets::{self, Socket};
use parking_lot::Mutex;
use rustix::{net::sockopt::socket_peercred, process::geteuid};

/// The sockets that are held. Dropped, it closes them, and removes the files of those that have one.
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    /// `None` once they are closed for good.
    held: Arc<Mutex<Option<Vec<Socket>>>>,
}

/// Why sockets were not exchanged with a proxy.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Receive(#[from] sockets::Error),
    #[error("it is a process of another user")]
    Stranger,
    #[error("bonder is ending")]
    Over,
}

impl Keeper {
    /// Serves proxies at `path`, one after the other, on a thread of its own.
    ///
    /// # Errors
    /// It cannot listen there.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        // Of a bonder that was killed; whoever lives holds the lock of the folder.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let held = Arc::new(Mutex::new(Some(Vec::new())));
        let shared = Arc::clone(&held);
        let serve = move || serve(listener.incoming(), &shared, || thread::sleep(PAUSE));
        let spawned = thread::Builder::new().name("keeper".into()).spawn(serve);
        spawned?;
        let path = path.to_owned();
        Ok(Self { path, held })
    }

    /// Where proxies connect.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where peers of the mesh reach the proxy, if they do over TCP.
    #[must_use]
    pub(super) fn inbound(&self) -> Option<SocketAddr> {
        let held = self.held.lock();
        let mut inbound = held.iter().flatten();
        inbound.find_map(|socket| socket.tcp().filter(|_| socket.name.starts_with(INBOUND)))
    }

    /// Closes all that is held: the proxy is gone and does not come back.
    pub(super) fn close(&self) {
        for socket in self.held.lock().take().into_iter().flatten() {
            if let Some(file) = socket.file() {
                remove(&file);
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.close();
        remove(&self.path);
    }
}

/// One proxy after the other, until the sockets are closed; with a pause where none can be had.
fn serve(
    proxies: impl Iterator<Item = io::Result<UnixStream>>,
    held: &Mutex<Option<Vec<Socket>>>,
    pause: impl Fn(),
) {
    for proxy in proxies {
        let exchanged = match proxy {
            Ok(proxy) => exchange(&proxy, held),
            Err(error) => {
                // Out of descriptors: trying at once would spin.
                pause();
                Err(error.into())
            }
        };
        match exchanged {
            Ok(()) => {}
            Err(Error::Over) => return,
            Err(error) => tracing::warn!(%error, "no sockets exchanged with a proxy"),
        }
    }
}

/// One proxy's turn: it gets what is held, and what it gives is held from then on.
fn exchange(connection: &UnixStream, held: &Mutex<Option<Vec<Socket>>>) -> Result<(), Error> {
    if socket_peercred(connection).map_err(io::Error::from)?.uid != geteuid() {
        return Err(Error::Stranger);
    }
    // Copies, so that nobody waits for a proxy that is slow.
    let copies = match &*held.lock() {
        None => return Err(Error::Over),
        Some(held) => held.iter().map(copy).collect::<io::Result<Vec<_>>>()?,
    };
    sockets::send(connection, copies.iter().map(Socket::lend))?;
    let given = sockets::receive(connection)?;
    match &mut *held.lock() {
        None => Err(Error::Over),
        Some(held) => {
            *held = given;
            Ok(())
        }
    }
}

fn copy(socket: &Socket) -> io::Result<Socket> {
    Ok(Socket {
        name: socket.name.clone(),
        socket: socket.socket.try_clone()?,
    })
}

fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "a socket's file stays");
    }
}

/// The file of our socket, in the folder of the state.
pub(super) const FILE: &str = "bonder.sockets";
/// After a proxy that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// How the name of a socket begins where peers of the mesh connect.
const INBOUND: &str = "inbound ";

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
    };

    use super::*;

    fn ask(keeper: &Keeper) -> (UnixStream, Vec<Socket>) {
        let connection = UnixStream::connect(keeper.path()).expect("it listens");
        let held = sockets::receive(&connection).expect("a list");
        (connection, held)
    }

    /// Says what a proxy listens on, and waits until it is taken.
    fn give(connection: UnixStream, name: &str, listener: &TcpListener) {
        sockets::send(&connection, [(name, listener.as_fd())]).expect("sent");
        let mut connection = connection;
        io::Read::read_to_end(&mut connection, &mut Vec::new()).expect("closed when taken");
    }

    #[test]
    fn a_keeper_without_descriptors_pauses_before_it_tries_again() {
        let (proxy, keeper) = UnixStream::pair().expect("a pair");
        sockets::send(&proxy, []).expect("sent");
        let full = || Err(io::Error::from_raw_os_error(24));
        let held = Mutex::new(Some(Vec::new()));
        let pauses = Cell::new(0);
        let accepted = [full(), full(), Ok(keeper), full()];
        serve(accepted.into_iter(), &held, || pauses.set(pauses.get() + 1));
        assert_eq!(pauses.get(), 3);
    }

    #[test]
    fn what_one_proxy_gave_the_next_one_gets() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sockets");
        let keeper = Keeper::start(&path).expect("it listens");
        let (first, held) = ask(&keeper);
        assert!(held.is_empty() && keeper.inbound().is_none());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        give(first, "inbound 127.0.0.1:0", &listener);
        drop(listener);
        assert_eq!(keeper.inbound(), Some(address));
        TcpStream::connect(address).expect("nobody is refused");
        // One that breaks off changes nothing.
        drop(ask(&keeper));
        let (second, mut held) = ask(&keeper);
        let kept = held.pop().expect("a socket");
        assert!(held.is_empty() && kept.tcp() == Some(address));
        give(second, "inbound 127.0.0.1:0", &kept.socket.into());
        drop(keeper);
        assert!(
            TcpStream::connect(address).is_err(),
            "closed with the keeper"
        );
        assert!(!path.exists());
    }
}
