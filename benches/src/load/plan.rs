//! What a load is, worked out before it begins: the body of every call, and who sends how many.

use std::num::NonZero;
use std::process;
use std::time::{Duration, Instant};

use dubbo_proto::frame::Limits;
use dubbo_proto::invocation;
use dubbo_proto::key::ServiceKey;
use serde::{Deserialize, Serialize};

use super::Options;
use super::arguments::{self, Arguments};
use super::schedule::{Arrivals, Schedule};

/// A load.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The bodies of calls, in Hessian2: each in turn. At least one.
    pub(crate) bodies: Vec<Vec<u8>>,
    pub(crate) timeout: Duration,
    pub(crate) connections: NonZero<u32>,
    pub(crate) pace: Pace,
    pub(crate) serial: NonZero<u32>,
    pub(crate) duration: Duration,
    /// Whose CPU time and memory to report.
    pub(crate) processes: Vec<u32>,
}

/// When calls (pages, if there are any) begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// When one before has ended: so many are always going on.
    #[serde(rename = "concurrency")]
    Closed(NonZero<u32>),
    /// So many a second, come what may.
    #[serde(rename = "rate")]
    Open(NonZero<u64>),
}

/// Why there is no such call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument cannot be sent.
    #[error(transparent)]
    Argument(#[from] arguments::Error),
    /// The body is longer than a peer would take.
    #[error("the body has {len} bytes, and {limit} are allowed")]
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        limit: u32,
    },
}

impl Plan {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let arguments = match options.payload {
            Some(len) => Arguments::payload(len),
            None => Arguments::from_json(&options.arguments)?,
        };
        let types = match &options.types {
            Some(types) => arguments.with_types(types)?,
            None => arguments.types.clone(),
        };
        let body = |key| body(key, &options.method, &types, &arguments, options.timeout);
        let bodies: Vec<_> = options.services.iter().map(body).collect();
        let (longest, limit) = (
            bodies.iter().map(Vec::len).max(),
            Limits::default().max_body,
        );
        if let Some(len) = longest.filter(|len| *len > limit as usize) {
            return Err(Error::TooLong { len, limit });
        }
        let processes = options.cpu_of.iter().copied();
        Ok(Self {
            bodies,
            timeout: options.timeout,
            connections: options.connections,
            pace: options
                .rate
                .map_or(Pace::Closed(options.concurrency), Pace::Open),
            serial: options.serial,
            duration: options.duration,
            processes: processes.chain([process::id()]).collect(),
        })
    }

    /// Bytes of the longest body.
    pub(super) fn longest_body(&self) -> usize {
        self.bodies.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// A process as figures name it.
    pub(super) fn name_of(pid: u32) -> String {
        if pid == process::id() {
            return "loader".to_owned();
        }
        pid.to_string()
    }

    /// The part of one connection, of the first with `index` 0.
    pub(super) fn schedule(&self, index: u32, start: Instant) -> Schedule {
        let (connections, until) = (self.connections.get(), start + self.duration);
        match self.pace {
            Pace::Closed(pages) => {
                let more = u32::from(index < pages.get() % connections);
                Schedule::closed(pages.get() / connections + more, self.serial, until)
            }
            Pace::Open(rate) => {
                let arrivals = Arrivals::new(start, rate, u64::from(index), connections);
                Schedule::open(arrivals, self.serial, until)
            }
        }
    }
}

/// The body of a call of `echo` that takes a string of `len` bytes along.
pub(crate) fn payload(key: &ServiceKey, len: usize, timeout: Duration) -> Vec<u8> {
    let arguments = Arguments::payload(len);
    body(key, "echo", &arguments.types, &arguments, timeout)
}

fn body(
    key: &ServiceKey,
    method: &str,
    types: &str,
    arguments: &Arguments,
    timeout: Duration,
) -> Vec<u8> {
    let version = if key.version().is_empty() {
        "0.0.0"
    } else {
        key.version()
    };
    let timeout = timeout.as_millis().to_string();
    let mut attachments = vec![("path", key.interface()), ("interface", key.interface())];
    if !key.version().is_empty() {
        attachments.push(("version", key.version()));
    }
    if !key.group().is_empty() {
        attachments.push(("group", key.group()));
    }
    attachments.push(("timeout", &timeout));
    let mut body = Vec::new();
    let call = invocation::Outgoing {
        path: key.interface(),
        version,
        method,
        types,
        arguments: &arguments.encoded,
        attachments: &attachments,
    };
    invocation::write(&mut body, &call);
    body
}
