//! Reading and skipping agree, and what was read is written so that it reads the same.
#![no_main]

use dubbo_proto::hessian2::{Limits, Reader, Tables, Value, writer::Writer};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    depth: 64,
    decode_depth: 64,
    decode_values: 100_000,
    classes: 1024,
    fields: 1024,
    types: 1024,
    slots: 100_000,
    attachments: 4096,
    key_len: 1024,
    name_len: 65_536,
};

fuzz_target!(|input: &[u8]| {
    let (mut tables, mut skipped) = (Tables::default(), Tables::default());
    let mut reader = Reader::new(input, &LIMITS, &mut tables);
    let mut skipper = Reader::new(input, &LIMITS, &mut skipped);
    let value = Value::read(&mut reader);
    let skip = skipper.skip();
    match value {
        Ok(value) => {
            assert_eq!(skip, Ok(()));
            assert_eq!(reader.position(), skipper.position());
            assert_eq!(reader.slots(), skipper.slots());
            assert!(reader.position() <= input.len());
            let written = write(&value);
            let (mut tables, mut reader) = (Tables::default(), &mut written.as_slice());
            let mut reader = Reader::new(std::mem::take(&mut reader), &LIMITS, &mut tables);
            let again = Value::read(&mut reader).expect("what we wrote");
            assert_eq!(write(&again), written);
        }
        Err(error) => assert!(error.offset <= input.len()),
    }
});

fn write(value: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    value.write(&mut Writer::new(&mut out));
    out
}
