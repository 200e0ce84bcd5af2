//! One call: one deadline, as many attempts as it takes, one answer or one error.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dubbo_proto::head::{Serialization, Status};
use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::invocation::{self, Outgoing};
use dubbo_proto::key::{self, ServiceKey};
use dubbo_proto::reply::{self, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout_at;

use crate::connection::Ended;
use crate::error::{Code, Error, Executed, Unsent};
use crate::failover::{Ending, Next, Route, Tries};
use crate::shared::{Choice, Shared};
use crate::time::now;
use crate::value::{self, Value};

/// A call to be sent.
#[derive(Debug)]
#[must_use = "a call is sent by `send`, `one_way` or `invoke`"]
pub struct Call {
    shared: Arc<Shared>,
    service: Result<ServiceKey, key::Error>,
    method: String,
    arguments: Vec<Value>,
    types: Vec<String>,
    attachments: Vec<(String, String)>,
    deadline: Duration,
    idempotent: bool,
    flaw: Option<value::Error>,
}

impl Call {
    pub(crate) fn new(
        shared: Arc<Shared>,
        service: &str,
        method: &str,
        deadline: Duration,
    ) -> Self {
        Self {
            shared,
            service: service.parse(),
            method: method.to_owned(),
            arguments: Vec::new(),
            types: Vec::new(),
            attachments: Vec::new(),
            deadline,
            idempotent: false,
            flaw: None,
        }
    }

    /// The next argument. The type of its parameter is the one that the value suggests: `int` for
    /// an `i32`, `java.util.List` for a `Vec`, the class for an object; see [`crate::value`].
    pub fn arg<T: Serialize>(mut self, argument: T) -> Self {
        match value::to_value(&argument) {
            Ok(argument) => {
                self.types.push(argument.descriptor());
                self.arguments.push(argument);
            }
            Err(flaw) => self.flaw = Some(flaw),
        }
        self
    }

    /// The next argument, with the type of its parameter by its Java name: `long`, `byte[]`,
    /// `java.lang.Object`.
    pub fn arg_as<T: Serialize>(mut self, parameter: &str, argument: T) -> Self {
        match value::to_value(&argument) {
            Ok(argument) => {
                self.types.push(value::descriptor(parameter));
                self.arguments.push(argument);
            }
            Err(flaw) => self.flaw = Some(flaw),
        }
        self
    }

    /// An attachment: what travels beside the arguments.
    pub fn attachment(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attachments.push((key.into(), value.into()));
        self
    }

    /// How long the call may take, with all attempts. Default: the client's.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Whether the call may run twice. Only then it is sent again when a connection is lost after
    /// it may have run. Default: no.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Sends the call and waits for its value. `()` for a method that returns nothing.
    ///
    /// Dropping the future gives up the answer; the call may run all the same.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::executed`] says whether the method may have run.
    pub async fn send<T: DeserializeOwned>(self) -> Result<T, Error> {
        let value = self.value().await?;
        value::from_value(value).map_err(Error::Answer)
    }

    /// Sends a call that nobody answers, and waits until the operating system has taken it.
    ///
    /// # Errors
    /// It was certainly not sent, or cannot be.
    pub async fn one_way(self) -> Result<(), Error> {
        let prepared = self.prepared()?;
        self.attempts(&prepared, Answered::Never).await.map(|_| ())
    }

    /// Sends a generic call: the provider is told the names of the types and takes objects as
    /// maps, so that nobody needs its classes. An object in the answer is a map with an entry
    /// `class`.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn invoke(mut self) -> Result<Value, Error> {
        let types = self.types.iter().map(|d| Value::from(java_name(d)));
        let types = Value::List {
            type_name: Some("[string".into()),
            values: types.collect(),
        };
        let arguments = Value::List {
            type_name: Some("[object".into()),
            values: self.arguments.drain(..).map(Value::generalized).collect(),
        };
        let method = std::mem::replace(&mut self.method, "$invoke".into());
        self.arguments = vec![method.into(), types, arguments];
        self.types = GENERIC.map(str::to_owned).to_vec();
        self.attachments.push(("generic".into(), "true".into()));
        self.value().await
    }

    async fn value(self) -> Result<Value, Error> {
        let prepared = self.prepared()?;
        let answer = self.attempts(&prepared, Answered::Once).await?;
        match answer {
            Some(body) => value::result(&body).map_err(Error::Answer),
            None => Ok(Value::Null),
        }
    }

    /// What is the same for every attempt.
    fn prepared(&self) -> Result<Prepared, Error> {
        if let Some(flaw) = &self.flaw {
            return Err(Error::Argument(flaw.clone()));
        }
        let key = self.service.clone()?;
        let mut arguments = Vec::new();
        let mut writer = Writer::new(&mut arguments);
        for argument in &self.arguments {
            argument.write(&mut writer);
        }
        Ok(Prepared {
            key,
            types: self.types.concat(),
            arguments,
            deadline: now() + self.deadline,
        })
    }

    /// Sends the call until it is answered or has failed. The body of a value, `None` for null.
    async fn attempts(
        &self,
        call: &Prepared,
        answered: Answered,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (mut tries, mut tried) = (Tries::default(), Vec::new());
        let (mut next, mut last) = (Next::Route, None);
        loop {
            let Some((route, connection, provider)) = self.chosen(call, next, &tried).await else {
                return Err(last.unwrap_or(Error::NotSent(Unsent::Nowhere)));
            };
            match route {
                Route::Direct => tries.direct += 1,
                _ => tries.sidecar += 1,
            }
            let body = self.body(call, now());
            let two_way = answered == Answered::Once;
            // The connection looks after the deadline of what is answered; nothing else ends a wait
            // for a peer that does not read.
            let ended = connection.call(body, two_way, call.deadline);
            let ended = match answered {
                Answered::Once => ended.await,
                Answered::Never => timeout_at(call.deadline.into(), ended)
                    .await
                    .unwrap_or(Ended::TimedOut),
            };
            let time = now();
            let (ending, error) = match judge(ended) {
                Judged::Done(result) => {
                    if route == Route::Trial {
                        self.shared.answered(time, &call.key, route, None);
                    }
                    return result;
                }
                Judged::Failed(error) => return Err(error),
                Judged::Ended(ending, error) => (ending, error),
            };
            if let Some(provider) = provider {
                if ending == Ending::Unsent {
                    self.shared.avoid(time, provider);
                }
                // A connection that closed just then does not tell against the provider, once.
                let closed = error == Error::NotSent(Unsent::Closed);
                if !closed || tries.direct > 1 {
                    tried.push(provider);
                }
            }
            if let Ending::Code(code) = ending {
                self.shared.answered(time, &call.key, route, Some(code));
            }
            let left = self.shared.has_other(&call.key, &tried);
            next = ending.next(route, tries, self.idempotent, left);
            if next == Next::Fail {
                return Err(error);
            }
            if time >= call.deadline {
                let executed = error.executed();
                return Err(Error::Deadline { executed });
            }
            self.shared.again(ending);
            last = Some(error);
        }
    }

    /// Waits for a way to go; `None` if there is none, within the deadline.
    async fn chosen(
        &self,
        call: &Prepared,
        next: Next,
        tried: &[SocketAddr],
    ) -> Option<(Route, crate::connection::Connection, Option<SocketAddr>)> {
        loop {
            let mut changed = pin!(self.shared.changed());
            changed.as_mut().enable();
            let time = now();
            let until = match self.shared.choose(time, &call.key, next, tried) {
                Choice::Send {
                    route,
                    connection,
                    provider,
                } => return Some((route, connection, provider)),
                Choice::Wait(until) => until.map_or(call.deadline, |at| at.min(call.deadline)),
                Choice::Nowhere => return None,
            };
            if time >= call.deadline {
                return None;
            }
            let _ = timeout_at(until.into(), changed).await;
        }
    }

    /// The body of an attempt that starts `now`.
    fn body(&self, call: &Prepared, now: Instant) -> Vec<u8> {
        let key = &call.key;
        let left = call.deadline.saturating_duration_since(now);
        let left = left.as_millis().max(1).to_string();
        let version = match key.version() {
            "" => "0.0.0",
            version => version,
        };
        let mut attachments = vec![
            ("path", key.interface()),
            ("interface", key.interface()),
            ("version", version),
            ("timeout", &left),
        ];
        if !key.group().is_empty() {
            attachments.push(("group", key.group()));
        }
        if self.idempotent {
            attachments.push(("mesh.idempotent", "true"));
        }
        let own = self.attachments.iter();
        attachments.extend(own.map(|(key, value)| (&**key, &**value)));
        let mut body = Vec::with_capacity(256 + call.arguments.len());
        let call = Outgoing {
            path: key.interface(),
            version,
            method: &self.method,
            types: &call.types,
            arguments: &call.arguments,
            attachments: &attachments,
        };
        invocation::write(&mut body, &call);
        body
    }
}

/// What is the same for every attempt.
#[derive(Debug)]
struct Prepared {
    key: ServiceKey,
    types: String,
    arguments: Vec<u8>,
    deadline: Instant,
}

/// Whether anybody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    Once,
    Never,
}

/// What an attempt was.
enum Judged {
    /// The end of the call, by whoever serves it.
    Done(Result<Option<Vec<u8>>, Error>),
    /// The end of the call, without an answer.
    Failed(Error),
    /// Perhaps not the end; the error if it is.
    Ended(Ending, Error),
}

fn judge(ended: Ended) -> Judged {
    match ended {
        Ended::Reply {
            status: Status::OK,
            serialization,
            body,
        } => Judged::Done(value(serialization, body)),
        Ended::Reply {
            status,
            serialization,
            body,
        } => {
            let text = reply::error_text(serialization, &body).unwrap_or_default();
            match Code::of(status, &text) {
                Some(code) => Judged::Ended(Ending::Code(code), Error::Mesh { code, text }),
                None if status == Status::SERVER_TIMEOUT => Judged::Failed(Error::Deadline {
                    executed: Executed::Maybe,
                }),
                None => Judged::Done(Err(Error::Provider {
                    status: status.0,
                    text,
                })),
            }
        }
        Ended::Written => Judged::Done(Ok(None)),
        Ended::Lost => Judged::Ended(Ending::Broken, Error::Lost),
        Ended::TimedOut => Judged::Failed(Error::Deadline {
            executed: Executed::Maybe,
        }),
        Ended::Unsent(why @ (Unsent::Overloaded | Unsent::TooLong)) => {
            Judged::Failed(Error::NotSent(why))
        }
        Ended::Unsent(why) => Judged::Ended(Ending::Unsent, Error::NotSent(why)),
    }
}

/// What an answer of status 20 says.
fn value(serialization: Serialization, body: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    let readable = [Serialization::HESSIAN2, Serialization::NATIVE_HESSIAN];
    let odd = |what: String| Err(Error::Answer(value::Error::Mismatch(what)));
    if !readable.contains(&serialization) {
        return odd(format!(
            "serialization {} is not read",
            serialization.bits()
        ));
    }
    match reply::kind(Status::OK, serialization, &body) {
        Kind::Value => Ok(Some(body)),
        Kind::Null => Ok(None),
        Kind::Exception => {
            let thrown = value::exception(&body).map_err(Error::Answer)?;
            Err(Error::Exception(thrown))
        }
        Kind::Error | Kind::Opaque => odd("an answer of no known kind".into()),
    }
}

/// The name that Java's reflection has for a descriptor.
fn java_name(descriptor: &str) -> String {
    let name = match descriptor {
        "Z" => "boolean",
        "B" => "byte",
        "C" => "char",
        "S" => "short",
        "I" => "int",
        "J" => "long",
        "F" => "float",
        "D" => "double",
        array if array.starts_with('[') => return array.replace('/', "."),
        class => class.trim_start_matches('L').trim_end_matches(';'),
    };
    name.replace('/', ".")
}

/// The parameters of `$invoke`.
const GENERIC: [&str; 3] = [
    "Ljava/lang/String;",
    "[Ljava/lang/String;",
    "[Ljava/lang/Object;",
];
