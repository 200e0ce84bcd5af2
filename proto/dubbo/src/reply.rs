//! The body of a response: what kind it is, without decoding it, and answers of our own.
//!
//! With status 20: a type, then the value or the exception, then, for types 3 to 5, attachments.
//! With any other status: one string, the error. dubbo-go adds a null to either, which is ignored.
//!
//! Source: apache/dubbo, `DubboCodec`, `DecodeableRpcResult`.

use std::ops::Range;

use crate::{
    fastjson2::{self, Items},
    foreign, frame,
    head::{Kind as FrameKind, RequestId, Serialization, Status},
    hessian2::{Limits, Reader, Token, writer::Writer},
    invocation::{DUBBO_VERSION, Scratch},
    text::Text,
};

/// What a response says, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value.
    Value,
    /// Null, or a method that returns nothing.
    Null,
    /// An exception of the application.
    Exception,
    /// The provider or its framework failed: the status is not 20.
    Error,
    /// Status 20, but the serialization or the type is one we cannot read.
    Opaque,
}

/// The kind of a response, from its status and the first bytes of its body.
#[inline]
#[must_use]
pub fn kind(status: Status, serialization: Serialization, body: &[u8]) -> Kind {
    if status != Status::OK {
        return Kind::Error;
    }
    match type_code(serialization, body) {
        Some(0 | 3) => Kind::Exception,
        Some(1 | 4) => Kind::Value,
        Some(2 | 5) => Kind::Null,
        _ => Kind::Opaque,
    }
}

/// The class of the exception in a response of kind [`Kind::Exception`], where it can be read.
#[must_use]
pub fn exception_class(
    serialization: Serialization,
    body: &[u8],
    scratch: &mut Scratch,
) -> Option<String> {
    let limits = Limits::default();
    match serialization {
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => {
            let mut reader = Reader::new(body, &limits, &mut scratch.tables);
            reader.skip().ok()?;
            let name = match reader.token().ok()? {
                Token::Object { class_index, .. } => reader.class(class_index)?.name,
                Token::Map { type_index, .. } => reader.type_name(type_index?)?,
                _ => return None,
            };
            Some(name.to_string())
        }
        Serialization::FASTJSON2 => {
            let mut items = Items::new(body);
            items.item().ok()?;
            Some(items.item().ok()?.type_name()?.to_string())
        }
        _ => None,
    }
}

/// The text of a response of kind [`Kind::Error`], in Hessian2 and fastjson2.
#[must_use]
pub fn error_text(serialization: Serialization, body: &[u8]) -> Option<String> {
    let (limits, mut scratch) = (Limits::default(), Scratch::default());
    match serialization {
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => {
            match Reader::new(body, &limits, &mut scratch.tables)
                .token()
                .ok()?
            {
                Token::Text(text) => Some(text.to_string()),
                _ => None,
            }
        }
        Serialization::FASTJSON2 => {
            let item = Items::new(body).item().ok()?;
            Some(item.text(&limits, &mut scratch.symbols).ok()??.to_string())
        }
        _ => None,
    }
}

/// Finds the attachment `key` of a Hessian2 response: the bytes of its key and value, which may be
/// cut out, and the value. Of a key that comes twice the last one; cut it and ask again.
///
/// `None` if there is none, if its value is no string, or in another serialization, where a cut
/// would falsify a length.
#[must_use]
pub fn take_attachment<'a>(
    serialization: Serialization,
    body: &'a [u8],
    key: &str,
    limits: &Limits,
    scratch: &mut Scratch,
) -> Option<(Range<usize>, Text<'a>)> {
    let hessian = [Serialization::HESSIAN2, Serialization::NATIVE_HESSIAN];
    let code = type_code(serialization, body).filter(|_| hessian.contains(&serialization))?;
    let mut reader = Reader::new(body, limits, &mut scratch.tables);
    reader.skip().ok()?;
    match code {
        3 | 4 => reader.skip().ok()?,
        5 => {}
        _ => return None,
    }
    let Token::Map { .. } = reader.token().ok()? else {
        return None;
    };
    let mut found = None;
    loop {
        let start = reader.position();
        let name = match reader.token().ok()? {
            Token::End => return found,
            token => token,
        };
        reader.skip_rest(name).ok()?;
        let value = reader.token().ok()?;
        reader.skip_rest(value).ok()?;
        if matches!(name, Token::Text(name) if name.is(key.as_bytes())) {
            found = match value {
                Token::Text(text) => Some((start..reader.position(), text)),
                _ => None,
            };
        }
    }
}

/// Appends an error, a whole frame: the status and, as its body, the text. In a serialization
/// that we do not know, the body is empty.
pub fn error(
    out: &mut Vec<u8>,
    serialization: Serialization,
    id: RequestId,
    status: Status,
    text: &str,
) {
    let kind = FrameKind::Response { status };
    frame::append(out, kind, serialization, id, |out| match serialization {
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => Writer::new(out).text(text),
        Serialization::FASTJSON2 => fastjson2::write_text(out, text),
        _ => foreign::write_text(out, serialization, text),
    });
}

/// Appends an exception as the outcome of a call, a whole frame with status 20: an object of
/// `class`, which every Java reads if it is `java.lang.RuntimeException`.
///
/// In a serialization that we cannot write an object in, the answer is an error of status 70 with
/// `message`, which Java consumers take for a failure of the framework.
///
/// `attachments`: whether the caller's Dubbo version understands answers that have some.
pub fn exception(
    out: &mut Vec<u8>,
    serialization: Serialization,
    id: RequestId,
    attachments: bool,
    class: &str,
    message: &str,
) {
    let kind = FrameKind::Response { status: Status::OK };
    match serialization {
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => {
            frame::append(out, kind, serialization, id, |out| {
                let mut writer = Writer::new(out);
                writer.int(if attachments { 3 } else { 0 });
                writer.object(class, &["detailMessage"]);
                writer.text(message);
                if attachments {
                    writer.strings(&ATTACHMENTS);
                }
            });
        }
        Serialization::FASTJSON2 => {
            frame::append(out, kind, serialization, id, |out| {
                fastjson2::item(out, |out| {
                    out.extend([0xbd, if attachments { 3 } else { 0 }])
                });
                fastjson2::item(out, |out| {
                    out.push(0x92);
                    fastjson2::write_string(out, fastjson2_name(class));
                    out.extend([0, 0xa6]);
                    fastjson2::write_string(out, "detailMessage");
                    fastjson2::write_string(out, message);
                    out.push(0xa5);
                });
                if attachments {
                    fastjson2::item(out, |out| {
                        out.push(0xa6);
                        for (key, value) in ATTACHMENTS {
                            fastjson2::write_string(out, key);
                            fastjson2::write_string(out, value);
                        }
                        out.push(0xa5);
                    });
                }
            });
        }
        _ => error(out, serialization, id, Status::SERVICE_ERROR, message),
    }
}

/// Appends the value of a call, a whole frame with status 20 in Hessian2: `value` is encoded
/// already, `None` is null.
///
/// `attachments`: whether the caller's Dubbo version understands answers that have some.
pub fn value(out: &mut Vec<u8>, id: RequestId, attachments: bool, value: Option<&[u8]>) {
    let kind = FrameKind::Response { status: Status::OK };
    frame::append(out, kind, Serialization::HESSIAN2, id, |out| {
        let mut writer = Writer::new(out);
        writer.int(match (value, attachments) {
            (Some(_), false) => 1,
            (None, false) => 2,
            (Some(_), true) => 4,
            (None, true) => 5,
        });
        writer.encoded(value.unwrap_or_default());
        if attachments {
            writer.strings(&ATTACHMENTS);
        }
    });
}

/// The type in front of a response of status 20.
#[inline]
fn type_code(serialization: Serialization, body: &[u8]) -> Option<i32> {
    match (serialization, body) {
        (Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN, [first, ..]) => match first {
            0x80..=0xbf => Some(i32::from(*first) - 0x90),
            _ => crate::hessian2::int(body).ok().map(|(code, _)| code),
        },
        (Serialization::FASTJSON2, [0, 0, 0, 2, 0xbd, code, ..]) => Some(i32::from(*code)),
        (Serialization::FASTJSON2, [0, 0, 0, 1, code @ 0..=0x2f, ..]) => Some(i32::from(*code)),
        _ => foreign::type_code(serialization, body),
    }
}

/// The name that fastjson2 itself writes for a class.
fn fastjson2_name(class: &str) -> &str {
    match class {
        "java.lang.RuntimeException" => "RuntimeException",
        _ => class,
    }
}

/// The attachments that Java puts into every answer that has some.
const ATTACHMENTS: [(&str, &str); 1] = [("dubbo", DUBBO_VERSION)];
