//! A proxy on a thread of this process, on ports of its own.

use std::{net::SocketAddr, path::PathBuf, thread::JoinHandle};

use crate::peer::{Listener, Peer, request};
use dubbo_proxy::{
    Entropy,
    admin::Levels,
    app::{self, App},
    config::{Config, Listen},
    drain::Drain,
    model::Side,
};
use tempfile::TempDir;

/// The interface that the tests call.
pub const SERVICE: &str = "com.foo.Greeter";

/// A proxy that serves until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Its configuration, to be written anew.
    pub file: PathBuf,
    /// The handle to end it by.
    pub drain: Drain,
    /// Where its admin listens.
    pub admin: SocketAddr,
    listeners: Vec<(Side, Listen)>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Proxy {
    /// Starts a proxy with this configuration; `FOLDER` in it is a folder of its own.
    ///
    /// # Panics
    /// If the proxy does not start, or does not do as it should.
    #[must_use]
    pub fn start(config: &str) -> Self {
        Self::with(config, app::entropy())
    }

    /// As [`Self::start`], with chosen random numbers.
    ///
    /// # Panics
    /// If the proxy does not start, or does not do as it should.
    #[must_use]
    pub fn with(config: &str, random: Entropy) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("proxy.yaml");
        let config = config.replace("FOLDER", &folder.path().display().to_string());
        std::fs::write(&file, config).expect("written");
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let path = file.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let config = Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
                let (_, levels) = Levels::new("info").expect("a level");
                let app = App::new(path, config, levels, random, None);
                let app = app.unwrap_or_else(|e| panic!("{e}"));
                let listeners = app.listeners().map(|(s, l)| (s, l.clone())).collect();
                let admin = app.admin().expect("an address");
                tell.send((app.drain(), admin, listeners))
                    .expect("the test waits");
                app.serve().await.expect("it serves");
            });
        });
        let (drain, admin, listeners) = told.recv().expect("the proxy starts");
        Self {
            file,
            drain,
            admin,
            listeners,
            thread: Some(thread),
            _folder: folder,
        }
    }

    /// A sidecar of one service on these providers, with more lines for the service.
    ///
    /// # Panics
    /// If the proxy does not start, or does not do as it should.
    #[must_use]
    pub fn outbound(providers: &[SocketAddr], more: &str) -> Self {
        Self::start(&outbound(providers, more))
    }

    /// Where a side listens.
    ///
    /// # Panics
    /// If the proxy does not start, or does not do as it should.
    #[must_use]
    pub fn address(&self, side: Side) -> SocketAddr {
        let tcp = self.listeners.iter().find_map(|(s, listen)| match listen {
            Listen::Tcp(address) if *s == side => Some(*address),
            _ => None,
        });
        tcp.expect("it listens there")
    }

    /// A connection of an application.
    ///
    /// # Panics
    /// If the proxy does not start, or does not do as it should.
    #[must_use]
    pub fn connect(&self) -> Peer {
        Peer::connect(self.address(Side::Outbound))
    }

    /// Walks through the drain to its end.
    ///
    /// # Panics
    /// If it does not end well.
    pub fn end(&mut self) {
        self.drain.begin();
        self.thread
            .take()
            .expect("it runs")
            .join()
            .expect("it ended well");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.drain.skip();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the proxy failed");
        }
    }
}

/// The configuration of [`Proxy::outbound`].
#[must_use]
pub fn outbound(providers: &[SocketAddr], more: &str) -> String {
    let endpoints: Vec<_> = providers.iter().map(|p| format!("\"{p}\"")).collect();
    format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         static:\n  services:\n    - key: {SERVICE}\n      endpoints: [{}]\n{more}",
        endpoints.join(", ")
    )
}

/// A call of the tests' service.
#[must_use]
pub fn call(id: u64, method: &str) -> Vec<u8> {
    request(id, SERVICE, method, "hello")
}

/// A proxy before one scripted provider, both connected, and an application.
///
/// # Panics
/// If the proxy does not start or does not dial.
#[must_use]
pub fn trio(more: &str) -> (Proxy, Peer, Listener, Peer) {
    let listener = Listener::bind();
    let proxy = Proxy::outbound(&[listener.address()], more);
    let provider = listener.accept();
    let application = proxy.connect();
    (proxy, application, listener, provider)
}
