//! Arguments of a call: from JSON to Hessian2, with the parameter types they suggest.

use dubbo_proto::hessian2::writer::Writer;
use dubbo_proto::invocation::descriptor;
use serde_json::{Map, Number, Value};

/// The arguments of a call.
#[derive(Debug, PartialEq)]
pub(super) struct Arguments {
    /// Values in Hessian2, one after another.
    pub(super) encoded: Vec<u8>,
    /// JVM descriptors, one after another.
    pub(super) types: String,
    count: usize,
}

/// Why there are no such arguments.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON.
    #[error("argument {text:?} is not JSON; a string needs quotes")]
    Json {
        /// What was given.
        text: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A whole number over 64 bits.
    #[error("{0} does not fit into a long")]
    Number(Number),
    /// A `class` that is no text.
    #[error("the `class` of an object must be a string, not {0}")]
    Class(Value),
    /// `--types` that do not match.
    #[error("{types} types for {arguments} arguments")]
    Count {
        /// Types given.
        types: usize,
        /// Arguments given.
        arguments: usize,
    },
}

impl Arguments {
    /// One string of `len` bytes.
    pub(super) fn payload(len: usize) -> Self {
        let mut encoded = Vec::new();
        Writer::new(&mut encoded).text(&"x".repeat(len));
        Self {
            encoded,
            types: "Ljava/lang/String;".to_owned(),
            count: 1,
        }
    }

    /// One argument for each text.
    pub(super) fn from_json(texts: &[String]) -> Result<Self, Error> {
        let (mut encoded, mut types) = (Vec::new(), String::new());
        let mut writer = Writer::new(&mut encoded);
        for text in texts {
            let value = serde_json::from_str(text).map_err(|source| Error::Json {
                text: text.clone(),
                source,
            })?;
            write(&mut writer, &value)?;
            types.push_str(&type_of(&value)?);
        }
        Ok(Self {
            encoded,
            types,
            count: texts.len(),
        })
    }

    /// The descriptors of `types`, given as Java names or as descriptors.
    pub(super) fn with_types(&self, types: &[String]) -> Result<String, Error> {
        if types.len() != self.count {
            return Err(Error::Count {
                types: types.len(),
                arguments: self.count,
            });
        }
        Ok(types.iter().map(|name| descriptor(name)).collect())
    }
}

fn write(writer: &mut Writer<'_>, value: &Value) -> Result<(), Error> {
    match value {
        Value::Null => writer.null(),
        Value::Bool(value) => writer.bool(*value),
        Value::Number(number) => match classify(number)? {
            Numeral::Int(int) => writer.int(int),
            Numeral::Long(long) => writer.long(long),
            Numeral::Double(double) => writer.double(double),
        },
        Value::String(text) => writer.text(text),
        Value::Array(values) => {
            writer.list(u32::try_from(values.len()).unwrap_or(u32::MAX), None);
            for value in values {
                write(writer, value)?;
            }
        }
        Value::Object(entries) => match class(entries)? {
            Some(class) => {
                let fields = || entries.iter().filter(|(name, _)| *name != CLASS);
                let names: Vec<_> = fields().map(|(name, _)| name.as_str()).collect();
                writer.object(class, &names);
                for (_, value) in fields() {
                    write(writer, value)?;
                }
            }
            None => {
                writer.map(None);
                for (name, value) in entries {
                    writer.text(name);
                    write(writer, value)?;
                }
                writer.end();
            }
        },
    }
    Ok(())
}

fn type_of(value: &Value) -> Result<String, Error> {
    let name = match value {
        Value::Null => "java.lang.Object",
        Value::Bool(_) => "boolean",
        Value::Number(number) => match classify(number)? {
            Numeral::Int(_) => "int",
            Numeral::Long(_) => "long",
            Numeral::Double(_) => "double",
        },
        Value::String(_) => "java.lang.String",
        Value::Array(_) => "java.util.List",
        Value::Object(entries) => class(entries)?.unwrap_or("java.util.Map"),
    };
    Ok(descriptor(name))
}

enum Numeral {
    Int(i32),
    Long(i64),
    Double(f64),
}

fn classify(number: &Number) -> Result<Numeral, Error> {
    if let Some(whole) = number.as_i64() {
        return Ok(i32::try_from(whole).map_or(Numeral::Long(whole), Numeral::Int));
    }
    let double = number.as_f64().filter(|_| number.is_f64());
    double
        .map(Numeral::Double)
        .ok_or_else(|| Error::Number(number.clone()))
}

fn class(entries: &Map<String, Value>) -> Result<Option<&str>, Error> {
    match entries.get(CLASS) {
        None => Ok(None),
        Some(Value::String(class)) => Ok(Some(class)),
        Some(other) => Err(Error::Class(other.clone())),
    }
}

/// The key that makes an object of a map.
const CLASS: &str = "class";

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(texts: &[&str]) -> Result<Arguments, Error> {
        Arguments::from_json(
            &texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn json_suggests_types() {
        let cases: &[(&str, &str, &[u8])] = &[
            ("\"hi\"", "Ljava/lang/String;", b"\x02hi"),
            ("7", "I", b"\x97"),
            ("-3000000000", "J", b"L\xff\xff\xff\xff\x4d\x2f\xa2\x00"),
            ("1.0", "D", b"\x5c"),
            ("true", "Z", b"T"),
            ("null", "Ljava/lang/Object;", b"N"),
            ("[1,\"a\"]", "Ljava/util/List;", b"\x7a\x91\x01a"),
            (
                "{\"b\":1,\"a\":2}",
                "Ljava/util/Map;",
                b"H\x01b\x91\x01a\x92Z",
            ),
            (
                "{\"class\":\"a.B\",\"n\":1}",
                "La/B;",
                b"C\x03a.B\x91\x01n\x60\x91",
            ),
        ];
        for (json, types, encoded) in cases {
            let arguments = arguments(&[json]).expect(json);
            assert_eq!(arguments.types, *types, "{json}");
            assert_eq!(
                arguments.encoded, *encoded,
                "{json}: {:x?}",
                arguments.encoded
            );
        }
    }

    #[test]
    fn objects_of_one_class_share_its_definition() {
        let twice = arguments(&["{\"class\":\"A\",\"n\":1}", "{\"class\":\"A\",\"n\":2}"]);
        assert_eq!(
            twice.expect("arguments").encoded,
            b"C\x01A\x91\x01n\x60\x91\x60\x92"
        );
    }

    #[test]
    fn types_may_be_given() {
        let two = arguments(&["1", "null"]).expect("arguments");
        let types = |names: &[&str]| {
            two.with_types(
                &names
                    .iter()
                    .map(|&name| name.to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(types(&["long", "int[][]"]).expect("types"), "J[[I");
        assert_eq!(
            types(&["J", "Lcom/foo/Bar;"]).expect("types"),
            "JLcom/foo/Bar;"
        );
        assert_eq!(
            types(&["com.foo.Bar", "[I"]).expect("types"),
            "Lcom/foo/Bar;[I"
        );
        assert!(matches!(
            types(&["int"]),
            Err(Error::Count {
                types: 1,
                arguments: 2
            })
        ));
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        assert!(matches!(arguments(&["hi"]), Err(Error::Json { .. })));
        assert!(matches!(
            arguments(&["{\"class\":1}"]),
            Err(Error::Class(_))
        ));
        assert!(matches!(
            arguments(&["18446744073709551615"]),
            Err(Error::Number(_))
        ));
    }
}
