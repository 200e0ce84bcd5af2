//! The attachments of a call: the few that everybody acts on, and a way to the others.

use std::{ops::Range, time::Duration};

use crate::{
    body::{self, Each, Entries},
    error::{Error, Flaw},
    head::Serialization,
    hessian2::{self, Limits},
    invocation::Scratch,
    text::Text,
};

/// What a call's attachments say. Of a key that comes twice the last one counts, as in Java.
#[derive(Debug, Clone, Copy)]
pub struct Attachments<'a> {
    /// `timeout`: how long the caller waits; `None` if absent, 0 or no number.
    pub timeout: Option<Duration>,
    /// `_TO`, else `_to`: what is left of the caller's time, zero when nothing is.
    pub remaining: Option<Duration>,
    /// `mesh.idempotent=true`: the call may be sent again even if it may have run.
    pub idempotent: bool,
    /// Some `sys_callback_arg-N`: an argument is a callback into the caller.
    pub callback: bool,
    /// `dubbo.stub.event=true`: a call of a stub, not of the service.
    pub stub_event: bool,
    /// `group`. Empty if null.
    pub group: Option<Text<'a>>,
    /// `path`. Empty if null, which Java finds no service for.
    pub path: Option<Text<'a>>,
    /// `version`. Empty if null.
    pub version: Option<Text<'a>>,
    /// `interface`. Empty if null.
    pub interface: Option<Text<'a>>,
    pub(crate) place: Place<'a>,
}

/// Where the attachments stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) serialization: Serialization,
    pub(crate) body: &'a [u8],
    /// Where the arguments start, whose tables the attachments share.
    pub(crate) arguments: usize,
    /// Where the attachments start.
    pub(crate) at: usize,
    /// Where they end. A map's last byte is its end mark, in front of which entries may be added.
    pub(crate) end: usize,
}

/// A value of an attachment, as far as anybody needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Text(Text<'a>),
    /// Anything else.
    Other,
}

impl<'a> Attachments<'a> {
    #[inline]
    pub(crate) const fn none(place: Place<'a>) -> Self {
        Self {
            timeout: None,
            remaining: None,
            idempotent: false,
            callback: false,
            stub_event: false,
            group: None,
            path: None,
            version: None,
            interface: None,
            place,
        }
    }

    /// The text of any other attachment; `None` if it is absent or no string. Walks over the
    /// attachments again, so not for every call.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Text<'a>> {
        let mut found = None;
        let mut each = |name: Text<'a>, value: Scalar<'a>| {
            if name.is(key.as_bytes()) {
                found = match value {
                    Scalar::Text(text) => Some(text),
                    _ => None,
                };
            }
            Ok(())
        };
        self.place.walk(&mut each).ok()?;
        found
    }

    /// Whether the same bytes are the same attachments in any other call too: they are a map of
    /// strings in Hessian2, in which nothing refers to the arguments.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let hessian = [Serialization::HESSIAN2, Serialization::NATIVE_HESSIAN];
        let bytes = self.place.body.get(self.range()).unwrap_or_default();
        hessian.contains(&self.place.serialization) && hessian2::is_plain_map(bytes)
    }

    /// Where the attachments stand in the body: a map, null, or a reference to an argument.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.place.at..self.place.end
    }

    #[inline(always)]
    fn put(&mut self, key: &[u8], value: Scalar<'a>) -> Result<(), Flaw> {
        match key.len() {
            3 if key == b"_TO" => self.remaining = value.millis(),
            3 if key == b"_to" && self.remaining.is_none() => self.remaining = value.millis(),
            4 if key == b"path" => self.path = Some(value.name("string as path")?),
            5 if key == b"group" => self.group = Some(value.name("string as group")?),
            7 if key == b"version" => self.version = Some(value.name("string as version")?),
            7 if key == b"timeout" => self.timeout = value.millis().filter(|t| !t.is_zero()),
            9 if key == b"interface" => {
                self.interface = Some(value.name("string as interface")?);
            }
            15 if key == b"mesh.idempotent" => self.idempotent = value.is_true(),
            16 if key == b"dubbo.stub.event" => self.stub_event = value.is_true(),
            17.. if key.starts_with(CALLBACK) => self.callback = true,
            _ => {}
        }
        Ok(())
    }

    /// A key in several chunks or with characters in overlong form, which Java reads as the key
    /// it spells.
    #[cold]
    #[inline(never)]
    fn put_odd(&mut self, key: Text<'a>, value: Scalar<'a>) -> Result<(), Flaw> {
        self.put(&key.to_utf8(), value)
    }
}

impl<'a> Entries<'a> for Attachments<'a> {
    /// Takes note of one entry.
    #[inline(always)]
    fn entry(&mut self, key: Text<'a>, value: Scalar<'a>) -> Result<(), Flaw> {
        match key.as_ascii() {
            Some(key) => self.put(key, value),
            None => self.put_odd(key, value),
        }
    }
}

impl<'a> Place<'a> {
    /// Calls `each` with every entry whose key is a string, in the order of the wire.
    #[cold]
    fn walk(self, each: Each<'_, 'a>) -> Result<(), Error> {
        let scratch = &mut Scratch::default();
        let walked = body::open(
            self.serialization,
            self.body,
            &Limits::NONE,
            scratch,
            |body| {
                body.restart(self.arguments);
                while body.position() < self.at {
                    body.skip()?;
                }
                body.attachments(self.arguments, each)
            },
        );
        walked.unwrap_or(Ok(0)).map(|_| ())
    }

    /// The first argument, if it is a string. It was perhaps walked over without a look inside, so
    /// limits hold for it.
    #[cold]
    pub(crate) fn first_argument(self) -> Option<Text<'a>> {
        let scratch = &mut Scratch::default();
        body::open(
            self.serialization,
            self.body,
            &Limits::default(),
            scratch,
            |body| {
                body.restart(self.arguments);
                body.text().ok()?
            },
        )?
    }
}

impl<'a> Scalar<'a> {
    /// The value of a key that decides where a call goes: text, or null for none.
    #[inline(always)]
    fn name(self, what: &'static str) -> Result<Text<'a>, Flaw> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Null => Ok(Text::default()),
            _ => Err(Flaw::Not(what)),
        }
    }

    /// Milliseconds, as a number or in decimal; zero if below.
    #[inline(always)]
    fn millis(self) -> Option<Duration> {
        let millis = match self {
            Self::Int(millis) => millis,
            Self::Text(text) => decimal(&text.to_utf8())?,
            _ => return None,
        };
        Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    fn is_true(self) -> bool {
        match self {
            Self::Bool(value) => value,
            Self::Text(text) => text.is(b"true"),
            _ => false,
        }
    }
}

/// A number in decimal, as Java's `Long.parseLong` takes it.
fn decimal(text: &[u8]) -> Option<i64> {
    let (digits, negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] | digits => (digits, false),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        number = number * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    Some(if negative { -number } else { number })
}

/// How the keys begin that say which argument is a callback.
const CALLBACK: &[u8] = b"sys_callback_arg-";
