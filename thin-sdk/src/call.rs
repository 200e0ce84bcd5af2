//! One call: one deadline, as many attempts as it takes, one answer or one error.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::invocation;
use dubbo_proto::key::{self, ServiceKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout_at;

use crate::answer::{Judged, judge};
use crate::connection::{Ended, Outgoing};
use crate::error::Error;
use crate::failover::{Answered, Ending, Next, Route};
use crate::journey::Journey;
use crate::shared::{Choice, Shared, Way};
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
    pub fn arg<T: Serialize>(self, argument: T) -> Self {
        self.push(argument, Value::descriptor)
    }

    /// The next argument, with the type of its parameter by its Java name: `long`, `byte[]`,
    /// `java.lang.Object`.
    pub fn arg_as<T: Serialize>(self, parameter: &str, argument: T) -> Self {
        self.push(argument, |_| invocation::descriptor(parameter))
    }

    /// An attachment: what travels beside the arguments.
    pub fn attachment(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attachments.push((key.into(), value.into()));
        self
    }

    /// How long the call may take, with all attempts; a day at most. As long, a call that may be
    /// sent again waits for somebody who takes it. Default: the client's.
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
        let prepared = self.prepared(Answered::Never)?;
        self.attempts(&prepared).await.map(|_| ())
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

    fn push<T: Serialize>(mut self, argument: T, parameter: impl FnOnce(&Value) -> String) -> Self {
        match value::to_value(&argument) {
            Ok(argument) => {
                self.types.push(parameter(&argument));
                self.arguments.push(argument);
            }
            Err(flaw) => self.flaw = Some(flaw),
        }
        self
    }

    async fn value(self) -> Result<Value, Error> {
        let prepared = self.prepared(Answered::Once)?;
        let answer = self.attempts(&prepared).await?;
        match answer {
            Some(body) => value::result(&body).map_err(Error::Answer),
            None => Ok(Value::Null),
        }
    }

    /// What is the same for every attempt.
    fn prepared(&self, answered: Answered) -> Result<Prepared, Error> {
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
            answered,
            types: self.types.concat(),
            arguments,
            deadline: now() + self.deadline.min(LONGEST),
        })
    }

    /// Sends the call until it is answered or has failed. The body of a value, `None` for null.
    async fn attempts(&self, call: &Prepared) -> Result<Option<Vec<u8>>, Error> {
        let mut journey = Journey::new();
        loop {
            let Some(way) = self.chosen(call, &mut journey).await else {
                return Err(journey.stranded());
            };
            let ended = self.attempt(call, &way, &journey).await;
            match judge(ended, way.route) {
                Judged::Done(result) => {
                    if call.answered == Answered::Once {
                        self.shared.heard(now(), way.route);
                    }
                    if way.route == Route::Trial {
                        self.shared.answered(now(), &call.key, way.route, None);
                    }
                    return result.map_err(|error| journey.verdict(error));
                }
                Judged::Failed(error) => return Err(journey.verdict(error)),
                Judged::Ended(ending, error) => {
                    self.follow(call, &way, &mut journey, ending, error)?;
                }
            }
        }
    }

    /// Waits for a way to go; `None` if there is none, within the deadline.
    async fn chosen(&self, call: &Prepared, journey: &mut Journey) -> Option<Way> {
        loop {
            let mut changed = pin!(self.shared.changed());
            changed.as_mut().enable();
            let time = now();
            journey.look(time);
            let (key, answered) = (&call.key, call.answered);
            let choice = self
                .shared
                .choose(time, key, answered, journey.next, &journey.tried);
            let until = match choice {
                Choice::Send(way) => return Some(way),
                Choice::Wait(until) => until,
                Choice::Nowhere if journey.again_at.is_some() => None,
                Choice::Nowhere => return None,
            };
            if time >= call.deadline {
                return None;
            }
            let ends = [until, journey.again_at].into_iter().flatten();
            let until = ends.fold(call.deadline, Instant::min);
            let _ = timeout_at(until.into(), changed).await;
        }
    }

    /// Goes one way, to its end.
    async fn attempt(&self, call: &Prepared, way: &Way, journey: &Journey) -> Ended {
        let begun = now();
        let left = call.deadline.saturating_duration_since(begun);
        // A provider that does not answer a dial must leave time for another.
        let others = way.provider.is_some_and(|provider| {
            let tried = [&journey.tried[..], &[provider]].concat();
            self.shared.has_other(&call.key, &tried)
        });
        let ended = way.connection.call(Outgoing {
            body: self.body(call, left),
            two_way: call.answered == Answered::Once,
            deadline: call.deadline,
            start_by: begun + if others { left / 2 } else { left },
        });
        match call.answered {
            Answered::Once => ended.await,
            // The connection looks after the deadline of what is answered; nothing else ends a wait
            // for a peer that does not read.
            Answered::Never => timeout_at(call.deadline.into(), ended)
                .await
                .unwrap_or(Ended::TimedOut),
        }
    }

    /// Takes note of an attempt without an answer; the error if no other may follow.
    fn follow(
        &self,
        call: &Prepared,
        way: &Way,
        journey: &mut Journey,
        ending: Ending,
        error: Error,
    ) -> Result<(), Error> {
        let time = now();
        journey.been(way, ending, &error);
        if let Some(provider) = way.provider
            && ending == Ending::Unsent
        {
            self.shared.avoid(time, provider);
        }
        if let Ending::Code(code) = ending {
            self.shared.answered(time, &call.key, way.route, Some(code));
        }
        let left = self.shared.has_other(&call.key, &journey.tried);
        let next = journey.decide(ending, way.route, self.idempotent, left);
        if next == Next::Fail {
            return Err(journey.verdict(error));
        }
        if time >= call.deadline {
            let executed = journey.verdict(error).executed();
            return Err(Error::Deadline { executed });
        }
        if next == Next::Again {
            journey.pause(|rounds| self.shared.again_at(time, rounds));
        }
        self.shared.again(ending);
        journey.goes_on(error);
        Ok(())
    }

    /// The body of an attempt that has so much time left.
    fn body(&self, call: &Prepared, left: Duration) -> Vec<u8> {
        let key = &call.key;
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
        let call = invocation::Outgoing {
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
    answered: Answered,
    types: String,
    arguments: Vec<u8>,
    deadline: Instant,
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

/// Longest deadline: what is longer is meant as for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The parameters of `$invoke`.
const GENERIC: [&str; 3] = [
    "Ljava/lang/String;",
    "[Ljava/lang/String;",
    "[Ljava/lang/Object;",
];
