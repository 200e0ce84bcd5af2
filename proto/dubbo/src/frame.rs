//! Frames: a head and as many bytes of body as it says.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::head::{HEAD_LEN, Head, Kind, MAGIC, RequestId, Serialization};

/// A whole frame that owns its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header; `head.body_len` is the length of `body`.
    pub head: Head,
    /// The body, undecoded.
    pub body: Bytes,
}

/// What may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body in bytes, header not counted. Default 8 MiB, as Dubbo's `payload`.
    pub max_body: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 8 * 1024 * 1024,
        }
    }
}

/// Why the bytes at the front of a stream are no frame. The stream cannot be resynchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not Dubbo: the first bytes are not `da bb`. Known from the first byte on.
    #[error("bad magic at byte {at} of the frame")]
    Magic {
        /// Which of the two bytes is wrong.
        at: usize,
    },
    /// The length is negative or over the limit. The header is good, so a request can be answered.
    #[error("body of {} bytes is over the limit of {limit}", .head.body_len.cast_signed())]
    TooLong {
        /// The header that says so.
        head: Head,
        /// The limit.
        limit: u32,
    },
}

/// Looks at the front of `input`: the header of the frame there, or `None` while fewer than
/// 16 bytes are there. The body may still be missing: compare [`Head::frame_len`].
///
/// # Errors
/// [`Error::Magic`] as soon as a byte of it is wrong, [`Error::TooLong`] as soon as the header is
/// whole; nothing is ever allocated from a length.
#[inline]
pub fn peek(input: &[u8], limits: Limits) -> Result<Option<Head>, Error> {
    let Some(bytes) = input.first_chunk::<HEAD_LEN>() else {
        let wrong = input.iter().zip(MAGIC).position(|(got, want)| *got != want);
        return wrong.map_or(Ok(None), |at| Err(Error::Magic { at }));
    };
    let Some(head) = Head::decode(bytes) else {
        let at = usize::from(bytes.first() == MAGIC.first());
        return Err(Error::Magic { at });
    };
    if head.body_len > limits.max_body {
        return Err(Error::TooLong {
            head,
            limit: limits.max_body,
        });
    }
    Ok(Some(head))
}

/// Takes the next whole frame off the front of `input`, without copying it; `None` while more bytes
/// are needed, and then `input` is as it was.
///
/// # Errors
/// As [`peek`].
#[inline]
pub fn cut<'i>(input: &mut &'i [u8], limits: Limits) -> Result<Option<(Head, &'i [u8])>, Error> {
    let Some(head) = peek(input, limits)? else {
        return Ok(None);
    };
    let Some((frame, rest)) = input.split_at_checked(head.frame_len()) else {
        return Ok(None);
    };
    *input = rest;
    Ok(frame.get(HEAD_LEN..).map(|body| (head, body)))
}

/// Appends a whole frame whose body `write` appends.
pub(crate) fn append(
    out: &mut Vec<u8>,
    kind: Kind,
    serialization: Serialization,
    id: RequestId,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend([0; HEAD_LEN]);
    write(out);
    let body_len = u32::try_from(out.len() - start - HEAD_LEN).unwrap_or(u32::MAX);
    let head = Head {
        kind,
        serialization,
        id,
        body_len,
    };
    if let Some(place) = out.get_mut(start..start + HEAD_LEN) {
        place.copy_from_slice(&head.encode());
    }
}

impl Frame {
    /// Decodes the next whole frame from the front of `input`.
    ///
    /// `input` is consumed only when a frame is returned; the body shares its allocation.
    /// `Ok(None)` means more bytes are needed.
    ///
    /// # Errors
    /// As [`peek`].
    pub fn decode(input: &mut BytesMut, limits: Limits) -> Result<Option<Self>, Error> {
        let Some(head) = peek(input, limits)? else {
            return Ok(None);
        };
        if input.len() < head.frame_len() {
            return Ok(None);
        }
        input.advance(HEAD_LEN);
        let body = input.split_to(head.body_len as usize).freeze();
        Ok(Some(Self { head, body }))
    }

    /// Appends the frame to `output`.
    pub fn encode(&self, output: &mut BytesMut) {
        output.reserve(HEAD_LEN + self.body.len());
        output.put_slice(&self.head.encode());
        output.put_slice(&self.body);
    }

    /// A frame around `body`; `None` if the body is longer than a length field can say.
    #[must_use]
    pub fn new(
        kind: Kind,
        serialization: Serialization,
        id: RequestId,
        body: Bytes,
    ) -> Option<Self> {
        let body_len = i32::try_from(body.len()).ok()?.cast_unsigned();
        Some(Self {
            head: Head {
                kind,
                serialization,
                id,
                body_len,
            },
            body,
        })
    }
}
