//! From serde to a [`Value`].
//!
//! A tree and not bytes: the definition of a class needs the names of all fields before the first
//! value, which serde gives one by one.

use serde::Serialize;
use serde::ser::{self, SerializeTuple};

use super::{Error, Object, Value, marks};

/// Makes a value of whatever it is given.
#[derive(Clone, Copy)]
pub(super) struct Serializer;

impl ser::Serializer for Serializer {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = Variant<List>;
    type SerializeMap = Map;
    type SerializeStruct = Struct;
    type SerializeStructVariant = Variant<Struct>;

    fn serialize_bool(self, value: bool) -> Result<Value, Error> {
        Ok(Value::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<Value, Error> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_i16(self, value: i16) -> Result<Value, Error> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_i32(self, value: i32) -> Result<Value, Error> {
        Ok(Value::Int(value))
    }

    fn serialize_i64(self, value: i64) -> Result<Value, Error> {
        Ok(Value::Long(value))
    }

    fn serialize_u8(self, value: u8) -> Result<Value, Error> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_u16(self, value: u16) -> Result<Value, Error> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_u32(self, value: u32) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_u64(self, value: u64) -> Result<Value, Error> {
        let long = i64::try_from(value).map_err(|_| Error::Number(value))?;
        Ok(Value::Long(long))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, Error> {
        Ok(Value::Double(value.into()))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, Error> {
        Ok(Value::Double(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, Error> {
        Ok(Value::Text(value.into()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, Error> {
        Ok(Value::Text(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Error> {
        Ok(Value::Binary(value.to_owned()))
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Value, Error> {
        ser::Serializer::serialize_struct(self, name, 0).and_then(ser::SerializeStruct::end)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Value, Error> {
        Ok(if is_class(name) {
            // As Java's `EnumSerializer` writes a constant.
            Object::class(name).field("name", variant).into()
        } else {
            variant.into()
        })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        let inner = value.serialize(self)?;
        Ok(match name {
            marks::DATE | marks::LIST | marks::MAP | marks::OBJECT => marked(name, inner),
            _ => inner,
        })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        Ok(tagged(variant, value.serialize(self)?))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List, Error> {
        // The length is what somebody says, not what comes.
        Ok(List(Vec::with_capacity(len.unwrap_or(0).min(1024))))
    }

    fn serialize_tuple(self, len: usize) -> Result<List, Error> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<List, Error> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Variant<List>, Error> {
        let content = self.serialize_seq(Some(len))?;
        Ok(Variant { variant, content })
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Map, Error> {
        Ok(Map::default())
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Struct, Error> {
        let fields = Vec::with_capacity(len);
        Ok(Struct { name, fields })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Variant<Struct>, Error> {
        let content = self.serialize_struct("", len)?;
        Ok(Variant { variant, content })
    }
}

/// A sequence that grows.
pub(super) struct List(Vec<Value>);

/// A map that grows.
#[derive(Default)]
pub(super) struct Map {
    entries: Vec<(Value, Value)>,
    key: Option<Value>,
}

/// A struct that grows.
pub(super) struct Struct {
    name: &'static str,
    fields: Vec<(String, Value)>,
}

/// A variant with content that grows.
pub(super) struct Variant<T> {
    variant: &'static str,
    content: T,
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.0.push(value.serialize(Serializer)?);
        Ok(())
    }

    fn value(self) -> Value {
        Value::List {
            type_name: None,
            values: self.0,
        }
    }
}

impl Struct {
    fn push<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        let value = value.serialize(Serializer)?;
        self.fields.push((name.to_owned(), value));
        Ok(())
    }

    fn value(self) -> Value {
        let fields = self.fields;
        if is_class(self.name) {
            let class = self.name.to_owned();
            return Value::Object(Object { class, fields });
        }
        let entries = fields.into_iter();
        Value::Map {
            type_name: None,
            entries: entries.map(|(name, value)| (name.into(), value)).collect(),
        }
    }
}

impl ser::SerializeSeq for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.value())
    }
}

impl SerializeTuple for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.value())
    }
}

impl ser::SerializeTupleStruct for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.value())
    }
}

impl ser::SerializeTupleVariant for Variant<List> {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.content.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(tagged(self.variant, self.content.value()))
    }
}

impl ser::SerializeMap for Map {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(key.serialize(Serializer)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().unwrap_or(Value::Null);
        self.entries.push((key, value.serialize(Serializer)?));
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Map {
            type_name: None,
            entries: self.entries,
        })
    }
}

impl ser::SerializeStruct for Struct {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.push(name, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.value())
    }
}

impl ser::SerializeStructVariant for Variant<Struct> {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.content.push(name, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(tagged(self.variant, self.content.value()))
    }
}

impl Serialize for Value {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i32(*value),
            Self::Long(value) => serializer.serialize_i64(*value),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Binary(bytes) => serializer.serialize_bytes(bytes),
            Self::Date(millis) => serializer.serialize_newtype_struct(marks::DATE, millis),
            Self::List {
                type_name: None,
                values,
            } => serializer.collect_seq(values),
            Self::List { type_name, values } => {
                serializer.serialize_newtype_struct(marks::LIST, &(type_name, values))
            }
            Self::Map {
                type_name: None,
                entries,
            } => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
            Self::Map { type_name, entries } => {
                serializer.serialize_newtype_struct(marks::MAP, &(type_name, entries))
            }
            Self::Object(Object { class, fields }) => {
                serializer.serialize_newtype_struct(marks::OBJECT, &(class, fields))
            }
        }
    }
}

impl Serialize for Object {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { class, fields } = self;
        serializer.serialize_newtype_struct(marks::OBJECT, &(class, fields))
    }
}

impl ser::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Mismatch(text.to_string())
    }
}

/// Whether a type is named as a class of Java.
fn is_class(name: &str) -> bool {
    name.contains('.')
}

/// A variant as most others of serde's formats have it.
fn tagged(variant: &'static str, content: Value) -> Value {
    Value::Map {
        type_name: None,
        entries: vec![(variant.into(), content)],
    }
}

/// Puts together what [`Value::serialize`] took apart.
fn marked(mark: &str, inner: Value) -> Value {
    match (mark, inner) {
        (marks::DATE, Value::Long(millis)) => Value::Date(millis),
        (marks::LIST, inner) => {
            let (type_name, values) = halves(inner);
            Value::List { type_name, values }
        }
        (marks::MAP, inner) => {
            let (type_name, entries) = halves(inner);
            Value::Map {
                type_name,
                entries: entries.into_iter().filter_map(pair).collect(),
            }
        }
        (marks::OBJECT, inner) => {
            let (class, fields) = halves(inner);
            let fields = fields.into_iter().filter_map(pair);
            let named = fields.filter_map(|(name, value)| Some((text(name)?, value)));
            Value::Object(Object {
                class: class.unwrap_or_default(),
                fields: named.collect(),
            })
        }
        (_, inner) => inner,
    }
}

/// A name, and a list.
fn halves(value: Value) -> (Option<String>, Vec<Value>) {
    match pair(value) {
        Some((name, Value::List { values, .. })) => (text(name), values),
        _ => (None, Vec::new()),
    }
}

fn pair(value: Value) -> Option<(Value, Value)> {
    let Value::List { values, .. } = value else {
        return None;
    };
    let [first, second] = <[Value; 2]>::try_from(values).ok()?;
    Some((first, second))
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
