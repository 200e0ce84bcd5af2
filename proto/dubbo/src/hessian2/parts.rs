//! The parts that values are made of: strings, bytes and ints, each of which has several forms.
//! A flaw comes with the bytes that were left where it is.

use crate::{
    error::Flaw,
    text::{Chunk, Coding, NoUnit, Text, ascii_len, unit},
};

/// Bytes as they stand in a frame, in one chunk or several.
///
/// Two are equal when they have the same bytes, however they are cut.
#[derive(Debug, Clone, Copy)]
pub struct Binary<'a> {
    /// The chunks with their tags and lengths, if `chunked`.
    bytes: &'a [u8],
    chunked: bool,
}

impl<'a> Binary<'a> {
    /// The bytes, chunk by chunk.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut rest, chunked) = (self.bytes, self.chunked);
        let single = (!chunked).then_some(self.bytes);
        let many = std::iter::from_fn(move || {
            let (tag, after) = rest.split_first().filter(|_| chunked)?;
            let (bytes, after) = binary_chunk(*tag, after)?;
            rest = after;
            Some(bytes)
        });
        single.into_iter().chain(many)
    }
}

impl PartialEq for Binary<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl Eq for Binary<'_> {}

/// Reads bytes of any form from the front of `input`.
pub(super) fn binary(input: &[u8]) -> Result<(Binary<'_>, &[u8]), (Flaw, usize)> {
    let (mut rest, mut chunked) = (input, false);
    loop {
        let cut = (Flaw::Truncated, 0);
        let (tag, after) = rest.split_first().ok_or(cut)?;
        if !matches!(tag, 0x20..=0x2f | 0x34..=0x37 | b'A' | b'B') {
            return Err((Flaw::Not("chunk of bytes"), rest.len()));
        }
        let (bytes, after) = binary_chunk(*tag, after).ok_or(cut)?;
        rest = after;
        if *tag == b'A' {
            chunked = true;
            continue;
        }
        let whole = input.get(..input.len() - rest.len()).unwrap_or_default();
        let bytes = if chunked { whole } else { bytes };
        return Ok((Binary { bytes, chunked }, rest));
    }
}

/// The bytes of a chunk whose tag was read, and what follows; `None` if it is cut.
fn binary_chunk(tag: u8, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = match tag {
        0x20..=0x2f => (usize::from(tag - 0x20), rest),
        0x34..=0x37 => {
            let (low, rest) = rest.split_first()?;
            (usize::from(tag & 3) << 8 | usize::from(*low), rest)
        }
        _ => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
    };
    rest.split_at_checked(len)
}

/// Reads a string of any form from the front of `input`; a flaw comes with the bytes left there.
pub(super) fn text(input: &[u8]) -> Result<(Text<'_>, &[u8]), (Flaw, usize)> {
    let (mut rest, mut first) = (input, true);
    loop {
        let (chunk, content) = match (Chunk::read(rest), rest.first()) {
            (Some(read), _) => read,
            (None, Some(tag)) if !Chunk::starts(*tag) => {
                return Err((Flaw::Not("chunk of a string"), rest.len()));
            }
            (None, _) => return Err((Flaw::Truncated, 0)),
        };
        rest = skip_units(content, chunk.units).map_err(|(why, left)| match why {
            NoUnit::Truncated => (Flaw::Truncated, 0),
            NoUnit::Bad => (Flaw::Text, left),
        })?;
        if !chunk.last {
            first = false;
            continue;
        }
        let (from, plain) = if first {
            (content, Coding::Cesu8)
        } else {
            (input, Coding::Chunks)
        };
        let bytes = from.get(..from.len() - rest.len()).unwrap_or_default();
        // As many bytes as units: each is one byte.
        let ascii = first && bytes.len() == chunk.units;
        let coding = if ascii { Coding::Ascii } else { plain };
        return Ok((Text::new(bytes, coding), rest));
    }
}

/// Walks over `units` UTF-16 units.
fn skip_units(mut rest: &[u8], mut units: usize) -> Result<&[u8], (NoUnit, usize)> {
    while units > 0 {
        let plain = ascii_len(rest.get(..units).unwrap_or(rest));
        (rest, units) = (rest.get(plain..).unwrap_or_default(), units - plain);
        if units > 0 {
            let (_, after) = unit(rest).map_err(|why| (why, rest.len()))?;
            (rest, units) = (after, units - 1);
        }
    }
    Ok(rest)
}

/// Reads an int of any form.
pub(crate) fn int(input: &[u8]) -> Result<(i32, &[u8]), Flaw> {
    let (tag, rest) = input.split_first().ok_or(Flaw::Truncated)?;
    int_after(*tag, rest)
}

#[inline]
pub(super) fn int_after(tag: u8, rest: &[u8]) -> Result<(i32, &[u8]), Flaw> {
    match tag {
        0x80..=0xbf => Ok((i32::from(tag) - 0x90, rest)),
        0xc0..=0xcf => {
            let (low, rest) = rest.split_first().ok_or(Flaw::Truncated)?;
            Ok(((i32::from(tag) - 0xc8) << 8 | i32::from(*low), rest))
        }
        0xd0..=0xd7 => {
            let (low, rest) = rest.split_first_chunk().ok_or(Flaw::Truncated)?;
            let low = i32::from(u16::from_be_bytes(*low));
            Ok(((i32::from(tag) - 0xd4) << 16 | low, rest))
        }
        b'I' => {
            let (value, rest) = rest.split_first_chunk().ok_or(Flaw::Truncated)?;
            Ok((i32::from_be_bytes(*value), rest))
        }
        _ => Err(Flaw::Not("int")),
    }
}
