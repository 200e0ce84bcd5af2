//! A string as it stands in a frame: borrowed, not decoded until somebody asks.

use std::{borrow::Cow, fmt, iter};

/// A string as it stands in a frame, in whatever coding the serialization has for it.
///
/// It was checked when it was read: it does not run past its end. Two texts are equal when they
/// have the same characters, whatever their coding.
#[derive(Clone, Copy, Default)]
pub struct Text<'a> {
    bytes: &'a [u8],
    coding: Coding,
}

/// How the characters of a text are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Coding {
    /// Bytes below 0x80 only.
    #[default]
    Ascii,
    /// Each UTF-16 unit in one to three bytes, overlong forms included, as Hessian2 and Java's
    /// modified UTF-8 have it.
    Cesu8,
    /// Several chunks of Hessian2, each with its tag and length before [`Coding::Cesu8`].
    Chunks,
    /// One byte per character, U+0000 to U+00FF.
    Latin1,
    /// UTF-8; what is not reads as U+FFFD.
    Utf8,
    /// Two bytes per unit, low byte first.
    Utf16Le,
    /// Two bytes per unit, high byte first.
    Utf16Be,
    /// UTF-8 with JSON's escapes.
    Json,
    /// [`Coding::Cesu8`] in blocks of a Java object stream, so many bytes of it in the first,
    /// each further one behind its head.
    Blocks {
        /// At most 65,535: a longer block holds every string.
        left: u16,
    },
    /// GB18030: ASCII is understood, every other character reads as U+FFFD.
    Gb18030,
}

impl<'a> Text<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8], coding: Coding) -> Self {
        Self { bytes, coding }
    }

    /// The text as UTF-8: borrowed when it is plain ASCII in one piece, which is the usual case.
    /// Surrogate pairs become one character, a lone surrogate U+FFFD.
    #[inline]
    #[must_use]
    pub fn to_utf8(&self) -> Cow<'a, [u8]> {
        match self.coding {
            Coding::Ascii => Cow::Borrowed(self.bytes),
            _ => self.convert(),
        }
    }

    /// Whether the text is exactly `ascii`.
    #[inline]
    #[must_use]
    pub fn is(&self, ascii: &[u8]) -> bool {
        match self.coding {
            Coding::Ascii => self.bytes == ascii,
            _ => self.units().eq(ascii.iter().map(|byte| u16::from(*byte))),
        }
    }

    /// Whether the text begins with `ascii`.
    #[inline]
    #[must_use]
    pub fn starts_with(&self, ascii: &[u8]) -> bool {
        match self.coding {
            Coding::Ascii => self.bytes.starts_with(ascii),
            _ => {
                let mut units = self.units();
                ascii.iter().all(|a| units.next() == Some(u16::from(*a)))
            }
        }
    }

    /// Whether there is no character.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.coding {
            Coding::Chunks => self.units().next().is_none(),
            _ => self.bytes.is_empty(),
        }
    }

    /// The plain bytes, if the text is ASCII in one piece.
    #[inline]
    #[must_use]
    pub fn as_ascii(&self) -> Option<&'a [u8]> {
        (self.coding == Coding::Ascii).then_some(self.bytes)
    }

    /// The UTF-16 units of the text, lone surrogates included.
    pub fn units(&self) -> impl Iterator<Item = u16> + use<'a> {
        let mut units = Units {
            rest: self.bytes,
            coding: self.coding,
            left: match self.coding {
                Coding::Blocks { left } => left.into(),
                _ => 0,
            },
            low: None,
        };
        iter::from_fn(move || units.next())
    }

    /// Bytes that the text occupies in the frame, tags of further chunks included.
    #[inline]
    #[must_use]
    pub(crate) const fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    #[cold]
    fn convert(&self) -> Cow<'a, [u8]> {
        if self.coding == Coding::Utf8 {
            return match String::from_utf8_lossy(self.bytes) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            };
        }
        let characters = char::decode_utf16(self.units());
        let text: String = characters
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Cow::Owned(text.into_bytes())
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.as_ascii(), other.as_ascii()) {
            (Some(a), Some(b)) => a == b,
            _ => self.units().eq(other.units()),
        }
    }
}

impl Eq for Text<'_> {}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_utf8()))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Walks over the UTF-16 units of a text.
struct Units<'a> {
    rest: &'a [u8],
    coding: Coding,
    /// Units left in the chunk, or bytes in the block.
    left: usize,
    /// The second half of a pair.
    low: Option<u16>,
}

impl Units<'_> {
    fn next(&mut self) -> Option<u16> {
        if let Some(low) = self.low.take() {
            return Some(low);
        }
        match self.coding {
            Coding::Ascii | Coding::Latin1 => self.byte().map(u16::from),
            Coding::Cesu8 => self.cesu8(),
            Coding::Chunks => {
                while self.left == 0 {
                    let (chunk, rest) = Chunk::read(self.rest)?;
                    (self.left, self.rest) = (chunk.units, rest);
                }
                self.left -= 1;
                self.cesu8()
            }
            Coding::Utf16Le => Some(u16::from_le_bytes([self.byte()?, self.byte()?])),
            Coding::Utf16Be => Some(u16::from_be_bytes([self.byte()?, self.byte()?])),
            Coding::Utf8 => {
                let character = self.utf8()?;
                self.split(character)
            }
            Coding::Json => self.json(),
            Coding::Blocks { .. } => self.blocks(),
            Coding::Gb18030 => self.gb18030(),
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn split(&mut self, character: char) -> Option<u16> {
        let mut pair = [0; 2];
        let pair = character.encode_utf16(&mut pair);
        self.low = pair.get(1).copied();
        pair.first().copied()
    }

    fn cesu8(&mut self) -> Option<u16> {
        let (unit, rest) = unit(self.rest).ok()?;
        self.rest = rest;
        Some(unit)
    }

    fn utf8(&mut self) -> Option<char> {
        let chunk = self.rest.utf8_chunks().next()?;
        let (character, len) = match chunk.valid().chars().next() {
            Some(character) => (character, character.len_utf8()),
            None => (char::REPLACEMENT_CHARACTER, chunk.invalid().len()),
        };
        self.rest = self.rest.get(len..)?;
        Some(character)
    }

    fn json(&mut self) -> Option<u16> {
        let Some((b'\\', rest)) = self.rest.split_first() else {
            let character = self.utf8()?;
            return self.split(character);
        };
        self.rest = rest;
        Some(match self.byte()? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'u' => {
                let (digits, rest) = self.rest.split_first_chunk::<4>()?;
                self.rest = rest;
                let digits = std::str::from_utf8(digits).ok()?;
                u16::from_str_radix(digits, 16).ok()?
            }
            other => other.into(),
        })
    }

    fn blocks(&mut self) -> Option<u16> {
        let mut bytes = [self.block_byte()?, 0, 0];
        let len = match bytes {
            [0xc0..=0xdf, ..] => 2,
            [0xe0..=0xef, ..] => 3,
            _ => 1,
        };
        for byte in bytes.iter_mut().take(len).skip(1) {
            *byte = self.block_byte()?;
        }
        // What is no unit was not checked across blocks.
        let (unit, _) = unit(bytes.get(..len)?).unwrap_or((0xfffd, &[]));
        Some(unit)
    }

    fn block_byte(&mut self) -> Option<u8> {
        while self.left == 0 {
            (self.left, self.rest) = crate::foreign::block(self.rest)?;
        }
        self.left -= 1;
        self.byte()
    }

    fn gb18030(&mut self) -> Option<u16> {
        let lead = self.byte()?;
        if lead < 0x80 {
            return Some(lead.into());
        }
        if self.byte().is_some_and(|second| second.is_ascii_digit()) {
            self.rest = self.rest.get(2..).unwrap_or_default();
        }
        self.split(char::REPLACEMENT_CHARACTER)
    }
}

/// The head of a chunk of a Hessian2 string.
pub(crate) struct Chunk {
    /// UTF-16 units in it.
    pub(crate) units: usize,
    /// Whether it is the last one.
    pub(crate) last: bool,
}

impl Chunk {
    /// Reads a head; `None` if there is none or it is cut.
    pub(crate) fn read(input: &[u8]) -> Option<(Self, &[u8])> {
        let (tag, rest) = input.split_first()?;
        let (units, rest) = match *tag {
            0x00..=0x1f => (usize::from(*tag), rest),
            0x30..=0x33 => {
                let (low, rest) = rest.split_first()?;
                (usize::from(*tag & 3) << 8 | usize::from(*low), rest)
            }
            b'R' | b'S' => {
                let (len, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(*len)), rest)
            }
            _ => return None,
        };
        let last = *tag != b'R';
        Some((Self { units, last }, rest))
    }

    /// Whether a Hessian2 string starts with `tag`.
    pub(crate) const fn starts(tag: u8) -> bool {
        matches!(tag, 0x00..=0x1f | 0x30..=0x33 | b'R' | b'S')
    }
}

/// Why a unit cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoUnit {
    /// It is cut.
    Truncated,
    /// It is no unit: four-byte UTF-8, or a wrong continuation.
    Bad,
}

/// Reads one UTF-16 unit of one to three bytes.
pub(crate) fn unit(input: &[u8]) -> Result<(u16, &[u8]), NoUnit> {
    let tail = |byte: u8| (byte & 0xc0 == 0x80).then_some(u16::from(byte & 0x3f));
    match *input {
        [a @ 0x00..=0x7f, ref rest @ ..] => Ok((a.into(), rest)),
        [a @ 0xc0..=0xdf, b, ref rest @ ..] => {
            let b = tail(b).ok_or(NoUnit::Bad)?;
            Ok((u16::from(a & 0x1f) << 6 | b, rest))
        }
        [a @ 0xe0..=0xef, b, c, ref rest @ ..] => {
            let (b, c) = (tail(b).ok_or(NoUnit::Bad)?, tail(c).ok_or(NoUnit::Bad)?);
            Ok((u16::from(a & 0x0f) << 12 | b << 6 | c, rest))
        }
        [] | [0xc0..=0xdf] | [0xe0..=0xef, ..] => Err(NoUnit::Truncated),
        _ => Err(NoUnit::Bad),
    }
}

/// Appends a unit in one to three bytes.
pub(crate) fn write_unit(out: &mut Vec<u8>, unit: u16) {
    let [high, low] = unit.to_be_bytes();
    let (middle, tail) = (0x80 | (high & 0xf) << 2 | low >> 6, 0x80 | low & 0x3f);
    match unit {
        0..=0x7f => out.push(low),
        0x80..=0x7ff => out.extend([0xc0 | (high & 7) << 2 | low >> 6, tail]),
        _ => out.extend([0xe0 | high >> 4, middle, tail]),
    }
}

/// How many bytes in front are below 0x80.
#[inline(always)]
pub(crate) fn ascii_len(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<64>();
    let len = 64 * blocks.iter().take_while(|block| is_ascii(block)).count();
    if len + 64 > bytes.len() && bytes.last_chunk().is_some_and(is_ascii) {
        return bytes.len();
    }
    let rest = bytes.get(len..).unwrap_or_default();
    len + position(rest, |word| word & HIGH, |byte| byte >= 0x80).unwrap_or(rest.len())
}

#[inline]
fn is_ascii(block: &[u8; 64]) -> bool {
    let (words, _) = block.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(0, |all, word| all | word) & HIGH == 0
}

/// Where `byte` stands first.
#[inline]
pub(crate) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    const ONES: u64 = HIGH >> 7;
    let high_where_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let wanted = ONES * u64::from(byte);
    position(bytes, |word| high_where_zero(word ^ wanted), |b| b == byte)
}

/// Where the first byte is that `is` says yes to. `high` sets the high bit of those of a word, at
/// least of the lowest of them and of none below.
#[inline(always)]
fn position(bytes: &[u8], high: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk() {
        let high = high(u64::from_le_bytes(*word));
        if high != 0 {
            return Some(bytes.len() - rest.len() + high.trailing_zeros() as usize / 8);
        }
        rest = after;
    }
    let index = rest.iter().position(|byte| is(*byte))?;
    Some(bytes.len() - rest.len() + index)
}

/// The high bit of each byte.
const HIGH: u64 = 0x8080_8080_8080_8080;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_above_ascii_is_found_wherever_it_is() {
        for len in 0..=100 {
            let mut bytes = vec![0x7f; len];
            assert_eq!(ascii_len(&bytes), len);
            for at in (0..len).rev() {
                bytes[at] = 0x80;
                assert_eq!(ascii_len(&bytes), at, "of {len}");
            }
        }
    }

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for len in 0..=40 {
            // 0x3a and 0xba differ from 0x3b in the lowest bit and in the highest.
            let mut bytes: Vec<u8> = [0x3a, 0xba].into_iter().cycle().take(len).collect();
            assert_eq!(find(&bytes, 0x3b), None);
            for at in (0..len).rev() {
                bytes[at] = 0x3b;
                assert_eq!(find(&bytes, 0x3b), Some(at), "of {len}");
            }
        }
    }
}
