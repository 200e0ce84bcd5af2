//! From a [`Value`] to what serde makes of it.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{self, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::{Error, Object, Value, marks};

/// Gives a value away.
pub(super) struct Deserializer(pub(super) Value);

impl<'de> de::Deserializer<'de> for Deserializer {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i32(value),
            Value::Long(value) | Value::Date(value) => visitor.visit_i64(value),
            Value::Double(value) => visitor.visit_f64(value),
            Value::Text(text) => visitor.visit_string(text),
            Value::Binary(bytes) => visitor.visit_byte_buf(bytes),
            Value::List { values, .. } => list(values, visitor),
            Value::Map { entries, .. } => {
                let entries = entries.into_iter();
                map(entries.map(|(k, v)| (Self(k), Self(v))), visitor)
            }
            Value::Object(object) => {
                let fields = object.fields.into_iter();
                map(fields.map(|(name, value)| (name, Self(value))), visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name != marks::VALUE {
            return visitor.visit_newtype_struct(self);
        }
        // A value asks for a value: serde has no word for what follows.
        match self.0 {
            Value::Date(_)
            | Value::List {
                type_name: Some(_), ..
            }
            | Value::Map {
                type_name: Some(_), ..
            }
            | Value::Object(_) => visitor.visit_enum(Marked(self.0)),
            value => Self(value).deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Binary(bytes) => {
                let mut bytes = SeqDeserializer::new(bytes.into_iter());
                let value = visitor.visit_seq(&mut bytes)?;
                bytes.end()?;
                Ok(value)
            }
            value => Self(value).deserialize_any(visitor),
        }
    }

    /// A method that returns nothing answers null.
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (variant, content) = match self.0 {
            Value::Text(variant) => (variant, None),
            Value::Object(Object { fields, .. }) => match constant(fields) {
                Some(variant) => (variant, None),
                None => return Err(de::Error::custom(format!("an object is no {name}"))),
            },
            Value::Map { mut entries, .. } if entries.len() == 1 => match entries.pop() {
                Some((Value::Text(variant), content)) => (variant, Some(content)),
                _ => return Err(de::Error::unknown_variant("", variants)),
            },
            _ => return Err(de::Error::unknown_variant("", variants)),
        };
        visitor.visit_enum(Variant { variant, content })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Deserializer {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A variant by its name, with its content if it has some.
struct Variant {
    variant: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<S: de::DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content), Error> {
        let name: StringDeserializer<Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, Content(self.content)))
    }
}

/// What stands in a variant.
struct Content(Option<Value>);

impl Content {
    fn value(self) -> Deserializer {
        Deserializer(self.0.unwrap_or(Value::Null))
    }
}

impl<'de> VariantAccess<'de> for Content {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0 {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(de::Error::custom("content in a variant that has none")),
        }
    }

    fn newtype_variant_seed<S: de::DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.value())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self.value(), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self.value(), visitor)
    }
}

/// A value that serde has no word for, on its way to a [`Value`].
struct Marked(Value);

impl<'de> EnumAccess<'de> for Marked {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<S: de::DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content), Error> {
        let two = |name: Option<String>, values: Vec<Value>| {
            vec![Value::from(name), Value::from(values)].into()
        };
        let pair = |first: Value, second: Value| Value::from(vec![first, second]);
        let (mark, content) = match self.0 {
            Value::Date(millis) => (marks::DATE, Value::Long(millis)),
            Value::List { type_name, values } => (marks::LIST, two(type_name, values)),
            Value::Map { type_name, entries } => {
                let entries = entries.into_iter().map(|(k, v)| pair(k, v));
                (marks::MAP, two(type_name, entries.collect()))
            }
            Value::Object(Object { class, fields }) => {
                let fields = fields.into_iter().map(|(k, v)| pair(k.into(), v));
                (marks::OBJECT, two(Some(class), fields.collect()))
            }
            other => (marks::VALUE, other),
        };
        let mark: de::value::StrDeserializer<'_, Error> = mark.into_deserializer();
        Ok((seed.deserialize(mark)?, Content(Some(content))))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(marks::VALUE, Whole)
    }
}

/// Takes any value whole.
struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_newtype_struct<D: de::Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i32<E>(self, value: i32) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Long(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        let long = i64::try_from(value).map_err(|_| E::custom(Error::Number(value)))?;
        Ok(Value::Long(long))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Double(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(Value::Binary(bytes.to_owned()))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Value, E> {
        Ok(Value::Binary(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values: Vec<Value> = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map {
            type_name: None,
            entries,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        let (mark, content) = data.variant::<String>()?;
        Ok(match &*mark {
            marks::DATE => Value::Date(content.newtype_variant()?),
            marks::LIST => {
                let (type_name, values) = content.newtype_variant()?;
                Value::List { type_name, values }
            }
            marks::MAP => {
                let (type_name, entries) = content.newtype_variant()?;
                Value::Map { type_name, entries }
            }
            marks::OBJECT => {
                let (class, fields) = content.newtype_variant()?;
                Value::Object(Object { class, fields })
            }
            _ => content.newtype_variant()?,
        })
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Mismatch(text.to_string())
    }
}

fn list<'de, V: Visitor<'de>>(values: Vec<Value>, visitor: V) -> Result<V::Value, Error> {
    let mut values = SeqDeserializer::new(values.into_iter().map(Deserializer));
    let value = visitor.visit_seq(&mut values)?;
    values.end()?;
    Ok(value)
}

fn map<'de, K, I, V>(entries: I, visitor: V) -> Result<V::Value, Error>
where
    K: IntoDeserializer<'de, Error>,
    I: Iterator<Item = (K, Deserializer)>,
    V: Visitor<'de>,
{
    let mut entries = MapDeserializer::new(entries);
    let value = visitor.visit_map(&mut entries)?;
    entries.end()?;
    Ok(value)
}

/// The constant that a Java enum is, by its name.
fn constant(fields: Vec<(String, Value)>) -> Option<String> {
    let mut names = fields.into_iter().filter(|(field, _)| field == "name");
    match names.next() {
        Some((_, Value::Text(name))) => Some(name),
        _ => None,
    }
}
