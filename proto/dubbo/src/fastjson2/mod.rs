//! fastjson2 (serialization 23): a body is a list of items, each a 4-byte length and one JSONB
//! value of exactly that many bytes. Arguments are passed over by their length.
//!
//! Symbols and references are local to an item. Read are strings, numbers and maps; everything
//! else is walked over.
//!
//! Source: apache/dubbo, `FastJson2ObjectOutput`; alibaba/fastjson2, `JSONB.Constants`.

mod jsonb;

use crate::{
    attachments::Scalar,
    body::{Body, Each},
    error::{Error, Flaw},
    hessian2::Limits,
    text::Text,
};

use jsonb::{Jsonb, Open, Step, text};

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
    /// Where the name of each symbol stands in the item, by its number.
    names: Vec<Option<usize>>,
    stack: Vec<Open>,
}

impl<'a> Items<'a> {
    /// The items of a body.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
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

/// Reads a body: items one after another.
pub(crate) struct Reader<'a, 's> {
    items: Items<'a>,
    limits: &'s Limits,
    symbols: &'s mut Symbols,
}

impl<'a, 's> Reader<'a, 's> {
    pub(crate) fn new(body: &'a [u8], limits: &'s Limits, symbols: &'s mut Symbols) -> Self {
        Self {
            items: Items::new(body),
            limits,
            symbols,
        }
    }
}

impl<'a> Body<'a> for Reader<'a, '_> {
    fn position(&self) -> usize {
        self.items.at
    }

    fn restart(&mut self, offset: usize) {
        self.items.at = offset;
    }

    fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        self.items.item()?.text(self.limits, self.symbols)
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.items.item().map(|_| ())
    }

    fn attachments(&mut self, _: usize, each: Each<'_, 'a>) -> Result<usize, Error> {
        let limits = self.limits;
        let item = self.items.item()?;
        let mut jsonb = Jsonb::new(item, limits, self.symbols);
        match jsonb.step()? {
            Step::Scalar(Scalar::Null) => return jsonb.end().map(|()| self.items.at),
            Step::Open(Open::Entries) => {}
            _ => return Err(Flaw::Not("map").at(item.offset)),
        }
        let mut left = limits.attachments;
        loop {
            let offset = jsonb.position();
            if jsonb.map_ends() {
                return jsonb.end().map(|()| self.items.at);
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
                each.entry(key, value).map_err(|flaw| flaw.at(offset))?;
            }
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
