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

    /// Walks over the next value.
    fn skip(&mut self) -> Result<(), Error>;

    /// Reads the next value, the attachments: a map or null. They may refer to the arguments,
    /// which start at `arguments`. Returns where they end.
    fn attachments(&mut self, arguments: usize, each: Each<'_, 'a>) -> Result<usize, Error>;
}

/// What is called with every entry of the attachments whose key is a string.
pub(crate) type Each<'e, 'a> = &'e mut dyn FnMut(Text<'a>, Scalar<'a>) -> Result<(), Flaw>;

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

    #[inline(always)]
    fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        match self.plain_text() {
            Some(text) => Ok(Some(text)),
            None => long_text(self),
        }
    }

    #[inline(always)]
    fn skip(&mut self) -> Result<(), Error> {
        Reader::skip(self)
    }

    /// A map, null, or a reference to a map of the arguments.
    #[inline(always)]
    fn attachments(&mut self, arguments: usize, each: Each<'_, 'a>) -> Result<usize, Error> {
        let at = self.position();
        let (mut token, mut end) = (self.token()?, None);
        if let Token::Reference(slot) = token {
            end = Some(self.position());
            self.restart(arguments);
            token = self.seek(slot, at)?;
        }
        match token {
            Token::Map { .. } => entries(self, each)?,
            Token::Null => {}
            _ => return Err(Flaw::Not("map").at(at)),
        }
        Ok(end.unwrap_or_else(|| self.position()))
    }
}

#[inline(never)]
fn long_text<'a>(reader: &mut Reader<'a, '_>) -> Result<Option<Text<'a>>, Error> {
    let at = reader.position();
    match reader.token()? {
        Token::Text(text) => Ok(Some(text)),
        Token::Null => Ok(None),
        _ => Err(Flaw::Not("string").at(at)),
    }
}

/// Reads the entries of the map that was just opened, to its end.
#[inline(always)]
fn entries<'a>(reader: &mut Reader<'a, '_>, each: Each<'_, 'a>) -> Result<(), Error> {
    let limits = reader.limits();
    let mut left = limits.attachments;
    loop {
        let offset = reader.position();
        let (key, value) = match reader.plain_entry() {
            Some((key, value)) => (Some(key), Scalar::Text(value)),
            None => match entry(reader)? {
                Some(entry) => entry,
                None => return Ok(()),
            },
        };
        left = left
            .checked_sub(1)
            .ok_or_else(|| Flaw::Limit("attachments").at(offset))?;
        if let Some(key) = key {
            if key.wire_len() > limits.key_len {
                return Err(Flaw::Limit("bytes of a key").at(offset));
            }
            each(key, value).map_err(|flaw| flaw.at(offset))?;
        }
    }
}

/// An entry of any kind: its key, if that is a string, and its value. `None` at the end.
#[inline(never)]
fn entry<'a>(reader: &mut Reader<'a, '_>) -> Result<Option<(Option<Text<'a>>, Scalar<'a>)>, Error> {
    let key = match reader.token()? {
        Token::End => return Ok(None),
        Token::Text(key) => Some(key),
        // Java would fail on such a key only where it is used.
        other => {
            reader.skip_rest(other)?;
            None
        }
    };
    Ok(Some((key, scalar(reader)?)))
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
