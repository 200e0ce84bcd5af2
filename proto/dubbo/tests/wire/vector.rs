//! Reads the vectors, and compares what was decoded with what they expect.

use dubbo_proto::{
    hessian2::{Limits, Value},
    text::Text,
};
use serde::Deserialize as _;
use serde_json::{Deserializer, Value as Json};

/// One entry of a vector file.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Json,
}

/// The limits that the vectors were made for.
pub(crate) const LIMITS: Limits = Limits {
    depth: 64,
    decode_depth: 64,
    decode_values: 1 << 20,
    classes: 1024,
    fields: 1024,
    types: 65_536,
    slots: 1 << 20,
    attachments: 4096,
    key_len: 1024,
    name_len: 65_536,
};

pub(crate) fn load(file: &str) -> Vec<Vector> {
    let mut reader = Deserializer::from_str(file);
    reader.disable_recursion_limit();
    let file = Json::deserialize(&mut reader).expect("a vector file");
    let vectors = file["vectors"].as_array().expect("vectors");
    assert!(!vectors.is_empty());
    vectors.iter().cloned().map(Vector::new).collect()
}

/// Every vector file that holds whole frames.
pub(crate) fn frames() -> Vec<Vector> {
    let mut all = load(include_str!("../vectors/frames.json"));
    all.extend(load(include_str!("../vectors/java_frames.json")));
    all.extend(load(include_str!("../vectors/captured.json")));
    let fastjson2 = load(include_str!("../vectors/fastjson2.json"));
    all.extend(
        fastjson2
            .into_iter()
            .filter(|v| v.bytes.starts_with(&[0xda, 0xbb])),
    );
    all
}

impl Vector {
    fn new(json: Json) -> Self {
        let bytes = match json["hex"].as_str() {
            Some(hex) => unhex(hex),
            None => {
                let parts = json["hex_parts"].as_array().expect("hex or hex_parts");
                let part = |part: &Json| {
                    let times = usize::try_from(part[1].as_u64().expect("repeat"));
                    unhex(part[0].as_str().expect("hex")).repeat(times.expect("repeat"))
                };
                parts.iter().flat_map(part).collect()
            }
        };
        let name = json["name"].as_str().expect("a name").to_owned();
        Self { name, bytes, json }
    }

    /// Where to cut: everywhere, and above 4 KiB at the first and last 64 places and 1,000 others.
    pub(crate) fn cuts(&self) -> Vec<usize> {
        let len = self.bytes.len();
        if len <= 4096 {
            return (0..len).collect();
        }
        let mut random = fastrand::Rng::with_seed(4096);
        let between = std::iter::repeat_with(|| random.usize(64..len - 64)).take(1000);
        (0..64).chain(between).chain(len - 64..len).collect()
    }
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    digits.map(byte).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a value is the tree that a vector expects; if not, where they part.
pub(crate) fn compare(value: &Value<'_>, expect: &Json) -> Result<(), String> {
    let same = match (value, expect["t"].as_str().expect("a kind")) {
        (Value::Null, "null") => true,
        (Value::Bool(value), "bool") => expect["v"] == *value,
        (Value::Int(value), "int") => expect["v"] == *value,
        (Value::Long(value), "long") => expect["v"].as_str() == Some(&value.to_string()),
        (Value::Double(value), "double") => expect["bits"] == format!("{:016x}", value.to_bits()),
        (Value::Date(millis), "date") => expect["ms"].as_str() == Some(&millis.to_string()),
        (Value::Text(text), "string") => text.units().eq(units(expect)),
        (Value::Binary(bytes), "binary") => {
            let bytes = bytes.chunks().collect::<Vec<_>>().concat();
            let short = expect["hex"].as_str();
            expect["len"] == bytes.len() && short.is_none_or(|short| short == hex(&bytes))
        }
        (
            Value::List {
                slot,
                type_name,
                values,
            },
            "list",
        ) => {
            let expected = expect["v"].as_array().expect("values");
            for (value, expect) in values.iter().zip(expected) {
                compare(value, expect)?;
            }
            let head = expect["slot"] == *slot && is_name(*type_name, &expect["type"]);
            head && values.len() == expected.len()
        }
        (
            Value::Map {
                slot,
                type_name,
                entries,
            },
            "map",
        ) => {
            let expected = expect["v"].as_array().expect("entries");
            for ((key, value), expect) in entries.iter().zip(expected) {
                compare(key, &expect[0])?;
                compare(value, &expect[1])?;
            }
            let head = expect["slot"] == *slot && is_name(*type_name, &expect["type"]);
            head && entries.len() == expected.len()
        }
        (
            Value::Object {
                slot,
                class,
                fields,
            },
            "object",
        ) => {
            let expected = expect["v"].as_array().expect("fields");
            for ((name, value), expect) in fields.iter().zip(expected) {
                compare(value, &expect[1])?;
                if !is_name(Some(*name), &expect[0]) {
                    return Err(format!("field {name} is not {}", expect[0]));
                }
            }
            let head = expect["slot"] == *slot && is_name(Some(*class), &expect["class"]);
            head && fields.len() == expected.len()
        }
        (Value::Reference(slot), "ref") => expect["to"] == *slot,
        _ => false,
    };
    if same {
        Ok(())
    } else {
        Err(format!("{value:?} is not {expect}"))
    }
}

/// Whether a text, absent or not, is the string or null that a vector expects.
pub(crate) fn is_name(text: Option<Text<'_>>, expect: &Json) -> bool {
    match (text, expect.as_str()) {
        (Some(text), Some(expect)) => text.to_string() == expect,
        (None, None) => expect.is_null(),
        _ => false,
    }
}

fn units(expect: &Json) -> Vec<u16> {
    let number = |n: &Json| u16::try_from(n.as_u64().expect("a unit")).expect("a unit");
    let units: Vec<u16> = if let Some(text) = expect["v"].as_str() {
        text.encode_utf16().collect()
    } else if let Some(units) = expect["utf16"].as_array() {
        units.iter().map(number).collect()
    } else {
        let runs = expect["utf16_runs"].as_array().expect("a text");
        let run = |run: &Json| {
            let times = usize::try_from(run[1].as_u64().expect("a count"));
            std::iter::repeat_n(number(&run[0]), times.expect("a count"))
        };
        runs.iter().flat_map(run).collect()
    };
    assert_eq!(
        expect["units"],
        units.len(),
        "the vector agrees with itself"
    );
    units
}
