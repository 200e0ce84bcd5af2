//! Who keeps the listening sockets of a proxy that ends and starts again.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use mesh_proto::sockets::{self, Socket};

/// A keeper that serves, one proxy after the other, until the test ends.
#[derive(Debug)]
pub struct Keeper {
    /// Where proxies connect.
    pub path: PathBuf,
    held: Arc<Mutex<Vec<Socket>>>,
}

impl Keeper {
    /// Starts one with a socket in `folder`.
    ///
    /// # Panics
    /// If it cannot listen there.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        let path = folder.join("keeper");
        let listener = UnixListener::bind(&path).expect("bound");
        let held = Arc::new(Mutex::new(Vec::<Socket>::new()));
        let shared = Arc::clone(&held);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let connection = connection.expect("a proxy");
                let mut held = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let sent = sockets::send(&connection, held.iter().map(Socket::lend));
                if let (Ok(()), Ok(given)) = (sent, sockets::receive(&connection)) {
                    *held = given;
                }
            }
        });
        Self { path, held }
    }

    /// The addresses it keeps, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().filter_map(Socket::tcp).collect()
    }
}
