//! Single values: `hessian.json` and `java_written.json`.

use dubbo_proto::{
    error::{Error, Flaw},
    head::Serialization,
    hessian2::{Reader, Tables, Value, writer::Writer},
    invocation::{Invocation, Scratch},
};

use crate::vector::{LIMITS, Vector, compare, hex, is_name, load};

/// Reads one value and checks that walking over it takes the same bytes and slots.
pub(crate) fn read(bytes: &[u8]) -> Result<(Value<'_>, usize, u32), Error> {
    let (mut tables, mut skipped) = (Tables::default(), Tables::default());
    let mut reader = Reader::new(bytes, &LIMITS, &mut tables);
    let mut skipper = Reader::new(bytes, &LIMITS, &mut skipped);
    let value = Value::read(&mut reader);
    match (&value, skipper.skip()) {
        (Ok(_), Ok(())) => assert_eq!(
            (reader.position(), reader.slots()),
            (skipper.position(), skipper.slots()),
            "{}",
            hex(bytes)
        ),
        // A value that must not be built may be broken further on, too.
        (Err(read), Err(skip)) => assert!(read == &skip || is_limit(read), "{read}, {skip}"),
        (Ok(_), Err(error)) => panic!("read but not skipped, {error}: {}", hex(bytes)),
        (Err(error), Ok(())) => assert!(is_limit(error), "{error} but skipped"),
    }
    Ok((value?, reader.position(), reader.slots()))
}

/// Whether it is a limit of what may be built, which does not hold for what is walked over.
fn is_limit(error: &Error) -> bool {
    matches!(error.flaw, Flaw::Limit("levels" | "values"))
}

fn written(value: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    value.write(&mut Writer::new(&mut out));
    out
}

#[test]
fn values_are_read_skipped_and_written() {
    for Vector { name, bytes, json } in load(include_str!("../vectors/hessian.json")) {
        let read = read(&bytes);
        if json.get("error").is_some() {
            let error = read.expect_err(&name);
            assert!(error.offset <= bytes.len(), "{name}: {error}");
            continue;
        }
        let (value, consumed, slots) = read.unwrap_or_else(|e| panic!("{name}: {e}"));
        compare(&value, &json["expect"]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(json["consumed"], consumed, "{name}");
        assert_eq!(json["refs"], slots, "{name}");
        if json["canonical"] == true {
            assert!(written(&value) == bytes, "{name} is written otherwise");
        }
    }
}

#[test]
fn a_cut_value_is_an_error_with_its_place() {
    let mut vectors = load(include_str!("../vectors/hessian.json"));
    vectors.retain(|vector| vector.json.get("error").is_none());
    let written_by_java = load(include_str!("../vectors/java_written.json")).into_iter();
    vectors.extend(written_by_java.filter(|vector| vector.json.get("expect").is_some()));
    for vector in vectors {
        for cut in vector.cuts() {
            let part = &vector.bytes[..cut];
            // Long ones are walked over only, to save time: above, both agree about everything.
            let error = match vector.bytes.len() {
                0..=4096 => read(part).map(|_| ()),
                _ => Reader::new(part, &LIMITS, &mut Tables::default()).skip(),
            };
            let error = error.expect_err(&vector.name);
            assert!(error.offset <= cut, "{} cut at {cut}: {error}", vector.name);
        }
    }
}

/// What else Java wrote: several values in a row, and bodies of calls.
#[test]
fn a_cut_row_of_values_is_an_error() {
    for vector in load(include_str!("../vectors/java_written.json")) {
        let values = vector.json["expect_values"].as_array().map(Vec::len);
        if values.is_none() && vector.json.get("expect_request").is_none() {
            continue;
        }
        for cut in vector.cuts() {
            let part = &vector.bytes[..cut];
            let error = match values {
                Some(values) => {
                    let mut tables = Tables::default();
                    let mut reader = Reader::new(part, &LIMITS, &mut tables);
                    let read = (0..values).try_for_each(|_| Value::read(&mut reader).map(drop));
                    read.map_err(|error| error.to_string())
                }
                None => {
                    let (id, mut scratch) = (Serialization::HESSIAN2, Scratch::default());
                    let call = Invocation::peek(id, part, &LIMITS, &mut scratch);
                    call.map(drop).map_err(|error| error.to_string())
                }
            };
            assert!(error.is_err(), "{} cut at {cut}", vector.name);
        }
    }
}

#[test]
fn flaws_are_told_apart() {
    let vectors = load(include_str!("../vectors/hessian.json"));
    for (name, said) in [
        ("empty-input", "truncated at byte 0"),
        ("trunc-str-S", "truncated at byte 4"),
        ("reserved-47", "reserved tag 0x47 at byte 0"),
        ("str-4byte-utf8", "bad text at byte 1"),
        ("str-chunk-broken", "not a chunk of a string at byte 4"),
        ("bin-chunk-broken", "not a chunk of bytes at byte 4"),
        ("list-X-negative", "negative length at byte 1"),
        ("list-X-2g", "length exceeds the bytes left at byte 5"),
        ("list-X-length-long", "not a int at byte 1"),
        ("obj-class-ref-none", "class out of range at byte 0"),
        ("obj-class-name-null", "not a string at byte 1"),
        ("type-ref-range", "type out of range at byte 5"),
        ("ref-forward", "reference out of range at byte 2"),
        ("map-odd", "odd map at byte 3"),
        ("deep-lists-100", "too many levels at byte 64"),
        ("deep-class-defs", "too many class definitions at byte 4099"),
        ("type-bomb", "too many type names at byte 196615"),
    ] {
        let vector = vectors.iter().find(|v| v.name == name).expect(name);
        assert_eq!(
            read(&vector.bytes).expect_err(name).to_string(),
            said,
            "{name}"
        );
    }
}

#[test]
fn what_java_wrote_is_read() {
    for Vector { name, bytes, json } in load(include_str!("../vectors/java_written.json")) {
        if let Some(expect) = json.get("expect") {
            let (value, consumed, slots) = read(&bytes).expect(&name);
            compare(&value, expect).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(consumed, bytes.len(), "{name}");
            assert_eq!(json["refs"], slots, "{name}");
        } else if let Some(expect) = json["expect_values"].as_array() {
            let mut tables = Tables::default();
            let mut reader = Reader::new(&bytes, &LIMITS, &mut tables);
            for expect in expect {
                let value = Value::read(&mut reader).expect(&name);
                compare(&value, expect).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            assert_eq!(reader.position(), bytes.len(), "{name}");
            assert_eq!(json["refs"], reader.slots(), "{name}");
        } else {
            let mut scratch = Scratch::default();
            let call = Invocation::peek(Serialization::HESSIAN2, &bytes, &LIMITS, &mut scratch)
                .expect(&name);
            let expect = &json["expect_request"];
            assert!(is_name(Some(call.method), &expect["method"]), "{name}");
            crate::frames::compare_call(&bytes, &call, expect);
        }
    }
}
