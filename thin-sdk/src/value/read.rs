//! From the bytes of a body to owned values: references are written out.

use std::collections::{HashMap, HashSet};

use dubbo_proto::hessian2::{self, Limits, Reader, Tables};

use super::{Error, Object, Value};
use crate::error::Exception;

/// A value as it stands in the body.
type Raw<'a> = hessian2::Value<'a>;

/// Reads `count` values that stand `at` so many bytes into `body`. They share their references.
///
/// # Errors
/// Broken bytes, a value that contains itself, or more than the limits allow.
pub(crate) fn values(body: &[u8], at: usize, count: usize) -> Result<Vec<Value>, Error> {
    let roots = raw(body, at, count)?;
    let mut copy = Copy {
        roots: &roots,
        slots: None,
        open: Vec::new(),
        left: Limits::default().decode_values,
    };
    roots.iter().map(|raw| copy.value(raw)).collect()
}

/// The class and the message of the exception in the body of an answer.
///
/// Not by way of a [`Value`]: a `Throwable` without a cause is its own cause.
///
/// # Errors
/// Broken bytes.
pub(crate) fn exception(body: &[u8]) -> Result<Exception, Error> {
    let roots = raw(body, 0, 2)?;
    let (class, message) = match roots.last() {
        Some(Raw::Object { class, fields, .. }) => {
            let field = |wanted: &str| {
                let mut fields = fields.iter();
                let found = fields.find(|(name, _)| name.is(wanted.as_bytes()));
                match found {
                    Some((_, Raw::Text(text))) => Some(text.to_string()),
                    _ => None,
                }
            };
            let class = class.to_string();
            if class.ends_with(".GenericException") {
                let inner = field("exceptionClass").unwrap_or(class);
                (inner, field("exceptionMessage").unwrap_or_default())
            } else {
                (class, field("detailMessage").unwrap_or_default())
            }
        }
        Some(Raw::Map {
            type_name: Some(class),
            ..
        }) => (class.to_string(), String::new()),
        Some(Raw::Text(text)) => (String::new(), text.to_string()),
        _ => (String::new(), String::new()),
    };
    Ok(Exception { class, message })
}

/// The value in the body of an answer, behind its type.
///
/// # Errors
/// As [`values`].
pub(crate) fn result(body: &[u8]) -> Result<Value, Error> {
    let mut both = values(body, 0, 2)?;
    Ok(both.pop().unwrap_or(Value::Null))
}

fn raw(body: &[u8], at: usize, count: usize) -> Result<Vec<Raw<'_>>, Error> {
    let (limits, mut tables) = (Limits::default(), Tables::default());
    let mut reader = Reader::new(body, &limits, &mut tables);
    reader.restart(at);
    let read = (0..count).map(|_| Raw::read(&mut reader));
    read.collect::<Result<_, _>>().map_err(Error::Malformed)
}

/// Copies values out of a body.
struct Copy<'r, 'a> {
    roots: &'r [Raw<'a>],
    /// Where each list, map and object stands; made when the first reference is met.
    slots: Option<HashMap<u32, &'r Raw<'a>>>,
    /// The containers around the value that is copied.
    open: Vec<u32>,
    /// Values that may still be made: what is referred to counts each time.
    left: usize,
}

impl<'r, 'a> Copy<'r, 'a> {
    fn value(&mut self, raw: &'r Raw<'a>) -> Result<Value, Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::Limit("values"))?;
        Ok(match raw {
            Raw::Null => Value::Null,
            Raw::Bool(value) => Value::Bool(*value),
            Raw::Int(value) => Value::Int(*value),
            Raw::Long(value) => Value::Long(*value),
            Raw::Double(value) => Value::Double(*value),
            Raw::Date(millis) => Value::Date(*millis),
            Raw::Text(text) => Value::Text(text.to_string()),
            Raw::Binary(bytes) => Value::Binary(bytes.chunks().collect::<Vec<_>>().concat()),
            Raw::List {
                slot,
                type_name,
                values,
            } => {
                self.enter(*slot)?;
                let copied = values.iter().map(|value| self.value(value)).collect();
                let values = self.leave(copied)?;
                let type_name = type_name.map(|name| name.to_string());
                Value::List { type_name, values }
            }
            Raw::Map {
                slot,
                type_name,
                entries,
            } => {
                self.enter(*slot)?;
                let entries = entries.iter();
                let copied = entries.map(|(k, v)| Ok((self.value(k)?, self.value(v)?)));
                let copied = copied.collect();
                let entries = self.leave(copied)?;
                let type_name = type_name.map(|name| name.to_string());
                Value::Map { type_name, entries }
            }
            Raw::Object {
                slot,
                class,
                fields,
            } => {
                self.enter(*slot)?;
                let copied = self.fields(fields);
                let fields = self.leave(copied)?;
                let class = class.to_string();
                Value::Object(Object { class, fields })
            }
            Raw::Reference(slot) => {
                let roots = self.roots;
                let slots = self.slots.get_or_insert_with(|| places(roots));
                let meant = slots.get(slot).copied();
                self.value(meant.unwrap_or(&Raw::Null))?
            }
        })
    }

    /// A name that comes twice is a field that a subclass hides: its own comes first.
    fn fields(
        &mut self,
        fields: &'r [(dubbo_proto::text::Text<'a>, Raw<'a>)],
    ) -> Result<Vec<(String, Value)>, Error> {
        let mut seen = HashSet::with_capacity(fields.len());
        let mut copied = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let name = name.to_string();
            let value = self.value(value)?;
            if seen.insert(name.clone()) {
                copied.push((name, value));
            }
        }
        Ok(copied)
    }

    fn enter(&mut self, slot: u32) -> Result<(), Error> {
        if self.open.contains(&slot) {
            return Err(Error::Cycle);
        }
        if self.open.len() >= Limits::default().decode_depth {
            return Err(Error::Limit("levels"));
        }
        self.open.push(slot);
        Ok(())
    }

    fn leave<T>(&mut self, copied: Result<T, Error>) -> Result<T, Error> {
        self.open.pop();
        copied
    }
}

/// Where each list, map and object stands.
fn places<'r, 'a>(roots: &'r [Raw<'a>]) -> HashMap<u32, &'r Raw<'a>> {
    let mut places = HashMap::new();
    let mut stack: Vec<_> = roots.iter().collect();
    while let Some(raw) = stack.pop() {
        match raw {
            Raw::List { slot, values, .. } => {
                places.insert(*slot, raw);
                stack.extend(values);
            }
            Raw::Map { slot, entries, .. } => {
                places.insert(*slot, raw);
                stack.extend(entries.iter().flat_map(|(key, value)| [key, value]));
            }
            Raw::Object { slot, fields, .. } => {
                places.insert(*slot, raw);
                stack.extend(fields.iter().map(|(_, value)| value));
            }
            _ => {}
        }
    }
    places
}
