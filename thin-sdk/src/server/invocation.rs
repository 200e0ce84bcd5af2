//! What a handler is given, and what it may say instead of a value.

use dubbo_proto::head::Status;
use dubbo_proto::hessian2::Limits;
use dubbo_proto::invocation::{self, Scratch};
use dubbo_proto::key::ServiceKey;
use dubbo_proto::mux;
use serde::de::DeserializeOwned;

use crate::error::Exception;
use crate::value::{self, Value};

/// A call that came in.
#[derive(Debug, Clone)]
pub struct Invocation {
    key: ServiceKey,
    method: String,
    types: String,
    body: Vec<u8>,
    /// Where the arguments start in the body.
    at: usize,
    /// The arguments of the method that a generic call means.
    generic: Option<Vec<Value>>,
    pub(super) takes_attachments: bool,
}

/// Why a call has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The method throws.
    #[error("{0}")]
    Exception(#[from] Exception),
    /// The arguments are not what the method takes, or are broken.
    #[error("Fail to decode request due to: {0}")]
    Arguments(#[from] value::Error),
    /// The returned value cannot be written.
    #[error("the answer cannot be written: {0}")]
    Answer(#[source] value::Error),
    /// Nobody serves the service.
    #[error("Not found exported service: {0}")]
    NoService(String),
    /// The service has no such method.
    #[error("no such method: {0}")]
    NoMethod(String),
    /// The call cannot be read.
    #[error("Fail to decode request due to: {0}")]
    Call(invocation::Error),
}

impl Invocation {
    /// Reads the head of a call; its arguments stay as they are until they are asked for.
    pub(super) fn read(call: &mux::Call<'_>, scratch: &mut Scratch) -> Result<Self, Fault> {
        let limits = Limits::default();
        let read = invocation::Invocation::peek(call.serialization, call.body, &limits, scratch)
            .map_err(Fault::Call)?;
        let text = |text: dubbo_proto::text::Text<'_>| text.to_string();
        let key = ServiceKey::new(
            &text(read.group()),
            &text(read.path()),
            &text(read.version()),
        );
        let mut this = Self {
            key,
            method: text(read.method),
            types: text(read.types),
            at: read.arguments(),
            generic: None,
            takes_attachments: read.takes_reply_attachments(),
            body: call.body.to_vec(),
        };
        if ["$invoke", "$invokeAsync"].contains(&&*this.method) {
            this.unwrap_generic()?;
        }
        Ok(this)
    }

    /// Takes a generic call for the one that it means: method, names of types, arguments.
    fn unwrap_generic(&mut self) -> Result<(), Fault> {
        let odd = || value::Error::Mismatch("not the arguments of a generic call".into());
        let [method, _, arguments] = <[Value; 3]>::try_from(self.values()?).map_err(|_| odd())?;
        let (Value::Text(method), Value::List { values, .. }) = (method, arguments) else {
            return Err(odd().into());
        };
        self.method = method;
        self.generic = Some(values);
        Ok(())
    }

    /// Whether the caller wants objects as maps.
    pub(super) fn is_generic(&self) -> bool {
        self.generic.is_some()
    }

    /// The service that is called.
    #[must_use]
    pub fn service(&self) -> &ServiceKey {
        &self.key
    }

    /// The method that is called.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The arguments, as a tuple: `(String, i32)`, `(Item,)`, `()`.
    ///
    /// # Errors
    /// They are others, or broken.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, value::Error> {
        value::from_value(self.values()?.into())
    }

    /// The arguments as they are.
    ///
    /// # Errors
    /// They are broken.
    pub fn values(&self) -> Result<Vec<Value>, value::Error> {
        match &self.generic {
            Some(arguments) => Ok(arguments.clone()),
            None => value::values(&self.body, self.at, arity(&self.types)),
        }
    }

    /// An attachment; `None` if there is none, or it is no text.
    #[must_use]
    pub fn attachment(&self, key: &str) -> Option<String> {
        let (limits, mut scratch) = (Limits::default(), Scratch::default());
        let serialization = dubbo_proto::head::Serialization::HESSIAN2;
        let read =
            invocation::Invocation::peek(serialization, &self.body, &limits, &mut scratch).ok()?;
        let text = read.attachments.get(key)?;
        Some(text.to_string())
    }
}

impl Fault {
    /// The status that says it; an exception has none, it is an answer.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Exception(_) => Status::OK,
            Self::Arguments(_) | Self::Call(_) | Self::NoMethod(_) => Status::BAD_REQUEST,
            Self::Answer(_) => Status::BAD_RESPONSE,
            Self::NoService(_) => Status::SERVICE_ERROR,
        }
    }
}

/// How many parameters a descriptor has that was found to be good.
fn arity(descriptor: &str) -> usize {
    let (mut count, mut in_class) = (0, false);
    for byte in descriptor.bytes() {
        match byte {
            b';' => in_class = false,
            _ if in_class => {}
            b'[' => {}
            b'L' => {
                in_class = true;
                count += 1;
            }
            _ => count += 1,
        }
    }
    count
}
