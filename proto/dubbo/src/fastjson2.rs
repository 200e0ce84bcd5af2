//! fastjson2 (serialization 23): a body is a list of items, each a 4-byte length and one JSONB
//! value of exactly that many bytes. Arguments are passed over by their length.
//!
//! Symbols and references are local to an item. Read are strings, numbers and maps; everything
//! else is walked over.
//!
//! Source: apache/dubbo, `FastJson2ObjectOutput`; alibaba/fastjson2, `JSONB.Constants`.

use crate::{
    attachments::Scalar,
    error::{Error, Flaw},
    hessian2::Limits,
    text::{Coding, Text},
};

/// Cuts a body into its items.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    body: &'a [u8],
    at: usize,
}

/// One JSONB value, as it stands in its body.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    bytes: &'a [u8],
    /// Where it starts in the body.
    offset: usize,
}

/// Memory for the symbols of an item and the containers that are open in it.
#[derive(Debug, Default)]
pub struct Symbols {
    /// The number of each symbol, and where its name stands in the item.
    names: Vec<(i32, usize)>,
    stack: Vec<Open>,
}

impl<'a> Items<'a> {
    /// The items of a body.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    /// The items from the one on that starts at `offset`.
    #[must_use]
    pub const fn starting_at(body: &'a [u8], offset: usize) -> Self {
        Self { body, at: offset }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The next item, which must be there.
    ///
    /// # Errors
    /// [`Flaw::Truncated`], [`Flaw::Negative`] or [`Flaw::TooLong`].
    #[inline]
    pub fn item(&mut self) -> Result<Item<'a>, Error> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let cut = Flaw::Truncated.at(self.body.len());
        let (len, rest) = rest.split_first_chunk().ok_or(cut)?;
        let len =
            usize::try_from(i32::from_be_bytes(*len)).map_err(|_| Flaw::Negative.at(self.at))?;
        let bytes = rest.get(..len).ok_or_else(|| Flaw::TooLong.at(self.at))?;
        let offset = self.at + 4;
        self.at = offset + len;
        Ok(Item { bytes, offset })
    }
}

impl<'a> Item<'a> {
    /// The string that the item is; `None` for null.
    ///
    /// # Errors
    /// [`Flaw::Not`] for any other value, [`Flaw::Trailing`] if the item is longer.
    #[inline]
    pub fn text(self, limits: &Limits, symbols: &mut Symbols) -> Result<Option<Text<'a>>, Error> {
        match self.scalar(limits, symbols)? {
            Scalar::Text(text) => Ok(Some(text)),
            Scalar::Null => Ok(None),
            _ => Err(Flaw::Not("string").at(self.offset)),
        }
    }

    /// The whole number that the item is.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn int(self, limits: &Limits, symbols: &mut Symbols) -> Result<i64, Error> {
        match self.scalar(limits, symbols)? {
            Scalar::Int(value) => Ok(value),
            _ => Err(Flaw::Not("int").at(self.offset)),
        }
    }

    /// The class that the value says it is of.
    #[must_use]
    pub fn type_name(self) -> Option<Text<'a>> {
        let (0x92, rest) = self.bytes.split_first()? else {
            return None;
        };
        let (tag, rest) = rest.split_first()?;
        text(*tag, rest).ok().map(|(name, _)| name)
    }

    fn scalar(self, limits: &Limits, symbols: &mut Symbols) -> Result<Scalar<'a>, Error> {
        let mut jsonb = Jsonb::new(self, limits, symbols);
        let scalar = jsonb.value()?;
        jsonb.end()?;
        Ok(scalar)
    }
}

/// Reads an item that is a map or null, entry by entry.
pub(crate) fn attachments<'a>(
    item: Item<'a>,
    limits: &Limits,
    symbols: &mut Symbols,
    each: &mut impl FnMut(Text<'a>, Scalar<'a>) -> Result<(), Flaw>,
) -> Result<(), Error> {
    let mut jsonb = Jsonb::new(item, limits, symbols);
    match jsonb.step()? {
        Step::Scalar(Scalar::Null) => return jsonb.end(),
        Step::Open(Open::Entries) => {}
        _ => return Err(Flaw::Not("map").at(item.offset)),
    }
    let mut left = limits.attachments;
    loop {
        let offset = jsonb.position();
        if jsonb.map_ends() {
            return jsonb.end();
        }
        left = left
            .checked_sub(1)
            .ok_or_else(|| Flaw::Limit("attachments").at(offset))?;
        let key = jsonb.value()?;
        let value = jsonb.value()?;
        if let Scalar::Text(key) = key {
            if key.wire_len() > limits.key_len {
                return Err(Flaw::Limit("bytes of a key").at(offset));
            }
            each(key, value).map_err(|flaw| flaw.at(offset))?;
        }
    }
}

/// Appends a string item.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    item(out, |out| write_string(out, text));
}

/// Appends an item that `write` fills.
pub(crate) fn item(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    write(out);
    let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&len.to_be_bytes());
    }
}

/// Appends a string: ASCII in its own form, others in UTF-8.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(len @ 0..=47) if text.is_ascii() => out.push(0x49 + len),
        _ => {
            out.push(if text.is_ascii() { 0x79 } else { 0x7a });
            write_int(out, i32::try_from(text.len()).unwrap_or(i32::MAX));
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends an int in its shortest form.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i32) {
    let [high, b1, b2, low] = value.to_be_bytes();
    match value {
        -0x10..=0x2f => out.push(low),
        -0x800..=0x7ff => out.extend([b2.wrapping_add(0x38), low]),
        -0x40000..=0x3ffff => out.extend([b1.wrapping_add(0x44), b2, low]),
        _ => out.extend([0x48, high, b1, b2, low]),
    }
}

/// Reads the values of one item.
struct Jsonb<'a, 's> {
    item: Item<'a>,
    rest: &'a [u8],
    limits: &'s Limits,
    symbols: &'s mut Symbols,
}

/// What is due in an open container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// So many values.
    Values(u32),
    /// A key, or the end of the map.
    Entries,
    /// The value of the key before.
    Value,
}

/// A whole value, or the start of a container.
enum Step<'a> {
    Scalar(Scalar<'a>),
    Open(Open),
}

impl<'a, 's> Jsonb<'a, 's> {
    #[inline]
    fn new(item: Item<'a>, limits: &'s Limits, symbols: &'s mut Symbols) -> Self {
        symbols.names.clear();
        Self {
            item,
            rest: item.bytes,
            limits,
            symbols,
        }
    }

    fn position(&self) -> usize {
        self.item.offset + self.item.bytes.len() - self.rest.len()
    }

    fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Flaw::Trailing.at(self.position()))
    }

    /// The next value; of a container only that it is one.
    #[inline]
    fn value(&mut self) -> Result<Scalar<'a>, Error> {
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
    fn map_ends(&mut self) -> bool {
        let Some((0xa5, rest)) = self.rest.split_first() else {
            return false;
        };
        self.rest = rest;
        true
    }

    fn step(&mut self) -> Result<Step<'a>, Error> {
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
        let known = self
            .symbols
            .names
            .iter()
            .rfind(|(known, _)| *known == number);
        let name = known.and_then(|(_, at)| {
            let (tag, rest) = self.item.bytes.get(*at..)?.split_first()?;
            text(*tag, rest).ok()
        });
        let (name, _) = name.ok_or_else(|| self.flaw_before(Flaw::Index("symbol")))?;
        Ok(name)
    }

    fn define(&mut self, at: usize) -> Result<(), Error> {
        let number = self.int()?;
        if self.symbols.names.len() >= self.limits.fields {
            return Err(self.flaw_before(Flaw::Limit("symbols")));
        }
        self.symbols.names.push((number, at));
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
fn text(tag: u8, rest: &[u8]) -> Result<(Text<'_>, &[u8]), Flaw> {
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
