//! Whole values, for whoever must look inside: rules on arguments, tests, tools.

use super::{Binary, Limits, Reader, Token, writer::Writer};
use crate::{
    error::{Error, Flaw},
    text::Text,
};

/// A value with everything in it. Texts and bytes stay in the frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
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
    /// A list, or an array.
    List {
        /// Its reference slot.
        slot: u32,
        /// Its type, if it has one.
        type_name: Option<Text<'a>>,
        /// What is in it.
        values: Vec<Self>,
    },
    /// A map.
    Map {
        /// Its reference slot.
        slot: u32,
        /// Its type, if it has one.
        type_name: Option<Text<'a>>,
        /// Keys and values, in the order of the wire.
        entries: Vec<(Self, Self)>,
    },
    /// An object.
    Object {
        /// Its reference slot.
        slot: u32,
        /// The name of its class.
        class: Text<'a>,
        /// Its fields, in the order of the wire. A name may come twice.
        fields: Vec<(Text<'a>, Self)>,
    },
    /// The list, map or object with this slot.
    Reference(u32),
}

impl<'a> Value<'a> {
    /// Reads the next value.
    ///
    /// # Errors
    /// Any [`Flaw`], with its offset; of the limits also [`Limits::decode_depth`] and
    /// [`Limits::decode_values`].
    pub fn read(reader: &mut Reader<'a, '_>) -> Result<Self, Error> {
        let Limits {
            decode_depth,
            decode_values,
            ..
        } = *reader.limits();
        let mut left = Left {
            levels: decode_depth,
            values: decode_values,
        };
        match left.next(reader)? {
            Some(value) => Ok(value),
            None => Err(Flaw::Not("value").at(reader.position())),
        }
    }

    /// Appends the value in the shortest form.
    pub fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Null => writer.null(),
            Self::Bool(value) => writer.bool(*value),
            Self::Int(value) => writer.int(*value),
            Self::Long(value) => writer.long(*value),
            Self::Double(value) => writer.double(*value),
            Self::Date(millis) => writer.date(*millis),
            Self::Text(text) => writer.units(&text.units().collect::<Vec<_>>()),
            Self::Binary(bytes) => writer.binary(&bytes.chunks().collect::<Vec<_>>().concat()),
            Self::List {
                type_name, values, ..
            } => {
                let len = u32::try_from(values.len()).unwrap_or(u32::MAX);
                writer.list(len, type_name.map(|name| name.to_string()).as_deref());
                for value in values {
                    value.write(writer);
                }
            }
            Self::Map {
                type_name, entries, ..
            } => {
                writer.map(type_name.map(|name| name.to_string()).as_deref());
                for (key, value) in entries {
                    key.write(writer);
                    value.write(writer);
                }
                writer.end();
            }
            Self::Object { class, fields, .. } => {
                let names: Vec<_> = fields.iter().map(|(name, _)| name.to_string()).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                writer.object(&class.to_string(), &names);
                for (_, value) in fields {
                    value.write(writer);
                }
            }
            Self::Reference(slot) => writer.reference(*slot),
        }
    }
}

/// What may still be built.
struct Left {
    levels: usize,
    values: usize,
}

impl Left {
    /// The next value; `None` at the end of the container that is open.
    fn next<'a>(&mut self, reader: &mut Reader<'a, '_>) -> Result<Option<Value<'a>>, Error> {
        let offset = reader.position();
        let over = |what| Flaw::Limit(what).at(offset);
        let token = reader.token()?;
        if token == Token::End {
            return Ok(None);
        }
        self.values = self.values.checked_sub(1).ok_or_else(|| over("values"))?;
        self.levels = self.levels.checked_sub(1).ok_or_else(|| over("levels"))?;
        let value = self.build(reader, token)?;
        self.levels += 1;
        Ok(Some(value))
    }

    fn build<'a>(
        &mut self,
        reader: &mut Reader<'a, '_>,
        token: Token<'a>,
    ) -> Result<Value<'a>, Error> {
        Ok(match token {
            Token::Null | Token::End => Value::Null,
            Token::Bool(value) => Value::Bool(value),
            Token::Int(value) => Value::Int(value),
            Token::Long(value) => Value::Long(value),
            Token::Double(value) => Value::Double(value),
            Token::Date(millis) => Value::Date(millis),
            Token::Text(text) => Value::Text(text),
            Token::Binary(bytes) => Value::Binary(bytes),
            Token::Reference(slot) => Value::Reference(slot),
            Token::List { slot, type_index } => {
                let type_name = type_index.and_then(|index| reader.type_name(index));
                let mut values = Vec::new();
                while let Some(value) = self.next(reader)? {
                    values.push(value);
                }
                Value::List {
                    slot,
                    type_name,
                    values,
                }
            }
            Token::Map { slot, type_index } => {
                let type_name = type_index.and_then(|index| reader.type_name(index));
                let mut entries = Vec::new();
                while let Some(key) = self.next(reader)? {
                    let value = self.next(reader)?;
                    entries.push((key, value.unwrap_or(Value::Null)));
                }
                Value::Map {
                    slot,
                    type_name,
                    entries,
                }
            }
            Token::Object { slot, class_index } => self.object(reader, slot, class_index)?,
        })
    }

    fn object<'a>(
        &mut self,
        reader: &mut Reader<'a, '_>,
        slot: u32,
        class_index: u32,
    ) -> Result<Value<'a>, Error> {
        let unknown = Flaw::Index("class").at(reader.position());
        let class = reader.class(class_index).ok_or(unknown)?;
        let (mut fields, mut names) = (Vec::new(), class.fields());
        while let Some(value) = self.next(reader)? {
            fields.push((names.next().unwrap_or_default(), value));
        }
        Ok(Value::Object {
            slot,
            class: class.name,
            fields,
        })
    }
}
