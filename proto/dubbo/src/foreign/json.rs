//! JSON: one text per line (6, 16, 18, 21), or each behind a length of four bytes (6 as the
//! extensions of 3.x write it). The first byte tells the two apart.
//!
//! fastjson marks types: `@type` entries, and letters behind numbers. Values that nobody asks for
//! are passed over by their brackets and quotes.
//!
//! Source: apache/dubbo, `FastJsonObjectOutput` (2.7); apache/dubbo-spi-extensions,
//! `GsonJsonObjectOutput`, `JacksonObjectOutput`, `GenericProtobufJsonObjectInput`.

use super::Cursor;
use crate::{
    attachments::Scalar,
    body::Each,
    error::{Error, Flaw},
    head::Serialization,
    text::{Coding, Text},
};

#[derive(Debug)]
pub(crate) struct Json<'a> {
    pub(super) cursor: Cursor<'a>,
    /// Whether the attachments are a member of the map, as protobuf writes its messages.
    wrapped: bool,
    framing: Framing,
}

/// How one text is told from the next.
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    Lines,
    Lengths,
}

impl<'a> Json<'a> {
    pub(super) fn new(serialization: Serialization, cursor: Cursor<'a>) -> Self {
        let lengths = serialization == Serialization::FASTJSON && cursor.peek() == Some(0);
        Self {
            cursor,
            wrapped: serialization == Serialization::PROTOBUF_JSON,
            framing: if lengths {
                Framing::Lengths
            } else {
                Framing::Lines
            },
        }
    }

    /// The next text, unread.
    pub(super) fn value(&mut self) -> Result<Cursor<'a>, Error> {
        if self.framing == Framing::Lengths {
            let len = self.cursor.length()?;
            let at = self.cursor.position();
            self.cursor.take(len)?;
            return Ok(self.cursor.slice(at, len));
        }
        let (at, rest) = (self.cursor.position(), self.cursor.rest());
        if rest.is_empty() {
            return Err(Flaw::Truncated.at(at));
        }
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let len = end.unwrap_or(rest.len());
        let mark = match rest.get(len..) {
            Some([b'\r', b'\n', ..]) => 2,
            Some([_, ..]) => 1,
            _ => 0,
        };
        self.cursor.take(len + mark)?;
        Ok(self.cursor.slice(at, len))
    }

    pub(super) fn text(&mut self) -> Result<Option<Text<'a>>, Error> {
        let mut text = self.value()?;
        let at = text.position();
        match scalar(&mut text)? {
            Scalar::Text(string) => end(&mut text).map(|()| Some(string)),
            Scalar::Null => end(&mut text).map(|()| None),
            _ => Err(Flaw::Not("string").at(at)),
        }
    }

    pub(super) fn attachments(&mut self, each: Each<'_, 'a>) -> Result<(), Error> {
        let mut text = self.value()?;
        blanks(&mut text);
        if text.rest().starts_with(b"null") {
            text.take(4)?;
        } else if self.wrapped {
            members(&mut text, &mut |text, name| match name {
                Some(name) if name.is(b"attachments") => entries(text, each),
                // Messages, which readers so far ignore.
                Some(name) if name.is(b"attachmentsV2") => {
                    entries(text, &mut |key: Text<'a>, _: Scalar<'a>| {
                        each.entry(key, Scalar::Other)
                    })
                }
                _ => scalar(text).map(|_| ()),
            })?;
        } else {
            entries(&mut text, each)?;
        }
        end(&mut text)
    }
}

/// The entries of an object whose keys are strings.
fn entries<'a>(text: &mut Cursor<'a>, each: Each<'_, 'a>) -> Result<(), Error> {
    members(text, &mut |text, name| {
        let (at, value) = (text.position(), scalar(text)?);
        match name {
            Some(name) => each.entry(name, value).map_err(|flaw| flaw.at(at)),
            None => Ok(()),
        }
    })
}

/// What reads the value of a member, given its name if that is a string.
type Member<'m, 'a> = &'m mut dyn FnMut(&mut Cursor<'a>, Option<Text<'a>>) -> Result<(), Error>;

/// The members of an object.
fn members<'a>(text: &mut Cursor<'a>, member: Member<'_, 'a>) -> Result<(), Error> {
    expect(text, b'{', "map")?;
    blanks(text);
    if text.peek() == Some(b'}') {
        text.byte()?;
        return Ok(());
    }
    loop {
        blanks(text);
        let name = match scalar(text)? {
            Scalar::Text(name) => Some(name),
            _ => None,
        };
        expect(text, b':', "entry")?;
        member(text, name)?;
        blanks(text);
        let at = text.position();
        match text.byte()? {
            b',' => {}
            b'}' => return Ok(()),
            other => return Err(Flaw::Tag(other).at(at)),
        }
    }
}

/// The next value; of an object or array only that it is one.
fn scalar<'a>(text: &mut Cursor<'a>) -> Result<Scalar<'a>, Error> {
    blanks(text);
    if text.peek() == Some(b'"') {
        return string(text).map(Scalar::Text);
    }
    let at = text.position();
    let word = pass_over(text)?;
    Ok(match word {
        b"" => return Err(Flaw::Not("value").at(at)),
        b"null" => Scalar::Null,
        b"true" | b"false" => Scalar::Bool(word == b"true"),
        _ => number(word).map_or(Scalar::Other, Scalar::Int),
    })
}

/// A whole number; fastjson marks bytes, shorts and longs by a letter.
fn number(word: &[u8]) -> Option<i64> {
    let word = word.trim_ascii_end();
    let digits = word.strip_suffix(b"L").or_else(|| word.strip_suffix(b"S"));
    let digits = digits.or_else(|| word.strip_suffix(b"B")).unwrap_or(word);
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Walks over a value that is no string, to the comma, colon or bracket behind it.
fn pass_over<'a>(text: &mut Cursor<'a>) -> Result<&'a [u8], Error> {
    let (from, mut depth) = (text.rest(), 0usize);
    let start = text.position();
    while let Some(byte) = text.peek() {
        match byte {
            b'"' => {
                string(text)?;
                continue;
            }
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' | b',' | b':' if depth == 0 => break,
            b'}' | b']' | b')' => depth -= 1,
            _ => {}
        }
        text.byte()?;
    }
    if depth > 0 {
        return Err(Flaw::Truncated.at(text.position()));
    }
    Ok(from.get(..text.position() - start).unwrap_or_default())
}

fn string<'a>(text: &mut Cursor<'a>) -> Result<Text<'a>, Error> {
    expect(text, b'"', "string")?;
    let (from, start, mut escaped) = (text.rest(), text.position(), false);
    loop {
        match text.byte()? {
            b'"' => break,
            b'\\' => {
                escaped = true;
                let at = text.position();
                match text.byte()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' if text.array::<4>()?.iter().all(u8::is_ascii_hexdigit) => {}
                    _ => return Err(Flaw::Text.at(at)),
                }
            }
            _ => {}
        }
    }
    let bytes = from.get(..text.position() - 1 - start).unwrap_or_default();
    Ok(if escaped {
        Text::new(bytes, Coding::Json)
    } else {
        Text::utf8(bytes)
    })
}

fn expect(text: &mut Cursor<'_>, byte: u8, what: &'static str) -> Result<(), Error> {
    blanks(text);
    let at = text.position();
    if text.byte()? == byte {
        Ok(())
    } else {
        Err(Flaw::Not(what).at(at))
    }
}

fn end(text: &mut Cursor<'_>) -> Result<(), Error> {
    blanks(text);
    match text.peek() {
        None => Ok(()),
        Some(_) => Err(Flaw::Trailing.at(text.position())),
    }
}

fn blanks(text: &mut Cursor<'_>) {
    while text.peek().is_some_and(|byte| byte.is_ascii_whitespace()) && text.byte().is_ok() {}
}

/// Appends a string on a line of its own, in ASCII, because the reader's charset is its machine's.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ (b'"' | b'\\')) => out.extend([b'\\', byte]),
            Ok(byte @ b' '..=b'~') => out.push(byte),
            _ => out.extend(format!("\\u{unit:04x}").into_bytes()),
        }
    }
    out.extend(b"\"\n");
}
