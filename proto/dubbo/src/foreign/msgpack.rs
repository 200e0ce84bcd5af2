//! MessagePack (27): values one after another, as Jackson writes them.
//!
//! Source: apache/dubbo-spi-extensions, `MsgpackObjectOutput`; the MessagePack specification.

use super::Cursor;
use crate::{
    attachments::Scalar,
    body::Each,
    error::{Error, Flaw},
    text::Text,
};

#[derive(Debug)]
pub(crate) struct MsgPack<'a>(pub(super) Cursor<'a>);

/// A value, or the start of a container.
enum Token<'a> {
    Scalar(Scalar<'a>),
    /// So many pairs.
    Map(u64),
    /// So many values.
    Array(u64),
}

impl<'a> MsgPack<'a> {
    pub(super) fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        let at = self.0.position();
        match self.token()? {
            Token::Scalar(Scalar::Text(text)) => Ok(Some(text)),
            Token::Scalar(Scalar::Null) => Ok(None),
            _ => Err(Flaw::Not("string").at(at)),
        }
    }

    pub(super) fn skip(&mut self) -> Result<(), Error> {
        self.value().map(|_| ())
    }

    pub(super) fn attachments(&mut self, each: Each<'_, 'a>) -> Result<(), Error> {
        let at = self.0.position();
        let pairs = match self.token()? {
            Token::Map(pairs) => pairs,
            Token::Scalar(Scalar::Null) => return Ok(()),
            _ => return Err(Flaw::Not("map").at(at)),
        };
        for _ in 0..pairs {
            let at = self.0.position();
            let (key, value) = (self.value()?, self.value()?);
            if let Scalar::Text(key) = key {
                each.entry(key, value).map_err(|flaw| flaw.at(at))?;
            }
        }
        Ok(())
    }

    /// The next value; of a container only that it is one.
    ///
    /// Containers say how much is in them, so a count of what is due is all there is to keep.
    fn value(&mut self) -> Result<Scalar<'a>, Error> {
        let mut due = match self.token()? {
            Token::Scalar(scalar) => return Ok(scalar),
            Token::Map(pairs) => pairs * 2,
            Token::Array(values) => values,
        };
        while due > 0 {
            // Each value that is due takes at least a byte.
            if due > self.0.rest().len() as u64 {
                return Err(Flaw::TooLong.at(self.0.position()));
            }
            due -= 1;
            match self.token()? {
                Token::Scalar(_) => {}
                Token::Map(pairs) => due += pairs * 2,
                Token::Array(values) => due += values,
            }
        }
        Ok(Scalar::Other)
    }

    fn token(&mut self) -> Result<Token<'a>, Error> {
        let at = self.0.position();
        let scalar = match self.0.byte()? {
            tag @ 0x00..=0x7f => Scalar::Int(tag.into()),
            tag @ 0x80..=0x8f => return Ok(Token::Map(u64::from(tag & 0xf))),
            tag @ 0x90..=0x9f => return Ok(Token::Array(u64::from(tag & 0xf))),
            tag @ 0xa0..=0xbf => self.string((tag & 0x1f).into())?,
            0xc0 => Scalar::Null,
            0xc1 => return Err(Flaw::Tag(0xc1).at(at)),
            tag @ (0xc2 | 0xc3) => Scalar::Bool(tag == 0xc3),
            tag @ 0xc4..=0xc6 => {
                let len = self.unsigned(tag - 0xc4)?;
                self.opaque(len)?
            }
            tag @ 0xc7..=0xc9 => {
                let len = self.unsigned(tag - 0xc7)?;
                self.opaque(len.saturating_add(1))?
            }
            0xca => self.opaque(4)?,
            0xcb => self.opaque(8)?,
            // Above the largest long it is nobody's number.
            tag @ 0xcc..=0xcf => {
                i64::try_from(self.unsigned(tag - 0xcc)?).map_or(Scalar::Other, Scalar::Int)
            }
            0xd0 => Scalar::Int(i8::from_be_bytes(self.0.array()?).into()),
            0xd1 => Scalar::Int(i16::from_be_bytes(self.0.array()?).into()),
            0xd2 => Scalar::Int(i32::from_be_bytes(self.0.array()?).into()),
            0xd3 => Scalar::Int(i64::from_be_bytes(self.0.array()?)),
            tag @ 0xd4..=0xd8 => self.opaque(1 + (1 << (tag - 0xd4)))?,
            tag @ 0xd9..=0xdb => {
                let len = self.unsigned(tag - 0xd9)?;
                self.string(len)?
            }
            tag @ (0xdc | 0xdd) => return Ok(Token::Array(self.unsigned(tag - 0xdb)?)),
            tag @ (0xde | 0xdf) => return Ok(Token::Map(self.unsigned(tag - 0xdd)?)),
            tag @ 0xe0..=0xff => Scalar::Int(i64::from(tag) - 0x100),
        };
        Ok(Token::Scalar(scalar))
    }

    /// A number of 1, 2, 4 or 8 bytes, for `size` 0 to 3.
    fn unsigned(&mut self, size: u8) -> Result<u64, Error> {
        Ok(match size {
            0 => self.0.byte()?.into(),
            1 => u16::from_be_bytes(self.0.array()?).into(),
            2 => u32::from_be_bytes(self.0.array()?).into(),
            _ => u64::from_be_bytes(self.0.array()?),
        })
    }

    fn string(&mut self, len: u64) -> Result<Scalar<'a>, Error> {
        let bytes = self.0.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(Scalar::Text(Text::utf8(bytes)))
    }

    fn opaque(&mut self, len: u64) -> Result<Scalar<'a>, Error> {
        self.0.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(Scalar::Other)
    }
}

/// Appends a string.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    let len = text.len();
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ 0..=31), _) => out.push(0xa0 | len),
        (Ok(len), _) => out.extend([0xd9, len]),
        (_, Ok(len)) => {
            out.push(0xda);
            out.extend(len.to_be_bytes());
        }
        _ => {
            out.push(0xdb);
            out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}
