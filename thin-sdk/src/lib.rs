//! Calls of Dubbo services by way of the sidecar, and without it while the sidecar is broken.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use std::time::Duration;
//! use thin_sdk::{Client, Server};
//!
//! // A provider; somewhere else in real life.
//! let server = Server::builder()
//!     .method("com.foo.Greeter:1.0.0", "greet", |call| async move {
//!         let (name,): (String,) = call.arguments()?;
//!         Ok(format!("hello {name}"))
//!     })?
//!     .listen("127.0.0.1:0".parse()?)
//!     .await?;
//!
//! let client = Client::builder().sidecar(server.address()).build()?;
//! let greeting: String = client
//!     .call("com.foo.Greeter:1.0.0", "greet")
//!     .arg("world")
//!     .deadline(Duration::from_secs(1))
//!     .idempotent(true)
//!     .send()
//!     .await?;
//! assert_eq!(greeting, "hello world");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! What a call goes through, in the order of the modules: [`Client`] and [`Call`] (one call, one
//! deadline, one [`Error`]), [`failover`] (by the sidecar or direct: a machine that decides and
//! does nothing), the roster (where the providers are, should it come to that), the connections.
//! [`value`] says what a type becomes in Java. [`Server`] is the other side, for tests and tools.

mod answer;
mod builder;
mod call;
mod client;
mod connection;
mod declaration;
mod error;
pub mod failover;
mod http;
mod journey;
mod pool;
mod roster;
mod server;
mod shared;
mod sidecar;
mod time;
pub mod value;

pub use builder::{BuildError, Builder};
pub use call::Call;
pub use client::{Client, State};
pub use error::{Code, Error, Exception, Executed, Unsent};
pub use server::{Fault, Invocation, Server, ServerBuilder};
pub use value::{Object, Value};
