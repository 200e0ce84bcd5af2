//! A place in a body, and what every serialization takes from it.

use crate::error::{Error, Flaw};

/// A place in a body. Nothing is taken that is not there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(body: &'a [u8], at: usize) -> Self {
        Self { body, at }
    }

    pub(super) const fn position(&self) -> usize {
        self.at
    }

    pub(super) const fn restart(&mut self, offset: usize) {
        self.at = offset;
    }

    /// The `len` bytes at `at`, as a body of their own whose places are those of this one.
    pub(super) fn slice(&self, at: usize, len: usize) -> Self {
        let body = self.body.get(..at + len).unwrap_or_default();
        Self { body, at }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    /// The next byte, not taken; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let cut = Flaw::Truncated.at(self.body.len());
        let bytes = self.rest().first_chunk().ok_or(cut)?;
        self.at += N;
        Ok(*bytes)
    }

    /// So many bytes, which a length said.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let long = Flaw::TooLong.at(self.at);
        let bytes = self.rest().get(..len).ok_or(long)?;
        self.at += len;
        Ok(bytes)
    }

    /// A signed length of four bytes.
    pub(super) fn length(&mut self) -> Result<usize, Error> {
        let at = self.at;
        let length = i32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| Flaw::Negative.at(at))
    }

    /// A number of seven bits per byte, low bits first.
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let at = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Flaw::TooLong.at(at))
    }

    /// So many bytes as a varint says.
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], Error> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }
}

/// Appends a number of seven bits per byte, low bits first.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}
