//! Avro (11) and protostuff (12): a string is a length and UTF-8. What else there is cannot be
//! read without the classes.
//!
//! Source: apache/dubbo-spi-extensions, `AvroObjectOutput`, `ProtostuffObjectOutput`.

use super::{Cursor, cursor::write_varint};
use crate::{
    error::{Error, Flaw},
    text::Text,
};

#[derive(Debug)]
pub(crate) struct Plain<'a> {
    pub(super) cursor: Cursor<'a>,
    lengths: Lengths,
}

/// How lengths are written.
#[derive(Debug)]
enum Lengths {
    /// As a varint, 0, -1, 1, -2 ... in turn.
    ZigZag,
    /// In four bytes.
    Fixed,
}

impl<'a> Plain<'a> {
    pub(super) const fn avro(cursor: Cursor<'a>) -> Self {
        let lengths = Lengths::ZigZag;
        Self { cursor, lengths }
    }

    pub(super) const fn protostuff(cursor: Cursor<'a>) -> Self {
        let lengths = Lengths::Fixed;
        Self { cursor, lengths }
    }

    pub(super) fn text(&mut self) -> Result<Text<'a>, Error> {
        let at = self.cursor.position();
        let len = match self.lengths {
            Lengths::Fixed => self.cursor.length()?,
            Lengths::ZigZag => {
                let length = self.cursor.varint()?;
                if length & 1 == 1 {
                    return Err(Flaw::Negative.at(at));
                }
                usize::try_from(length >> 1).unwrap_or(usize::MAX)
            }
        };
        self.cursor.take(len).map(Text::utf8)
    }
}

/// Appends a string of avro.
pub(super) fn write_avro(out: &mut Vec<u8>, text: &str) {
    write_varint(out, (text.len() as u64) << 1);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a string of protostuff.
pub(super) fn write_protostuff(out: &mut Vec<u8>, text: &str) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
