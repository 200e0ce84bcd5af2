//! The body of a request, read without decoding what nobody asked for, and written.
//!
//! Five strings (Dubbo version, path, service version, method, type descriptor), the arguments,
//! the attachments. What the attachments say of path, version and group overrides the strings,
//! because it does so in Java.
//!
//! Source: apache/dubbo, `DubboCodec.encodeRequestData`, `DecodeableRpcInvocation`.

use crate::{
    attachments::{Attachments, Place},
    body::{self, Body},
    error::{self, Flaw},
    fastjson2,
    head::Serialization,
    hessian2::{Limits, Reader, Tables, writer::Writer},
    text::{Text, find},
};

/// The Dubbo version that we say we are, as every client since 2.6.3 does.
pub const DUBBO_VERSION: &str = "2.0.2";

/// A request body, as far as a proxy looks into it. Borrows from the frame.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// Version of the caller's protocol, or of its library before 2.6.3.
    pub dubbo: Text<'a>,
    /// The path in front of the arguments. Empty if null.
    pub positional_path: Text<'a>,
    /// The service version in front of the arguments. Empty if null.
    pub positional_version: Text<'a>,
    /// The method, which may be a generic one: see [`Self::real_method`].
    pub method: Text<'a>,
    /// The parameter types as JVM descriptors, one after another.
    pub types: Text<'a>,
    /// The attachments.
    pub attachments: Attachments<'a>,
    /// How much of the body could be read.
    pub reach: Reach,
    arity: usize,
}

/// How much of a body the serialization lets us read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everything, so that no attachment is unknown.
    Full,
    /// The five strings only: what the attachments say is unknown, so a rule that depends on them
    /// must fail closed.
    Positional,
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its serialization is not one we know. The body may be perfectly good.
    #[error("bodies of serialization {} cannot be read", .0.bits())]
    Unreadable(Serialization),
    /// It is broken: a two-way call is answered with a bad request.
    #[error("malformed {what}: {flaw} at byte {offset}")]
    Malformed {
        /// The part that was being read.
        what: &'static str,
        /// What is wrong.
        flaw: Flaw,
        /// Bytes of the body before the flaw.
        offset: usize,
    },
}

/// Memory that reading needs, kept from body to body so that reading allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) tables: Tables,
    pub(crate) symbols: fastjson2::Symbols,
}

impl Scratch {
    /// Walks over the first `count` values of `input`, which are Hessian2: bytes of them, or `None`
    /// if they are broken, or over a limit together with the map of attachments behind them.
    #[inline]
    pub fn skip(&mut self, input: &[u8], count: usize, limits: &Limits) -> Option<usize> {
        let mut reader = Reader::new(input, limits, &mut self.tables);
        for _ in 0..count {
            reader.skip().ok()?;
        }
        let at = reader.position();
        (self.tables.slots < limits.slots).then_some(at)
    }
}

impl<'a> Invocation<'a> {
    /// Reads a request body in one walk, building nothing.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if we do not know the serialization, [`Error::Malformed`] if the
    /// body is broken or over a limit. Bytes after the attachments are no error.
    pub fn peek(
        serialization: Serialization,
        body: &'a [u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Self, Error> {
        match serialization {
            Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => {
                let mut reader = Reader::new(body, limits, &mut scratch.tables);
                Self::read(serialization, body, limits, &mut reader)
            }
            _ => {
                let read =
                    |reader: &mut dyn Body<'a>| Self::read(serialization, body, limits, reader);
                body::open(serialization, body, limits, scratch, read)
                    .unwrap_or(Err(Error::Unreadable(serialization)))
            }
        }
    }

    /// Where the arguments start in the body: behind its [`names`].
    #[must_use]
    pub fn arguments(&self) -> usize {
        self.attachments.place.arguments
    }

    /// How the body is written.
    #[must_use]
    pub fn serialization(&self) -> Serialization {
        self.attachments.place.serialization
    }

    /// How many arguments there are, by the descriptor of their types.
    #[must_use]
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// The path that the provider looks its service up by.
    #[inline]
    #[must_use]
    pub fn path(&self) -> Text<'a> {
        self.attachments.path.unwrap_or(self.positional_path)
    }

    /// The service version that the provider looks its service up by.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Text<'a> {
        self.attachments.version.unwrap_or(self.positional_version)
    }

    /// The group, empty if none.
    #[inline]
    #[must_use]
    pub fn group(&self) -> Text<'a> {
        self.attachments.group.unwrap_or_default()
    }

    /// The interface: as attached, else the path in front of the arguments.
    #[inline]
    #[must_use]
    pub fn interface(&self) -> Text<'a> {
        let attached = self.attachments.interface.filter(|i| !i.is_empty());
        attached.unwrap_or(self.positional_path)
    }

    /// The method that the provider will run: the first argument of a generic call, else
    /// [`Self::method`]. A generic call whose first argument is no string keeps its own.
    #[must_use]
    pub fn real_method(&self) -> Text<'a> {
        if !self.method.starts_with(b"$invoke") {
            return self.method;
        }
        if !self.method.is(b"$invoke") && !self.method.is(b"$invokeAsync") {
            return self.method;
        }
        let method = self.attachments.place.first_argument();
        method.unwrap_or(self.method)
    }

    /// Whether the answer may carry attachments: the caller speaks 2.0.2 to 2.0.99.
    ///
    /// Source: apache/dubbo, `Version.isSupportResponseAttachment`.
    #[inline]
    #[must_use]
    pub fn takes_reply_attachments(&self) -> bool {
        self.dubbo.is(DUBBO_VERSION.as_bytes())
            || (2_000_200..=2_009_900).contains(&version_number(&self.dubbo.to_utf8()))
    }

    /// Reads any body. For Hessian2 this is the hot path of a proxy.
    #[inline]
    fn read<B: Body<'a> + ?Sized>(
        serialization: Serialization,
        bytes: &'a [u8],
        limits: &Limits,
        body: &mut B,
    ) -> Result<Self, Error> {
        let start = body.position();
        let [dubbo, positional_path, positional_version, method, types] = match body.plain_texts() {
            Some(names) if names.iter().all(|name| name.wire_len() <= limits.name_len) => names,
            _ => {
                body.restart(start);
                any_names(body, limits)?
            }
        };
        let (arguments, reach) = (body.position(), body.reach());
        let arity = arity(types, arguments)?;
        let mut call = Self {
            dubbo,
            positional_path,
            positional_version,
            method,
            types,
            attachments: Attachments::none(Place {
                serialization,
                body: bytes,
                arguments,
                at: bytes.len(),
                end: bytes.len(),
            }),
            reach,
            arity,
        };
        if reach == Reach::Full {
            for _ in 0..arity {
                body.skip().map_err(|e| Error::new("argument", e))?;
            }
            call.attachments.place.at = body.position();
            call.attachments.place.end = body
                .attachments(arguments, &mut call.attachments)
                .map_err(|e| Error::new("attachments", e))?;
        }
        Ok(call)
    }
}

impl Error {
    #[cold]
    fn new(what: &'static str, error: error::Error) -> Self {
        Self::Malformed {
            what,
            flaw: error.flaw,
            offset: error.offset,
        }
    }
}

/// What a null means where a string is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    /// The empty string.
    Empty,
    /// A flaw.
    Refused,
}

/// A request to be written.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The path of the service: its interface, unless the provider configured another.
    pub path: &'a str,
    /// The version of the service; `0.0.0` where there is none.
    pub version: &'a str,
    /// The method.
    pub method: &'a str,
    /// The parameter types as JVM descriptors, one after another.
    pub types: &'a str,
    /// The arguments, encoded one after another.
    pub arguments: &'a [u8],
    /// The attachments.
    pub attachments: &'a [(&'a str, &'a str)],
}

/// The five strings in front of a Hessian2 body as bytes, which say what is called: two bodies that
/// begin with the same bytes call the same method. `None` if one of them is longer than 1023
/// characters, no string, or cut. Only lengths are looked at, so whoever did not see the same bytes
/// in a body that [`Invocation::peek`] has read knows nothing of them.
#[inline]
#[must_use]
pub fn names(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    for _ in 0..5 {
        rest = match *rest {
            [len @ 0x00..=0x1f, ref rest @ ..] => rest.get(usize::from(len)..)?,
            [tag @ 0x30..=0x33, low, ref rest @ ..] => {
                rest.get(usize::from(tag & 3) << 8 | usize::from(low)..)?
            }
            _ => return None,
        };
    }
    body.get(..body.len() - rest.len())
}

/// The JVM descriptor of a type by its Java name: `int`, `java.lang.String`, `byte[]`. A text that
/// is a descriptor already stays as it is.
#[must_use]
pub fn descriptor(name: &str) -> String {
    if let Some(element) = name.strip_suffix("[]") {
        return format!("[{}", descriptor(element));
    }
    let letter = match name {
        "boolean" => "Z",
        "byte" => "B",
        "char" => "C",
        "short" => "S",
        "int" => "I",
        "long" => "J",
        "float" => "F",
        "double" => "D",
        _ if name.starts_with('[') || name.ends_with(';') || name.len() == 1 => name,
        _ => return format!("L{};", name.replace('.', "/")),
    };
    letter.to_owned()
}

/// Appends a request body in Hessian2.
pub fn write(out: &mut Vec<u8>, call: &Outgoing<'_>) {
    let mut writer = Writer::new(out);
    for text in [
        DUBBO_VERSION,
        call.path,
        call.version,
        call.method,
        call.types,
    ] {
        writer.text(text);
    }
    writer.encoded(call.arguments);
    writer.strings(call.attachments);
}

/// The five strings, whatever their form.
#[inline(never)]
fn any_names<'a, B: Body<'a> + ?Sized>(
    body: &mut B,
    limits: &Limits,
) -> Result<[Text<'a>; 5], Error> {
    Ok([
        name(body, limits, "dubbo version", Null::Empty)?,
        name(body, limits, "path", Null::Empty)?,
        name(body, limits, "version", Null::Empty)?,
        name(body, limits, "method", Null::Refused)?,
        name(body, limits, "types", Null::Refused)?,
    ])
}

/// One of the five strings.
fn name<'a, B: Body<'a> + ?Sized>(
    body: &mut B,
    limits: &Limits,
    what: &'static str,
    null: Null,
) -> Result<Text<'a>, Error> {
    match body.text() {
        Ok(Some(text)) if text.wire_len() <= limits.name_len => Ok(text),
        Ok(None) if null == Null::Empty => Ok(Text::default()),
        Ok(Some(_)) => Err(Error::new(
            what,
            Flaw::Limit("bytes of a name").at(body.position()),
        )),
        Ok(None) => Err(Error::new(what, Flaw::Not("string").at(body.position()))),
        Err(error) => Err(Error::new(what, error)),
    }
}

/// How many arguments a descriptor names. `V`, which dubbo-go writes for nil, counts as one.
#[inline]
fn arity(types: Text<'_>, offset: usize) -> Result<usize, Error> {
    let count = match types.as_ascii() {
        Some(types) => count(types),
        None => count(&types.to_utf8()),
    };
    count.ok_or_else(|| Error::new("types", Flaw::Descriptor.at(offset)))
}

#[inline]
fn count(types: &[u8]) -> Option<usize> {
    let (mut rest, mut count) = (types, 0);
    while let Some((first, mut after)) = rest.split_first() {
        match first {
            b'[' if !after.is_empty() => count -= 1,
            b'L' => {
                let end = find(after, b';')?;
                after = after.get(end + 1..)?;
            }
            b'V' | b'Z' | b'B' | b'C' | b'D' | b'F' | b'I' | b'J' | b'S' => {}
            _ => return None,
        }
        (rest, count) = (after, count + 1);
    }
    usize::try_from(count).ok()
}

/// A version as a number: two decimal digits per part, times 100 if there are three parts.
/// Letters after the digits of a part are dropped.
///
/// Source: apache/dubbo, `Version.getIntVersion`.
fn version_number(version: &[u8]) -> u64 {
    let end = version.iter().rposition(|byte| *byte != b'.');
    let version = version.get(..=end.unwrap_or(0)).unwrap_or_default();
    let (mut number, mut parts) = (0u64, 0);
    for part in version.split(|byte| *byte == b'.') {
        let digits = part.iter().take_while(|byte| byte.is_ascii_digit());
        let value = digits.fold(0u64, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add((digit - b'0').into())
        });
        number = number.saturating_mul(100).saturating_add(value);
        parts += 1;
    }
    if parts == 3 {
        number.saturating_mul(100)
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(attachments: &'a [(&'a str, &'a str)]) -> Vec<u8> {
        let mut body = Vec::new();
        let call = Outgoing {
            path: "com.foo.DemoService",
            version: "1.0.0",
            method: "sayHello",
            types: "Ljava/lang/String;[[ILjava/util/Map;",
            arguments: b"\x05worldx\x48\x04path\x04evilZ",
            attachments,
        };
        write(&mut body, &call);
        body
    }

    fn peek(body: &[u8]) -> Result<Invocation<'_>, Error> {
        let mut scratch = Scratch::default();
        let limits = Limits::default();
        Invocation::peek(Serialization::HESSIAN2, body, &limits, &mut scratch)
    }

    #[test]
    fn what_is_written_is_read() {
        let body = call(&[
            ("path", "other"),
            ("interface", "com.foo.Iface"),
            ("version", "2"),
            ("group", "g"),
            ("timeout", "1000"),
            ("_TO", "-1"),
            ("mesh.idempotent", "true"),
            ("dubbo.tag", "gray"),
            ("version", "3"),
        ]);
        let call = peek(&body).expect("good");
        assert_eq!(call.positional_path.to_utf8(), &b"com.foo.DemoService"[..]);
        assert!(call.method.is(b"sayHello") && call.real_method().is(b"sayHello"));
        assert!(call.path().is(b"other") && call.interface().is(b"com.foo.Iface"));
        assert!(call.version().is(b"3"), "the last duplicate");
        assert!(call.group().is(b"g"));
        let told = call.attachments;
        assert_eq!(told.timeout, Some(std::time::Duration::from_secs(1)));
        assert_eq!(told.remaining, Some(std::time::Duration::ZERO));
        assert!(told.idempotent && !told.callback && !told.stub_event);
        assert_eq!(
            told.get("dubbo.tag").map(|t| t.to_string()),
            Some("gray".into())
        );
        assert_eq!(told.get("absent"), None);
        assert!(call.takes_reply_attachments());
    }

    #[test]
    fn versions_compare_as_java_compares_them() {
        for (version, number) in [
            ("2.0.2", 2_000_200),
            ("2.6.3", 2_060_300),
            ("2.0.99", 2_009_900),
            ("2.6.3.1", 2_060_301),
            ("2.7.8-SNAPSHOT", 2_070_800),
            ("2.0.2..", 2_000_200),
            ("", 0),
            ("x", 0),
            ("99999999999999999999.1.1", u64::MAX),
        ] {
            assert_eq!(version_number(version.as_bytes()), number, "{version}");
        }
    }

    #[test]
    fn types_have_descriptors() {
        for (name, wanted) in [
            ("int", "I"),
            ("long[]", "[J"),
            ("java.lang.String", "Ljava/lang/String;"),
            ("com.foo.Item[][]", "[[Lcom/foo/Item;"),
            ("[I", "[I"),
            ("Ljava/lang/Object;", "Ljava/lang/Object;"),
        ] {
            assert_eq!(descriptor(name), wanted);
        }
    }

    #[test]
    fn descriptors_are_counted() {
        for (types, arguments) in [
            ("", Some(0)),
            ("VZBCDFIJS", Some(9)),
            ("[[ILjava/lang/String;[La;", Some(3)),
            ("[", None),
            ("I[", None),
            ("Lx", None),
            ("Q", None),
        ] {
            assert_eq!(count(types.as_bytes()), arguments, "{types}");
        }
    }
}
