//! What every serialization has in common: a body is values one after another.

use crate::{
    attachments::Scalar,
    error::{Error, Flaw},
    fastjson2,
    foreign::Foreign,
    head::Serialization,
    hessian2::{Limits, Reader, Token},
    invocation::{Reach, Scratch},
    text::Text,
};

/// A body that is read from its front to its end.
pub(crate) trait Body<'a> {
    /// How much of a request can be read: beyond [`Reach::Positional`] nothing but texts.
    fn reach(&self) -> Reach {
        Reach::Full
    }

    /// Bytes read so far.
    fn position(&self) -> usize;

    /// Goes to where a value starts that depends on none before it.
    fn restart(&mut self, offset: usize);

    /// The next value, which must be a string or null.
    fn text(&mut self) -> Result<Option<Text<'a>>, Error>;

    /// The next five values, if that is quick: each is a plain string. Otherwise nothing is read.
    fn plain_texts(&mut self) -> Option<[Text<'a>; 5]> {
        None
    }

    /// Walks over the next value.
    fn skip(&mut self) -> Result<(), Error>;

    /// Reads the next value, the attachments: a map or null. They may refer to the arguments,
    /// which start at `arguments`. Returns where they end.
    fn attachments(&mut self, arguments: usize, each: Each<'_, 'a>) -> Result<usize, Error>;
}

/// Takes every entry of the attachments whose key is a string.
pub(crate) trait Entries<'a> {
    fn entry(&mut self, key: Text<'a>, value: Scalar<'a>) -> Result<(), Flaw>;
}

impl<'a, F: FnMut(Text<'a>, Scalar<'a>) -> Result<(), Flaw>> Entries<'a> for F {
    fn entry(&mut self, key: Text<'a>, value: Scalar<'a>) -> Result<(), Flaw> {
        self(key, value)
    }
}

/// Who takes the entries, and may refuse one.
pub(crate) type Each<'e, 'a> = &'e mut dyn Entries<'a>;

/// Opens a body and has it read; `None` if we do not know the serialization.
pub(crate) fn open<'a, R>(
    serialization: Serialization,
    body: &'a [u8],
    limits: &Limits,
    scratch: &mut Scratch,
    read: impl FnOnce(&mut dyn Body<'a>) -> R,
) -> Option<R> {
    match serialization {
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => {
            Some(read(&mut Reader::new(body, limits, &mut scratch.tables)))
        }
        Serialization::FASTJSON2 => Some(read(&mut fastjson2::Reader::new(
            body,
            limits,
            &mut scratch.symbols,
        ))),
        _ => Foreign::open(serialization, body, limits).map(|mut body| read(&mut body)),
    }
}

impl<'a> Body<'a> for Reader<'a, '_> {
    fn position(&self) -> usize {
        Reader::position(self)
    }

    fn restart(&mut self, offset: usize) {
        Reader::restart(self, offset);
    }

    fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        let at = self.position();
        match self.token()? {
            Token::Text(text) => Ok(Some(text)),
            Token::Null => Ok(None),
            _ => Err(Flaw::Not("string").at(at)),
        }
    }

    #[inline(always)]
    fn plain_texts(&mut self) -> Option<[Text<'a>; 5]> {
        Reader::plain_texts(self)
    }

    #[inline(always)]
    fn skip(&mut self) -> Result<(), Error> {
        Reader::skip(self)
    }

    /// A map, null, or a reference to a map of the arguments.
    #[inline(always)]
    fn attachments(&mut self, arguments: usize, each: Each<'_, 'a>) -> Result<usize, Error> {
        if self.map_starts()? {
            entries(self, each)?;
            return Ok(self.position());
        }
        odd_attachments(self, arguments, each)
    }
}

/// Attachments that do not start as a plain map.
#[inline(never)]
fn odd_attachments<'a>(
    reader: &mut Reader<'a, '_>,
    arguments: usize,
    each: Each<'_, 'a>,
) -> Result<usize, Error> {
    let at = reader.position();
    let (mut token, mut end) = (reader.token()?, None);
    if let Token::Reference(slot) = token {
        end = Some(reader.position());
        reader.restart(arguments);
        token = reader.seek(slot, at)?;
    }
    match token {
        Token::Map { .. } => entries(reader, each)?,
        Token::Null => {}
        _ => return Err(Flaw::Not("map").at(at)),
    }
    Ok(end.unwrap_or_else(|| reader.position()))
}

/// Reads the entries of the map that was just opened, to its end.
#[inline(always)]
fn entries<'a>(reader: &mut Reader<'a, '_>, each: Each<'_, 'a>) -> Result<(), Error> {
    let limits = reader.limits();
    let mut left = limits.attachments;
    loop {
        let offset = reader.position();
        let plain = reader.plain_entry();
        if plain.is_none() && reader.map_ends() {
            return Ok(());
        }
        left = left
            .checked_sub(1)
            .ok_or_else(|| Flaw::Limit("attachments").at(offset))?;
        match plain {
            Some((key, value)) => put(key, Scalar::Text(value), offset, limits, each),
            None => odd_entry(reader, each),
        }?;
    }
}

/// An entry of any kind.
#[inline(never)]
fn odd_entry<'a>(reader: &mut Reader<'a, '_>, each: Each<'_, 'a>) -> Result<(), Error> {
    let (offset, limits) = (reader.position(), reader.limits());
    match reader.token()? {
        Token::Text(key) => put(key, scalar(reader)?, offset, limits, each),
        // Java would fail on such a key only where it is used.
        other => {
            reader.skip_rest(other)?;
            scalar(reader).map(|_| ())
        }
    }
}

/// Passes an entry on that starts at `offset`.
#[inline(always)]
fn put<'a>(
    key: Text<'a>,
    value: Scalar<'a>,
    offset: usize,
    limits: &Limits,
    each: Each<'_, 'a>,
) -> Result<(), Error> {
    if key.wire_len() > limits.key_len {
        return Err(Flaw::Limit("bytes of a key").at(offset));
    }
    each.entry(key, value).map_err(|flaw| flaw.at(offset))
}

fn scalar<'a>(reader: &mut Reader<'a, '_>) -> Result<Scalar<'a>, Error> {
    Ok(match reader.token()? {
        Token::Text(text) => Scalar::Text(text),
        Token::Null => Scalar::Null,
        Token::Bool(value) => Scalar::Bool(value),
        Token::Int(value) => Scalar::Int(value.into()),
        Token::Long(value) => Scalar::Int(value),
        other => {
            reader.skip_rest(other)?;
            Scalar::Other
        }
    })
}
