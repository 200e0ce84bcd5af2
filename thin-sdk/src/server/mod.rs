//! The other side: a small provider, for tests, demos and tools.
//!
//! Handlers are asynchronous functions, one per method. Heartbeats, READONLY and the drain are the
//! server's. It is no match for the test provider of the benches, which answers without reading
//! what it has seen before, and measures others.

mod connection;
mod invocation;
mod one_way;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dubbo_proto::key::{self, ServiceKey};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::value::{self, Value};
pub use invocation::{Fault, Invocation};
use one_way::OneWay;

/// A provider that serves until it is stopped or dropped. Dropped, it breaks its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    abort: CancellationToken,
    accepting: JoinHandle<()>,
    connections: TaskTracker,
    one_way: OneWay,
}

/// Makes a [`Server`].
#[derive(Debug, Default)]
pub struct ServerBuilder {
    handlers: Handlers,
}

/// What serves which method.
#[derive(Default)]
pub(crate) struct Handlers {
    services: HashMap<ServiceKey, HashMap<String, Handler>>,
}

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Value, Fault>> + Send>>;
pub(crate) type Handler = Arc<dyn Fn(Invocation) -> Answer + Send + Sync>;

impl Server {
    /// A server without methods.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connections, says READONLY, and ends when the calls in flight are answered and
    /// the one-way calls have run, or `within` is over.
    pub async fn stop(mut self, within: Duration) {
        self.stop.cancel();
        let _ = (&mut self.accepting).await;
        let ended = async {
            self.connections.wait().await;
            self.one_way.wait().await;
        };
        let _ = timeout(within, ended).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abort.cancel();
    }
}

impl ServerBuilder {
    /// Serves `method` of `service`, which is `group/interface:version`; `*` serves every method of
    /// it that has no handler of its own.
    ///
    /// A handler that has to wait runs in a task of its own; one that works without waiting keeps
    /// its connection busy. That of a call that is answered ends with the connection. Of one-way
    /// calls 65,536 may run; more are dropped.
    ///
    /// # Errors
    /// A malformed key.
    pub fn method<H, F, T>(
        mut self,
        service: &str,
        method: &str,
        handler: H,
    ) -> Result<Self, key::Error>
    where
        H: Fn(Invocation) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
        T: Serialize,
    {
        let handler: Handler = Arc::new(move |invocation| {
            let running = handler(invocation);
            Box::pin(async move {
                let returned = running.await?;
                value::to_value(&returned).map_err(Fault::Answer)
            })
        });
        let methods = self.handlers.services.entry(service.parse()?).or_default();
        methods.insert(method.to_owned(), handler);
        Ok(self)
    }

    /// Binds and serves; port 0 picks one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(self, address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let (connections, one_way) = (TaskTracker::new(), OneWay::new(abort.clone()));
        let accept = accept(
            listener,
            Arc::new(self.handlers),
            one_way.clone(),
            connections.clone(),
            stop.clone(),
            abort.clone(),
        );
        Ok(Server {
            address,
            accepting: tokio::spawn(accept),
            stop,
            abort,
            connections,
            one_way,
        })
    }
}

impl Handlers {
    /// What serves a call; what to tell the caller if nothing does.
    fn find(&self, key: &ServiceKey, method: &str) -> Result<&Handler, Fault> {
        let Some(methods) = self.services.get(key) else {
            return Err(Fault::NoService(key.to_string()));
        };
        let handler = methods.get(method).or_else(|| methods.get("*"));
        handler.ok_or_else(|| Fault::NoMethod(format!("{key}.{method}")))
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.services.iter();
        f.debug_map()
            .entries(names.map(|(key, methods)| (key, methods.keys())))
            .finish()
    }
}

async fn accept(
    listener: TcpListener,
    handlers: Arc<Handlers>,
    one_way: OneWay,
    connections: TaskTracker,
    stop: CancellationToken,
    abort: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
            () = abort.cancelled() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: some may come back.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let serve = connection::serve(stream, Arc::clone(&handlers), one_way.clone(), stop.clone());
        let abort = abort.clone();
        connections.spawn(async move {
            tokio::select! {
                () = serve => {}
                () = abort.cancelled() => {}
            }
        });
    }
    connections.close();
}
