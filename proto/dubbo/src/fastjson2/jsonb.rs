//! JSONB, the values inside of items: strings, numbers and maps are read, the rest is walked over.
//!
//! Source: alibaba/fastjson2, `JSONB.Constants`, `JSONWriterJSONB`.

use super::{Item, Symbols};
use crate::{
    attachments::Scalar,
    error::{Error, Flaw},
    hessian2::Limits,
    text::{Coding, Text},
};

/// Reads the values of one item.
pub(super) struct Jsonb<'a, 's> {
    item: Item<'a>,
    rest: &'a [u8],
    limits: &'s Limits,
    symbols: &'s mut Symbols,
}

/// What is due in an open container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// So many values.
    Values(u32),
    /// A key, or the end of the map.
    Entries,
    /// The value of the key before.
    Value,
}

/// A whole value, or the start of a container.
pub(super) enum Step<'a> {
    Scalar(Scalar<'a>),
    Open(Open),
}

impl<'a, 's> Jsonb<'a, 's> {
    #[inline]
    pub(super) fn new(item: Item<'a>, limits: &'s Limits, symbols: &'s mut Symbols) -> Self {
        symbols.names.clear();
        Self {
            item,
            rest: item.bytes,
            limits,
            symbols,
        }
    }

    pub(super) fn position(&self) -> usize {
        self.item.offset + self.item.bytes.len() - self.rest.len()
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Flaw::Trailing.at(self.position()))
    }

    /// The next value; of a container only that it is one.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Scalar<'a>, Error> {
        match self.step()? {
            Step::Scalar(scalar) => Ok(scalar),
            Step::Open(open) => {
                self.skip(open)?;
                Ok(Scalar::Other)
            }
        }
    }

    /// Walks to the end of the container that was just opened.
    fn skip(&mut self, mut open: Open) -> Result<(), Error> {
        self.symbols.stack.clear();
        loop {
            let ends = match &mut open {
                Open::Values(0) => true,
                Open::Values(left) => {
                    *left -= 1;
                    false
                }
                Open::Entries if self.map_ends() => true,
                Open::Entries => {
                    open = Open::Value;
                    false
                }
                Open::Value => {
                    open = Open::Entries;
                    false
                }
            };
            if ends {
                match self.symbols.stack.pop() {
                    Some(around) => open = around,
                    None => return Ok(()),
                }
            } else if let Step::Open(inner) = self.step()? {
                if self.symbols.stack.len() + 1 >= self.limits.depth {
                    return Err(self.flaw_before(Flaw::Limit("levels")));
                }
                self.symbols.stack.push(open);
                open = inner;
            }
        }
    }

    /// Takes the end of a map, if it is next.
    pub(super) fn map_ends(&mut self) -> bool {
        let Some((0xa5, rest)) = self.rest.split_first() else {
            return false;
        };
        self.rest = rest;
        true
    }

    pub(super) fn step(&mut self) -> Result<Step<'a>, Error> {
        let mut tag = self.byte()?;
        while tag == 0x92 {
            self.type_mark()?;
            tag = self.byte()?;
        }
        let scalar = match tag {
            0x49..=0x7e => Scalar::Text(self.text(tag)?),
            0x7f => Scalar::Text(self.symbol()?),
            0xaf => Scalar::Null,
            0xb0 | 0xb1 => Scalar::Bool(tag == 0xb1),
            0x00..=0x48 | 0xb4 | 0xb6 | 0xba | 0xbc..=0xff => self.number(tag)?,
            0xa6 => return Ok(Step::Open(Open::Entries)),
            0x94..=0xa3 => return Ok(Step::Open(Open::Values(u32::from(tag - 0x94)))),
            0xa4 => return Ok(Step::Open(Open::Values(self.length()?))),
            _ => {
                self.other(tag)?;
                Scalar::Other
            }
        };
        Ok(Step::Scalar(scalar))
    }

    /// Walks over a value that nobody reads.
    fn other(&mut self, tag: u8) -> Result<(), Error> {
        match tag {
            0x90 => self.int().map(|_| ()),
            0x91 | 0xbb => {
                let len = self.length()?;
                self.take(len as usize).map(|_| ())
            }
            0x93 => {
                let tag = self.byte()?;
                self.text(tag).map(|_| ())
            }
            0xa7 => {
                self.take(3)?;
                self.int().map(|_| ())
            }
            0xa8 => {
                self.take(7)?;
                self.int().map(|_| ())
            }
            0xaa => {
                self.take(7)?;
                self.int()?;
                let tag = self.byte()?;
                self.text(tag).map(|_| ())
            }
            0xa9 | 0xac | 0xad | 0xb7 => self.take(4).map(|_| ()),
            0xab | 0xb5 => self.take(8).map(|_| ()),
            0xae => {
                self.nested_number()?;
                self.int().map(|_| ())
            }
            0xb2 | 0xb3 => Ok(()),
            0xb8 => {
                self.int()?;
                match self.byte()? {
                    0xbb => self.other(0xbb),
                    tag => self.number(tag).map(|_| ()),
                }
            }
            0xb9 => self.nested_number(),
            _ => Err(self.flaw_before(Flaw::Tag(tag))),
        }
    }

    /// A number whose tag was read. Doubles and floats that are written as whole numbers, and big
    /// integers that fit, count as whole numbers.
    fn number(&mut self, tag: u8) -> Result<Scalar<'a>, Error> {
        let value = match tag {
            0xb4 | 0xb6 | 0xba => {
                self.nested_number()?;
                return Ok(Scalar::Other);
            }
            0xbc => i64::from(i16::from_be_bytes(self.array()?)),
            0xbd => i64::from(i8::from_be_bytes(self.array()?)),
            0xbe => i64::from_be_bytes(self.array()?),
            0xbf => i64::from(i32::from_be_bytes(self.array()?)),
            0xc0..=0xc7 => {
                let low = u16::from_be_bytes(self.array()?);
                (i64::from(tag) - 0xc4) << 16 | i64::from(low)
            }
            0xc8..=0xd7 => {
                let [low] = self.array()?;
                (i64::from(tag) - 0xd0) << 8 | i64::from(low)
            }
            0xd8..=0xef => i64::from(tag) - 0xe0,
            _ => self.int_after(tag)?.into(),
        };
        Ok(Scalar::Int(value))
    }

    fn nested_number(&mut self) -> Result<(), Error> {
        match self.byte()? {
            tag @ (0x00..=0x48 | 0xbc..=0xff) => self.number(tag).map(|_| ()),
            _ => Err(self.flaw_before(Flaw::Not("number"))),
        }
    }

    /// A type name with its number, or the number alone.
    fn type_mark(&mut self) -> Result<(), Error> {
        let at = self.item.bytes.len() - self.rest.len();
        let tag = self.byte()?;
        if (0x49..=0x7e).contains(&tag) {
            self.text(tag)?;
            return self.define(at);
        }
        self.int_after(tag).map(|_| ())
    }

    /// A name with its number, which it has from now on, or the number alone.
    fn symbol(&mut self) -> Result<Text<'a>, Error> {
        let at = self.item.bytes.len() - self.rest.len();
        let tag = self.byte()?;
        if (0x49..=0x7e).contains(&tag) {
            let name = self.text(tag)?;
            self.define(at)?;
            return Ok(name);
        }
        let number = self.int_after(tag)?;
        let known = usize::try_from(number)
            .ok()
            .and_then(|number| self.symbols.names.get(number));
        let name = known.copied().flatten().and_then(|at| {
            let (tag, rest) = self.item.bytes.get(at..)?.split_first()?;
            text(*tag, rest).ok()
        });
        let (name, _) = name.ok_or_else(|| self.flaw_before(Flaw::Index("symbol")))?;
        Ok(name)
    }

    /// Gives the name at `at` the number that follows. Writers count from 0.
    fn define(&mut self, at: usize) -> Result<(), Error> {
        let number = self.int()?;
        let number = usize::try_from(number)
            .ok()
            .filter(|number| *number < self.limits.fields);
        let number = number.ok_or_else(|| self.flaw_before(Flaw::Limit("symbols")))?;
        let names = &mut self.symbols.names;
        if names.len() <= number {
            names.resize(number + 1, None);
        }
        if let Some(name) = names.get_mut(number) {
            *name = Some(at);
        }
        Ok(())
    }

    fn length(&mut self) -> Result<u32, Error> {
        let length = self.int()?;
        let length = u32::try_from(length).map_err(|_| self.flaw_before(Flaw::Negative))?;
        if length as usize > self.rest.len() {
            return Err(self.flaw_before(Flaw::TooLong));
        }
        Ok(length)
    }

    fn int(&mut self) -> Result<i32, Error> {
        let tag = self.byte()?;
        self.int_after(tag)
    }

    fn int_after(&mut self, tag: u8) -> Result<i32, Error> {
        let (value, rest) = int(tag, self.rest).map_err(|flaw| self.flaw_before(flaw))?;
        self.rest = rest;
        Ok(value)
    }

    fn text(&mut self, tag: u8) -> Result<Text<'a>, Error> {
        let (text, rest) = text(tag, self.rest).map_err(|flaw| self.flaw_before(flaw))?;
        self.rest = rest;
        Ok(text)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let cut = Flaw::Truncated.at(self.item.offset + self.item.bytes.len());
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(cut)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let cut = Flaw::Truncated.at(self.item.offset + self.item.bytes.len());
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(cut)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[cold]
    fn flaw_before(&self, flaw: Flaw) -> Error {
        flaw.at(self.position().saturating_sub(1))
    }
}

/// The rest of an int whose tag was read.
fn int(tag: u8, rest: &[u8]) -> Result<(i32, &[u8]), Flaw> {
    match tag {
        0x00..=0x2f => Ok((tag.into(), rest)),
        0xf0..=0xff => Ok((i32::from(tag) - 0x100, rest)),
        0x30..=0x3f => {
            let (low, rest) = rest.split_first().ok_or(Flaw::Truncated)?;
            Ok(((i32::from(tag) - 0x38) << 8 | i32::from(*low), rest))
        }
        0x40..=0x47 => {
            let (low, rest) = rest.split_first_chunk().ok_or(Flaw::Truncated)?;
            let low = i32::from(u16::from_be_bytes(*low));
            Ok(((i32::from(tag) - 0x44) << 16 | low, rest))
        }
        0x48 => {
            let (value, rest) = rest.split_first_chunk().ok_or(Flaw::Truncated)?;
            Ok((i32::from_be_bytes(*value), rest))
        }
        _ => Err(Flaw::Not("int")),
    }
}

/// The rest of a string whose tag was read.
pub(super) fn text(tag: u8, rest: &[u8]) -> Result<(Text<'_>, &[u8]), Flaw> {
    let (len, rest) = match tag {
        0x49..=0x78 => (usize::from(tag - 0x49), rest),
        0x79..=0x7e => {
            let (tag, rest) = rest.split_first().ok_or(Flaw::Truncated)?;
            let (len, rest) = int(*tag, rest)?;
            (usize::try_from(len).map_err(|_| Flaw::Negative)?, rest)
        }
        _ => return Err(Flaw::Not("string")),
    };
    let (mut bytes, rest) = rest.split_at_checked(len).ok_or(Flaw::TooLong)?;
    let coding = match tag {
        _ if tag <= 0x7a && bytes.is_ascii() => Coding::Ascii,
        0x7a => Coding::Utf8,
        0x7b => {
            let mark = bytes.split_first_chunk();
            bytes = mark.map_or(bytes, |(_, after)| after);
            match mark {
                Some(([0xff, 0xfe], _)) => Coding::Utf16Le,
                Some(([0xfe, 0xff], _)) | None => Coding::Utf16Be,
                Some(_) => return Err(Flaw::Text),
            }
        }
        0x7c => Coding::Utf16Le,
        0x7d => Coding::Utf16Be,
        0x7e => Coding::Gb18030,
        _ => Coding::Latin1,
    };
    if matches!(coding, Coding::Utf16Le | Coding::Utf16Be) && bytes.len() % 2 != 0 {
        return Err(Flaw::Text);
    }
    Ok((Text::new(bytes, coding), rest))
}
