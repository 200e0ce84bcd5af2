//! Values of Java: what a method takes and returns, to and from Hessian2.
//!
//! Any type that serde knows is a value. What it becomes in Java:
//!
//! | Rust | Hessian2 | Java |
//! | --- | --- | --- |
//! | `bool` | boolean | `boolean` |
//! | `i8`, `i16`, `i32`, `u8`, `u16` | int | `byte`, `short`, `int` |
//! | `i64`, `u32`, `u64` | long | `long` |
//! | `f32`, `f64` | double | `float`, `double` |
//! | `char`, `String`, `&str` | string | `String` |
//! | bytes (`serialize_bytes`) | binary | `byte[]` |
//! | `None`, `()` | null | `null` |
//! | a sequence or tuple | list | `List` |
//! | a map, a struct | map | `Map` |
//! | a struct with a dot in its name | object of that class | that class |
//! | a variant of an enum with a dot in its name | object of that class | that constant |
//! | any other variant without content | string | `String` |
//!
//! A name with a dot is given with serde's own attribute:
//!
//! ```
//! #[derive(serde::Serialize, serde::Deserialize)]
//! #[serde(rename = "com.foo.Item", rename_all = "camelCase")]
//! struct Item {
//!     unit_price: i64,
//! }
//! let value = thin_sdk::value::to_value(&Item { unit_price: 3 })?;
//! assert_eq!(value, thin_sdk::Object::class("com.foo.Item").field("unitPrice", 3i64).into());
//! # Ok::<(), thin_sdk::value::Error>(())
//! ```
//! Where no type is at hand, a [`Value`] is built by hand, with [`Object`] for objects. On the way
//! back the class is not looked at: a struct takes the fields that it knows of any object or map.

mod de;
mod read;
mod ser;
#[cfg(test)]
mod tests;

use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::invocation::descriptor;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use read::{exception, result, values};

/// A value with everything in it, owned.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Java's byte, short and int.
    Int(i32),
    /// Java's long.
    Long(i64),
    /// Java's float and double.
    Double(f64),
    /// Milliseconds since 1970 UTC: Java's `Date`.
    Date(i64),
    /// A string, or Java's char.
    Text(String),
    /// Java's `byte[]`.
    Binary(Vec<u8>),
    /// A list, set or array.
    List {
        /// Its Java class, or an array type such as `[string`; `None` for Java's choice, a list.
        type_name: Option<String>,
        /// What is in it.
        values: Vec<Self>,
    },
    /// A map.
    Map {
        /// Its Java class; `None` for Java's choice.
        type_name: Option<String>,
        /// Keys and values, in order.
        entries: Vec<(Self, Self)>,
    },
    /// An object.
    Object(Object),
}

/// An object of a Java class.
///
/// ```
/// use thin_sdk::{Object, Value};
///
/// let item = Object::class("com.foo.Item").field("id", 7).field("name", "chair");
/// assert_eq!(item.get("id"), Some(&Value::Int(7)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub(crate) class: String,
    pub(crate) fields: Vec<(String, Value)>,
}

/// Why a value cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its bytes are broken, or over a limit.
    #[error("malformed value")]
    Malformed(#[source] dubbo_proto::error::Error),
    /// It contains itself, which no Rust type can.
    #[error("a value that contains itself")]
    Cycle,
    /// With what it repeats written out it is over a limit.
    #[error("too many {0} with what is repeated written out")]
    Limit(&'static str),
    /// A whole number over 63 bits, which Java has no type for.
    #[error("{0} does not fit into a long")]
    Number(u64),
    /// It is of another type than the one asked for, or its own serde code refuses it.
    #[error("{0}")]
    Mismatch(String),
}

impl Object {
    /// An object of `class` without fields.
    pub fn class(class: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            fields: Vec::new(),
        }
    }

    /// With a field, behind those it has.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// The name of its class.
    #[must_use]
    pub fn class_name(&self) -> &str {
        &self.class
    }

    /// A field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        fields.find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Its fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(name, value)| (&**name, value))
    }
}

impl Value {
    /// Appends the value, in Hessian2.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Null => writer.null(),
            Self::Bool(value) => writer.bool(*value),
            Self::Int(value) => writer.int(*value),
            Self::Long(value) => writer.long(*value),
            Self::Double(value) => writer.double(*value),
            Self::Date(millis) => writer.date(*millis),
            Self::Text(text) => writer.text(text),
            Self::Binary(bytes) => writer.binary(bytes),
            Self::List { type_name, values } => {
                let len = u32::try_from(values.len()).unwrap_or(u32::MAX);
                writer.list(len, type_name.as_deref());
                for value in values {
                    value.write(writer);
                }
            }
            Self::Map { type_name, entries } => {
                writer.map(type_name.as_deref());
                for (key, value) in entries {
                    key.write(writer);
                    value.write(writer);
                }
                writer.end();
            }
            Self::Object(Object { class, fields }) => {
                let names: Vec<_> = fields.iter().map(|(name, _)| &**name).collect();
                writer.object(class, &names);
                for (_, value) in fields {
                    value.write(writer);
                }
            }
        }
    }

    /// The value as a generic call carries it: each object is a map with its class.
    pub(crate) fn generalized(self) -> Self {
        match self {
            Self::Object(Object { class, fields }) => {
                let class = (Self::from("class"), Self::from(class));
                let fields = fields.into_iter();
                let fields = fields.map(|(name, value)| (name.into(), value.generalized()));
                Self::Map {
                    type_name: None,
                    entries: std::iter::once(class).chain(fields).collect(),
                }
            }
            Self::List { type_name, values } => Self::List {
                type_name,
                values: values.into_iter().map(Self::generalized).collect(),
            },
            Self::Map { type_name, entries } => {
                let entries = entries.into_iter();
                let entries = entries.map(|(k, v)| (k.generalized(), v.generalized()));
                Self::Map {
                    type_name,
                    entries: entries.collect(),
                }
            }
            value => value,
        }
    }

    /// The JVM descriptor of the parameter that such an argument suggests. A method whose
    /// parameters are others needs them said: [`crate::Call::arg_as`].
    pub(crate) fn descriptor(&self) -> String {
        let class = match self {
            Self::Bool(_) => return "Z".into(),
            Self::Int(_) => return "I".into(),
            Self::Long(_) => return "J".into(),
            Self::Double(_) => return "D".into(),
            Self::Binary(_) => return "[B".into(),
            Self::Null => "java.lang.Object",
            Self::Date(_) => "java.util.Date",
            Self::Text(_) => "java.lang.String",
            Self::List { .. } => "java.util.List",
            Self::Map { .. } => "java.util.Map",
            Self::Object(object) => &object.class,
        };
        descriptor(class)
    }
}

/// The value that a type becomes.
///
/// # Errors
/// [`Error::Number`], or what the type's own serde code says.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Error> {
    value.serialize(ser::Serializer)
}

/// The type that a value is.
///
/// # Errors
/// [`Error::Mismatch`] if it is another.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(de::Deserializer(value))
}

macro_rules! from {
    ($($type:ty => |$value:ident| $make:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $make
            }
        }
    )*};
}

from! {
    bool => |value| Self::Bool(value);
    i32 => |value| Self::Int(value);
    i64 => |value| Self::Long(value);
    f64 => |value| Self::Double(value);
    &str => |value| Self::Text(value.to_owned());
    String => |value| Self::Text(value);
    Object => |value| Self::Object(value);
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List {
            type_name: None,
            values: values.into_iter().map(Into::into).collect(),
        }
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Names by which a [`Value`] tells our own serializer and deserializer what serde has no word
/// for. No type of anybody's has such a name.
mod marks {
    pub(super) const VALUE: &str = "\0value";
    pub(super) const DATE: &str = "\0date";
    pub(super) const LIST: &str = "\0list";
    pub(super) const MAP: &str = "\0map";
    pub(super) const OBJECT: &str = "\0object";
}
