//! The place in a body, and the strings that are read from there without a closer look: the plain
//! ones, as nearly every string of a call is.

use crate::text::{Coding, Text, ascii_len};

/// The bytes of a body that are left, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
    /// Bytes left where the ASCII ends that was seen ahead. More than are left: none was.
    ascii: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) const fn new(rest: &'a [u8]) -> Self {
        Self {
            rest,
            ascii: usize::MAX,
        }
    }

    /// The next string, if it is a plain one: in one piece of at most 1023 characters, all ASCII.
    #[inline(always)]
    pub(super) fn plain_text(&mut self) -> Option<Text<'a>> {
        let (len, content) = match *self.rest {
            [len @ 0x00..=0x1f, ref content @ ..] => (usize::from(len), content),
            [tag @ 0x30..=0x33, low, ref content @ ..] => {
                (usize::from(tag & 3) << 8 | usize::from(low), content)
            }
            _ => return None,
        };
        let (bytes, rest) = content.split_at_checked(len)?;
        if rest.len() < self.ascii {
            let plain = look_ahead(content, len);
            if plain < len {
                return None;
            }
            self.ascii = content.len() - plain;
        }
        self.rest = rest;
        Some(Text::new(bytes, Coding::Ascii))
    }
}

/// Whether `bytes` are one map without a type, of plain strings only.
pub(crate) fn is_plain_map(bytes: &[u8]) -> bool {
    let [b'H', entries @ .., b'Z'] = bytes else {
        return false;
    };
    let mut at = Cursor::new(entries);
    while !at.rest.is_empty() {
        if at.plain_text().is_none() || at.plain_text().is_none() {
            return false;
        }
    }
    true
}

/// How many bytes in front of `content` are ASCII, as far as its first `len` bytes and some more
/// tell. So the strings that follow need not be looked at one by one.
#[inline(never)]
fn look_ahead(content: &[u8], len: usize) -> usize {
    ascii_len(content.get(..len.max(AHEAD)).unwrap_or(content))
}

/// Bytes that are looked at for one string, at least.
const AHEAD: usize = 512;
