//! The serializations that are neither Hessian2 nor fastjson2: what a proxy can read of each
//! without the classes of the application, and one string, which is what an error is.
//!
//! | id | strings | arguments | attachments |
//! | --- | --- | --- | --- |
//! | 6 fastjson, 16 gson, 18 jackson, 21 protobuf-json | [`json`] | a line or a length | yes |
//! | 22 protobuf | [`protobuf`] | a length | yes |
//! | 27 msgpack | [`msgpack`] | describe themselves | yes |
//! | 3, 4, 7 Java | [`java`] | no | no |
//! | 11 avro, 12 protostuff | [`plain`] | no | no |
//!
//! Source: apache/dubbo-spi-extensions, `dubbo-serialization-extensions`.

mod cursor;
mod java;
mod json;
mod msgpack;
mod plain;
mod protobuf;

use crate::{
    attachments::Scalar,
    body::{Body, Each},
    error::{Error, Flaw},
    head::Serialization,
    hessian2::Limits,
    invocation::Reach,
    text::Text,
};

use cursor::Cursor;
pub(crate) use java::block;

/// A body of one of these serializations, read from its front to its end.
#[derive(Debug)]
pub(crate) struct Foreign<'a, 'l> {
    format: Format<'a>,
    limits: &'l Limits,
}

#[derive(Debug)]
enum Format<'a> {
    Json(json::Json<'a>),
    Protobuf(protobuf::Protobuf<'a>),
    MsgPack(msgpack::MsgPack<'a>),
    Java(java::Java<'a>),
    Plain(plain::Plain<'a>),
}

impl<'a, 'l> Foreign<'a, 'l> {
    /// A reader at the front of `body`; `None` if we do not know the serialization.
    pub(crate) fn open(
        serialization: Serialization,
        body: &'a [u8],
        limits: &'l Limits,
    ) -> Option<Self> {
        let cursor = Cursor::new(body, 0);
        let format = match serialization {
            Serialization::FASTJSON
            | Serialization::GSON
            | Serialization::JACKSON
            | Serialization::PROTOBUF_JSON => Format::Json(json::Json::new(serialization, cursor)),
            Serialization::PROTOBUF => Format::Protobuf(protobuf::Protobuf(cursor)),
            Serialization::MSGPACK => Format::MsgPack(msgpack::MsgPack(cursor)),
            Serialization::JAVA | Serialization::COMPACTED_JAVA => {
                Format::Java(java::Java::new(cursor, java::Lengths::Before))
            }
            Serialization::NATIVE_JAVA => {
                Format::Java(java::Java::new(cursor, java::Lengths::None))
            }
            Serialization::AVRO => Format::Plain(plain::Plain::avro(cursor)),
            Serialization::PROTOSTUFF => Format::Plain(plain::Plain::protostuff(cursor)),
            _ => return None,
        };
        Some(Self { format, limits })
    }

    fn cursor(&mut self) -> &mut Cursor<'a> {
        match &mut self.format {
            Format::Json(body) => &mut body.cursor,
            Format::Protobuf(body) => &mut body.0,
            Format::MsgPack(body) => &mut body.0,
            Format::Java(body) => &mut body.cursor,
            Format::Plain(body) => &mut body.cursor,
        }
    }
}

impl<'a> Body<'a> for Foreign<'a, '_> {
    fn reach(&self) -> Reach {
        match &self.format {
            Format::Json(_) | Format::Protobuf(_) | Format::MsgPack(_) => Reach::Full,
            Format::Java(_) | Format::Plain(_) => Reach::Positional,
        }
    }

    fn position(&self) -> usize {
        match &self.format {
            Format::Json(body) => body.cursor.position(),
            Format::Protobuf(body) => body.0.position(),
            Format::MsgPack(body) => body.0.position(),
            Format::Java(body) => body.cursor.position(),
            Format::Plain(body) => body.cursor.position(),
        }
    }

    fn restart(&mut self, offset: usize) {
        self.cursor().restart(offset);
    }

    fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        match &mut self.format {
            Format::Json(body) => body.text(),
            Format::Protobuf(body) => body.text().map(Some),
            Format::MsgPack(body) => body.text(),
            Format::Java(body) => body.text(),
            Format::Plain(body) => body.text().map(Some),
        }
    }

    fn skip(&mut self) -> Result<(), Error> {
        match &mut self.format {
            Format::Json(body) => body.value().map(|_| ()),
            Format::Protobuf(body) => body.message().map(|_| ()),
            Format::MsgPack(body) => body.skip(),
            Format::Java(_) | Format::Plain(_) => {
                Err(Flaw::Not("value we read").at(self.position()))
            }
        }
    }

    fn attachments(&mut self, _: usize, each: Each<'_, 'a>) -> Result<usize, Error> {
        let (limits, mut left) = (self.limits, self.limits.attachments);
        let each: Each<'_, 'a> = &mut |key: Text<'a>, value: Scalar<'a>| {
            left = left.checked_sub(1).ok_or(Flaw::Limit("attachments"))?;
            if key.wire_len() > limits.key_len {
                return Err(Flaw::Limit("bytes of a key"));
            }
            each.entry(key, value)
        };
        match &mut self.format {
            Format::Json(body) => body.attachments(each)?,
            Format::Protobuf(body) => body.attachments(each)?,
            Format::MsgPack(body) => body.attachments(each)?,
            Format::Java(_) | Format::Plain(_) => {}
        }
        Ok(self.position())
    }
}

/// The type in front of a response of status 20.
pub(crate) fn type_code(serialization: Serialization, body: &[u8]) -> Option<i32> {
    let code = match (serialization, body) {
        (Serialization::FASTJSON, [0, 0, 0, 1, digit, ..])
        | (
            Serialization::FASTJSON
            | Serialization::GSON
            | Serialization::JACKSON
            | Serialization::PROTOBUF_JSON,
            [digit, b'\n' | b'\r', ..],
        ) => digit.wrapping_sub(b'0'),
        (Serialization::PROTOBUF, [0, ..]) => 0,
        (Serialization::PROTOBUF, [2, 8, code, ..]) | (Serialization::MSGPACK, [code, ..]) => *code,
        (
            Serialization::JAVA | Serialization::COMPACTED_JAVA | Serialization::NATIVE_JAVA,
            [0xac, 0xed, 0, 5, 0x77, _, code, ..],
        )
        | (Serialization::PROTOSTUFF, [code, ..]) => *code,
        _ => return None,
    };
    Some(code.into())
}

/// Appends one string as a whole body; nothing in a serialization that we do not know.
pub(crate) fn write_text(out: &mut Vec<u8>, serialization: Serialization, text: &str) {
    match serialization {
        Serialization::FASTJSON
        | Serialization::GSON
        | Serialization::JACKSON
        | Serialization::PROTOBUF_JSON => json::write_text(out, text),
        Serialization::PROTOBUF => protobuf::write_text(out, text),
        Serialization::MSGPACK => msgpack::write_text(out, text),
        Serialization::JAVA | Serialization::COMPACTED_JAVA => {
            java::write_text(out, text, java::Lengths::Before);
        }
        Serialization::NATIVE_JAVA => java::write_text(out, text, java::Lengths::None),
        Serialization::AVRO => plain::write_avro(out, text),
        Serialization::PROTOSTUFF => plain::write_protostuff(out, text),
        _ => {}
    }
}
