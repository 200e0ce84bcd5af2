//! Protobuf (22): every value is a message behind its length. Strings are `StringValue`s, the
//! attachments the message `Map { map<string, string> attachments = 1; map<string, Any>
//! attachmentsV2 = 2; }`. There is no null.
//!
//! Source: apache/dubbo-spi-extensions, `GenericProtobufObjectInput`, `MapValue.proto`.

use super::{Cursor, cursor::write_varint};
use crate::{
    attachments::Scalar,
    body::Each,
    error::{Error, Flaw},
    text::{Coding, Text},
};

#[derive(Debug)]
pub(crate) struct Protobuf<'a>(pub(super) Cursor<'a>);

/// One field of a message.
enum Field<'a> {
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Protobuf<'a> {
    pub(super) fn message(&mut self) -> Result<&'a [u8], Error> {
        self.0.delimited()
    }

    pub(super) fn text(&mut self) -> Result<Text<'a>, Error> {
        let (at, message) = (self.0.position(), self.message()?);
        let mut text = Text::default();
        fields(message, &mut |number, field| {
            if let (1, Field::Bytes(bytes)) = (number, field) {
                text = Text::utf8(bytes);
            }
            Ok(())
        })
        .map_err(|error| error.flaw.at(at))?;
        Ok(text)
    }

    pub(super) fn attachments(&mut self, each: Each<'_, 'a>) -> Result<(), Error> {
        let (at, message) = (self.0.position(), self.message()?);
        fields(message, &mut |number, field| {
            let (1 | 2, Field::Bytes(entry)) = (number, field) else {
                return Ok(());
            };
            let (mut key, mut value) = (Text::default(), Text::default());
            fields(entry, &mut |number, field| {
                match (number, field) {
                    (1, Field::Bytes(bytes)) => key = Text::utf8(bytes),
                    (2, Field::Bytes(bytes)) => value = Text::utf8(bytes),
                    _ => {}
                }
                Ok(())
            })
            .map_err(|error| error.flaw)?;
            // The second map holds messages, which readers so far ignore.
            each.entry(
                key,
                if number == 1 {
                    Scalar::Text(value)
                } else {
                    Scalar::Other
                },
            )
        })
        .map_err(|error| error.flaw.at(at))
    }
}

/// Calls `each` with every field of a message, in the order of the wire.
fn fields<'a>(
    message: &'a [u8],
    each: &mut dyn FnMut(u64, Field<'a>) -> Result<(), Flaw>,
) -> Result<(), Error> {
    let mut cursor = Cursor::new(message, 0);
    while cursor.peek().is_some() {
        let at = cursor.position();
        let tag = cursor.varint()?;
        let field = match tag & 7 {
            0 => {
                cursor.varint()?;
                Field::Other
            }
            1 => {
                cursor.take(8)?;
                Field::Other
            }
            2 => Field::Bytes(cursor.delimited()?),
            5 => {
                cursor.take(4)?;
                Field::Other
            }
            _ => return Err(Flaw::Not("field").at(at)),
        };
        each(tag >> 3, field).map_err(|flaw| flaw.at(at))?;
    }
    Ok(())
}

/// Appends a `StringValue` behind its length.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut message = Vec::new();
    if !text.is_empty() {
        message.push(0x0a);
        write_varint(&mut message, text.len() as u64);
        message.extend_from_slice(text.as_bytes());
    }
    write_varint(out, message.len() as u64);
    out.extend(message);
}

impl<'a> Text<'a> {
    /// A text in UTF-8.
    pub(super) fn utf8(bytes: &'a [u8]) -> Self {
        let ascii = bytes.is_ascii();
        Self::new(bytes, if ascii { Coding::Ascii } else { Coding::Utf8 })
    }
}
