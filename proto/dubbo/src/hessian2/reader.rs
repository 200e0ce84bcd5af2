//! A pull reader: the tokens of a body one by one, borrowed from it, or walked over.

use super::{
    Limits,
    cursor::Cursor,
    parts::{Binary, binary, int, int_after, text},
    tables::{Definition, Open, Tables},
};
use crate::{
    error::{Error, Flaw},
    text::{Chunk, Text},
};

/// Reads one body from its front to its end.
///
/// Whatever it returns was checked: lengths against the bytes left, indexes against the tables,
/// nesting and counts against the limits. After an error it must not be used any more.
#[derive(Debug)]
pub struct Reader<'a, 's> {
    input: &'a [u8],
    at: Cursor<'a>,
    limits: &'s Limits,
    tables: &'s mut Tables,
    open: Open,
}

/// The next thing in a body. Every `List`, `Map` and `Object` is closed by an `End`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A 32-bit integer: Java's byte, short and int.
    Int(i32),
    /// A 64-bit integer.
    Long(i64),
    /// A double: Java's float and double.
    Double(f64),
    /// Milliseconds since 1970 UTC.
    Date(i64),
    /// A string.
    Text(Text<'a>),
    /// Bytes.
    Binary(Binary<'a>),
    /// A list starts.
    List {
        /// Its reference slot.
        slot: u32,
        /// Its type, for [`Reader::type_name`].
        type_index: Option<u32>,
    },
    /// A map starts: keys and values in turn.
    Map {
        /// Its reference slot.
        slot: u32,
        /// Its type, for [`Reader::type_name`].
        type_index: Option<u32>,
    },
    /// An object starts: one value per field of its class.
    Object {
        /// Its reference slot.
        slot: u32,
        /// Its class, for [`Reader::class`].
        class_index: u32,
    },
    /// A list, map or object that started earlier in the body.
    Reference(u32),
    /// The container that is open ends.
    End,
}

/// A class as it was defined in the body.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Its name.
    pub name: Text<'a>,
    names: &'a [u8],
    fields: u32,
}

impl<'a, 's> Reader<'a, 's> {
    /// A reader at the front of `input`, with empty tables.
    #[inline]
    pub fn new(input: &'a [u8], limits: &'s Limits, tables: &'s mut Tables) -> Self {
        tables.clear();
        Self {
            input,
            at: Cursor::new(input),
            limits,
            tables,
            open: Open::Body,
        }
    }

    /// Starts again `offset` bytes into the body, with empty tables.
    pub fn restart(&mut self, offset: usize) {
        self.tables.clear();
        self.at = Cursor::new(self.input.get(offset..).unwrap_or_default());
        self.open = Open::Body;
    }

    /// Bytes read so far.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.input.len() - self.at.rest.len()
    }

    /// The limits that it holds to.
    #[must_use]
    pub fn limits(&self) -> &'s Limits {
        self.limits
    }

    /// Lists, maps and objects so far: the slot of the next one.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.tables.slots
    }

    /// The next token.
    ///
    /// # Errors
    /// Any [`Flaw`], with its offset.
    #[inline]
    pub fn token(&mut self) -> Result<Token<'a>, Error> {
        match self.plain_text() {
            Some(text) => Ok(Token::Text(text)),
            None => self.any(),
        }
    }

    /// Walks over the next value, whatever it contains, building nothing.
    ///
    /// # Errors
    /// As [`Self::token`].
    #[inline]
    pub fn skip(&mut self) -> Result<(), Error> {
        if self.plain_text().is_some() {
            return Ok(());
        }
        let offset = self.position();
        match self.any()? {
            Token::End => Err(Flaw::Not("value").at(offset)),
            token => self.skip_rest(token),
        }
    }

    /// Walks to the end of what `token`, just read, has started; nothing if it is a whole value.
    ///
    /// # Errors
    /// As [`Self::token`].
    #[inline]
    pub fn skip_rest(&mut self, token: Token<'a>) -> Result<(), Error> {
        match token {
            Token::List { .. } | Token::Map { .. } | Token::Object { .. } => {
                let around = self.tables.stack.len();
                while self.tables.stack.len() >= around {
                    self.token()?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Walks to the list, map or object whose slot is `slot`, and returns its token.
    ///
    /// # Errors
    /// As [`Self::token`]; [`Flaw::Reference`] if the body does not start it before `end`.
    #[cold]
    pub fn seek(&mut self, slot: u32, end: usize) -> Result<Token<'a>, Error> {
        while self.position() < end {
            let token = self.token()?;
            match token {
                Token::List { slot: at, .. }
                | Token::Map { slot: at, .. }
                | Token::Object { slot: at, .. }
                    if at == slot =>
                {
                    return Ok(token);
                }
                _ => {}
            }
        }
        Err(Flaw::Reference.at(end))
    }

    /// The type name with this index; `None` if it was not read yet.
    #[must_use]
    pub fn type_name(&self, index: u32) -> Option<Text<'a>> {
        let at = self.tables.types.get(index as usize)?;
        self.text_at(*at).map(|(name, _)| name)
    }

    /// The class with this index; `None` if it was not read yet.
    #[must_use]
    pub fn class(&self, index: u32) -> Option<Class<'a>> {
        let Definition { at, fields } = *self.tables.classes.get(index as usize)?;
        let (name, rest) = self.text_at(at)?;
        let (_, names) = int(rest).ok()?;
        Some(Class {
            name,
            names,
            fields,
        })
    }

    fn text_at(&self, at: usize) -> Option<(Text<'a>, &'a [u8])> {
        text(self.input.get(at..)?).ok()
    }

    /// The next value, if it is a plain string. Otherwise nothing is read.
    #[inline(always)]
    fn plain_text(&mut self) -> Option<Text<'a>> {
        if self.open == Open::Values(0) {
            return None;
        }
        let text = self.at.plain_text()?;
        self.take_value();
        Some(text)
    }

    /// The next `N` values, outside of containers, if all of them are plain strings. Otherwise
    /// nothing is read.
    #[inline(always)]
    pub(crate) fn plain_texts<const N: usize>(&mut self) -> Option<[Text<'a>; N]> {
        debug_assert_eq!(self.open, Open::Body, "any number of values is due");
        let (mut texts, mut at) = ([Text::default(); N], self.at);
        for text in &mut texts {
            *text = at.plain_text()?;
        }
        self.at = at;
        Some(texts)
    }

    /// The next entry of the map that is open, if key and value are plain strings. Otherwise
    /// nothing is read.
    #[inline(always)]
    pub(crate) fn plain_entry(&mut self) -> Option<(Text<'a>, Text<'a>)> {
        debug_assert_eq!(self.open, Open::Key, "a key is due");
        let mut at = self.at;
        let entry = (at.plain_text()?, at.plain_text()?);
        self.at = at;
        Some(entry)
    }

    /// Opens the map that is next, outside of containers, if it has no type. Otherwise nothing is
    /// read.
    #[inline(always)]
    pub(crate) fn map_starts(&mut self) -> Result<bool, Error> {
        debug_assert_eq!(self.open, Open::Body, "any number of values is due");
        let Some((b'H', rest)) = self.at.rest.split_first() else {
            return Ok(false);
        };
        self.at.rest = rest;
        self.open(Open::Key).map(|_| true)
    }

    /// Closes the map that is open, if its end is next. Otherwise nothing is read.
    #[inline(always)]
    pub(crate) fn map_ends(&mut self) -> bool {
        debug_assert_eq!(self.open, Open::Key, "a key is due");
        let Some((b'Z', rest)) = self.at.rest.split_first() else {
            return false;
        };
        self.at.rest = rest;
        self.close();
        true
    }

    /// Counts a value that starts, which is due.
    #[inline(always)]
    fn take_value(&mut self) {
        match &mut self.open {
            Open::Body | Open::Until => {}
            Open::Values(left) => *left = left.saturating_sub(1),
            Open::Key => self.open = Open::Value,
            Open::Value => self.open = Open::Key,
        }
    }

    #[inline(never)]
    fn any(&mut self) -> Result<Token<'a>, Error> {
        if self.open == Open::Values(0) {
            return Ok(self.close());
        }
        let mut tag = self.byte()?;
        if tag == b'Z' {
            return match self.open {
                Open::Until | Open::Key => Ok(self.close()),
                Open::Value => Err(self.flaw_before(Flaw::OddMap)),
                Open::Body | Open::Values(_) => Err(self.flaw_before(Flaw::Tag(tag))),
            };
        }
        // Definitions are no values: any number of them may stand before one.
        while tag == b'C' {
            self.define()?;
            tag = self.byte()?;
        }
        self.take_value();
        self.value(tag)
    }

    fn value(&mut self, tag: u8) -> Result<Token<'a>, Error> {
        Ok(match tag {
            b'N' => Token::Null,
            b'T' => Token::Bool(true),
            b'F' => Token::Bool(false),
            0x80..=0xd7 | b'I' => Token::Int(self.int(tag)?),
            0xd8..=0xff | 0x38..=0x3f | b'Y' | b'L' => Token::Long(self.long(tag)?),
            0x5b..=0x5f | b'D' => Token::Double(self.double(tag)?),
            0x4a => Token::Date(i64::from_be_bytes(self.array()?)),
            0x4b => Token::Date(i64::from(i32::from_be_bytes(self.array()?)) * 60_000),
            tag if Chunk::starts(tag) => Token::Text(self.any_text()?),
            0x20..=0x2f | 0x34..=0x37 | b'A' | b'B' => Token::Binary(self.binary()?),
            b'Q' => Token::Reference(self.reference()?),
            0x55..=0x58 | 0x70..=0x7f => self.list(tag)?,
            b'H' => self.map(None)?,
            b'M' => {
                let type_index = self.type_index()?;
                self.map(Some(type_index))?
            }
            0x60..=0x6f => self.object(i32::from(tag) - 0x60)?,
            b'O' => {
                let index = self.length_int()?;
                self.object(index)?
            }
            _ => return Err(self.flaw_before(Flaw::Tag(tag))),
        })
    }

    fn list(&mut self, tag: u8) -> Result<Token<'a>, Error> {
        let typed = matches!(tag, 0x55 | 0x56 | 0x70..=0x77);
        let type_index = if typed {
            Some(self.type_index()?)
        } else {
            None
        };
        let open = match tag {
            0x55 | 0x57 => Open::Until,
            0x56 | 0x58 => Open::Values(self.length()?),
            _ => Open::Values(u32::from(tag & 7)),
        };
        let slot = self.open(open)?;
        Ok(Token::List { slot, type_index })
    }

    fn map(&mut self, type_index: Option<u32>) -> Result<Token<'a>, Error> {
        let slot = self.open(Open::Key)?;
        Ok(Token::Map { slot, type_index })
    }

    fn object(&mut self, index: i32) -> Result<Token<'a>, Error> {
        let class_index = index.cast_unsigned();
        let Some(class) = self.tables.classes.get(class_index as usize) else {
            return Err(self.flaw_before(Flaw::Index("class")));
        };
        let slot = self.open(Open::Values(class.fields))?;
        Ok(Token::Object { slot, class_index })
    }

    /// Opens a container; its slot.
    #[inline]
    fn open(&mut self, open: Open) -> Result<u32, Error> {
        let slot = self.tables.slots;
        if self.tables.stack.len() >= self.limits.depth {
            return Err(self.flaw_before(Flaw::Limit("levels")));
        }
        if slot >= self.limits.slots {
            return Err(self.flaw_before(Flaw::Limit("containers")));
        }
        self.tables.slots += 1;
        self.tables.stack.push(self.open);
        self.open = open;
        Ok(slot)
    }

    #[inline]
    fn close(&mut self) -> Token<'a> {
        if let Some(around) = self.tables.stack.pop() {
            self.open = around;
        }
        Token::End
    }

    fn define(&mut self) -> Result<(), Error> {
        let at = self.position();
        self.literal_name()?;
        let fields = self.length()?;
        if fields as usize > self.limits.fields {
            return Err(self.flaw_before(Flaw::Limit("fields")));
        }
        for _ in 0..fields {
            self.literal_name()?;
        }
        if self.tables.classes.len() >= self.limits.classes {
            return Err(self.flaw_before(Flaw::Limit("class definitions")));
        }
        self.tables.classes.push(Definition { at, fields });
        Ok(())
    }

    /// The name of a class or field: a string, not one of the other things that Java turns
    /// into one.
    fn literal_name(&mut self) -> Result<(), Error> {
        let at = self.position();
        match self.byte()? {
            tag if Chunk::starts(tag) => self.name_at(at),
            _ => Err(Flaw::Not("string").at(at)),
        }
    }

    /// A type: a string, which gets the next index, or the index of an earlier one.
    fn type_index(&mut self) -> Result<u32, Error> {
        let at = self.position();
        let tag = self.byte()?;
        let known = u32::try_from(self.tables.types.len()).unwrap_or(u32::MAX);
        if Chunk::starts(tag) {
            self.name_at(at)?;
            if self.tables.types.len() >= self.limits.types {
                return Err(Flaw::Limit("type names").at(at));
            }
            self.tables.types.push(at);
            return Ok(known);
        }
        let index = self.int(tag)?.cast_unsigned();
        if index >= known {
            return Err(Flaw::Index("type").at(at));
        }
        Ok(index)
    }

    /// A name that starts at `at`, whose tag was read.
    fn name_at(&mut self, at: usize) -> Result<(), Error> {
        if self.any_text()?.wire_len() > self.limits.key_len {
            return Err(Flaw::Limit("bytes of a name").at(at));
        }
        Ok(())
    }

    fn reference(&mut self) -> Result<u32, Error> {
        let slot = self.length_int()?.cast_unsigned();
        if slot >= self.tables.slots {
            return Err(self.flaw_before(Flaw::Reference));
        }
        Ok(slot)
    }

    /// A number of values that follow, each of them at least a byte.
    fn length(&mut self) -> Result<u32, Error> {
        let length = self.length_int()?;
        let length = u32::try_from(length).map_err(|_| self.flaw_before(Flaw::Negative))?;
        if length as usize > self.at.rest.len() {
            return Err(self.flaw_before(Flaw::TooLong));
        }
        Ok(length)
    }

    fn length_int(&mut self) -> Result<i32, Error> {
        let tag = self.byte()?;
        self.int(tag)
    }

    /// The rest of an int whose tag was read.
    fn int(&mut self, tag: u8) -> Result<i32, Error> {
        match int_after(tag, self.at.rest) {
            Ok((value, rest)) => {
                self.at.rest = rest;
                Ok(value)
            }
            Err(flaw @ Flaw::Not(_)) => Err(self.flaw_before(flaw)),
            Err(flaw) => Err(flaw.at(self.input.len())),
        }
    }

    fn long(&mut self, tag: u8) -> Result<i64, Error> {
        Ok(match tag {
            0xd8..=0xef => i64::from(tag) - 0xe0,
            0xf0..=0xff => {
                let [low] = self.array()?;
                (i64::from(tag) - 0xf8) << 8 | i64::from(low)
            }
            0x38..=0x3f => {
                let low = u16::from_be_bytes(self.array()?);
                (i64::from(tag) - 0x3c) << 16 | i64::from(low)
            }
            b'Y' => i64::from(i32::from_be_bytes(self.array()?)),
            _ => i64::from_be_bytes(self.array()?),
        })
    }

    fn double(&mut self, tag: u8) -> Result<f64, Error> {
        Ok(match tag {
            0x5b => 0.0,
            0x5c => 1.0,
            0x5d => f64::from(i8::from_be_bytes(self.array()?)),
            0x5e => f64::from(i16::from_be_bytes(self.array()?)),
            // Thousandths, whatever the public text of Hessian 2.0 says.
            0x5f => 0.001 * f64::from(i32::from_be_bytes(self.array()?)),
            _ => f64::from_be_bytes(self.array()?),
        })
    }

    /// A string whose tag was read, of any form.
    fn any_text(&mut self) -> Result<Text<'a>, Error> {
        let start = self.position() - 1;
        let from = self.input.get(start..).unwrap_or_default();
        let (text, rest) = text(from).map_err(|(flaw, left)| flaw.at(self.input.len() - left))?;
        self.at.rest = rest;
        Ok(text)
    }

    /// Bytes whose tag was read.
    fn binary(&mut self) -> Result<Binary<'a>, Error> {
        let from = self.input.get(self.position() - 1..).unwrap_or_default();
        let (bytes, rest) =
            binary(from).map_err(|(flaw, left)| flaw.at(self.input.len() - left))?;
        self.at.rest = rest;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let cut = Flaw::Truncated.at(self.input.len());
        let (bytes, rest) = self.at.rest.split_first_chunk().ok_or(cut)?;
        self.at.rest = rest;
        Ok(*bytes)
    }

    /// A flaw in what was just read.
    #[cold]
    fn flaw_before(&self, flaw: Flaw) -> Error {
        flaw.at(self.position().saturating_sub(1))
    }
}

impl<'a> Class<'a> {
    /// The names of its fields, in the order of the values.
    pub fn fields(&self) -> impl Iterator<Item = Text<'a>> + use<'a> {
        let mut names = self.names;
        (0..self.fields).map_while(move |_| {
            let (name, rest) = text(names).ok()?;
            names = rest;
            Some(name)
        })
    }
}
