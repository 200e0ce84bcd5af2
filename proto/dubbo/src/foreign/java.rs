//! Java's own object stream (3, 4, 7): strings stand in blocks of data, each with its length, and
//! may run over from one into the next. Objects cannot be read without the stream's grammar.
//!
//! Source: apache/dubbo-spi-extensions, `JavaObjectOutput`, `NativeJavaObjectOutput`; Java Object
//! Serialization Specification, section 6.

use super::Cursor;
use crate::{
    error::{Error, Flaw},
    text::{Coding, Text, unit},
};

#[derive(Debug)]
pub(crate) struct Java<'a> {
    pub(super) cursor: Cursor<'a>,
    lengths: Lengths,
    /// Bytes left in the block.
    left: usize,
}

/// Whether a string has its length, or -1 for null, in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lengths {
    /// Four bytes.
    Before,
    /// No, so there is no null.
    None,
}

impl<'a> Java<'a> {
    pub(super) const fn new(cursor: Cursor<'a>, lengths: Lengths) -> Self {
        Self {
            cursor,
            lengths,
            left: 0,
        }
    }

    pub(super) fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        if self.cursor.position() == 0 && self.cursor.array()? != MAGIC {
            return Err(Flaw::Not("object stream").at(0));
        }
        if self.lengths == Lengths::Before {
            let length =
                i32::from_be_bytes([self.byte()?, self.byte()?, self.byte()?, self.byte()?]);
            if length < 0 {
                return Ok(None);
            }
        }
        let len = usize::from(u16::from_be_bytes([self.byte()?, self.byte()?]));
        if len <= self.left {
            self.left -= len;
            let at = self.cursor.position();
            let bytes = self.cursor.take(len)?;
            let ascii = bytes.is_ascii();
            let mut rest = bytes;
            while !rest.is_empty() {
                (_, rest) = unit(rest).map_err(|_| Flaw::Text.at(at))?;
            }
            let coding = if ascii { Coding::Ascii } else { Coding::Cesu8 };
            return Ok(Some(Text::new(bytes, coding)));
        }
        self.text_over_blocks(len).map(Some)
    }

    /// A string that runs over into another block.
    fn text_over_blocks(&mut self, len: usize) -> Result<Text<'a>, Error> {
        let (from, at) = (self.cursor.rest(), self.cursor.position());
        // A string has at most 65,535 bytes, and this block does not hold it.
        let left = u16::try_from(self.left).unwrap_or(u16::MAX);
        for _ in 0..len {
            self.byte()?;
        }
        let bytes = from.get(..self.cursor.position() - at).unwrap_or_default();
        Ok(Text::new(bytes, Coding::Blocks { left }))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        while self.left == 0 {
            let (at, rest) = (self.cursor.position(), self.cursor.rest());
            let (len, after) = block(rest).ok_or_else(|| match rest {
                [] => Flaw::Truncated.at(at),
                _ => Flaw::Not("block of data").at(at),
            })?;
            self.cursor.take(rest.len() - after.len())?;
            self.left = len;
        }
        self.left -= 1;
        self.cursor.byte()
    }
}

/// Reads the head of a block: its length, and what follows.
pub(crate) fn block(input: &[u8]) -> Option<(usize, &[u8])> {
    match input {
        [0x77, len, rest @ ..] => Some((usize::from(*len), rest)),
        [0x7a, a, b, c, d, rest @ ..] => {
            let len = i32::from_be_bytes([*a, *b, *c, *d]);
            Some((usize::try_from(len).ok()?, rest))
        }
        _ => None,
    }
}

/// Appends a stream of one string, cut where it would not fit.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str, lengths: Lengths) {
    let (mut bytes, mut units) = (Vec::new(), 0u32);
    for unit in text.encode_utf16() {
        if bytes.len() > usize::from(u16::MAX) - 3 {
            break;
        }
        write_unit(&mut bytes, unit);
        units += 1;
    }
    out.extend(MAGIC);
    let mut block = Vec::new();
    if lengths == Lengths::Before {
        block.extend(units.to_be_bytes());
    }
    block.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    block.extend(bytes);
    match u8::try_from(block.len()) {
        Ok(len) => out.extend([0x77, len]),
        Err(_) => {
            out.push(0x7a);
            out.extend(u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    out.extend(block);
}

/// Modified UTF-8: as Hessian2 has it, but for U+0000.
fn write_unit(out: &mut Vec<u8>, unit: u16) {
    match unit {
        0 => out.extend([0xc0, 0x80]),
        _ => crate::text::write_unit(out, unit),
    }
}

/// What a stream begins with: magic and version.
const MAGIC: [u8; 4] = [0xac, 0xed, 0, 5];
