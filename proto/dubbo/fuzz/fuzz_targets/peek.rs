//! A call in any serialization: what it says does not depend on what stands behind its end.
#![no_main]

use dubbo_proto::{
    head::Serialization,
    hessian2::{Limits, Reader, Tables},
    invocation::{Invocation, Reach, Scratch},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((bits, body)) = input.split_first() else {
        return;
    };
    let serialization = Serialization::from_bits(*bits);
    let (limits, mut scratch) = (Limits::default(), Scratch::default());
    let Ok(call) = Invocation::peek(serialization, body, &limits, &mut scratch) else {
        return;
    };
    let told = [
        call.path(),
        call.version(),
        call.group(),
        call.interface(),
        call.real_method(),
    ];
    let _ = (
        told.map(|text| text.to_string()),
        call.takes_reply_attachments(),
    );
    let range = call.attachments.range();
    assert!(call.arguments() <= range.start && range.end <= body.len());
    if call.reach == Reach::Positional {
        assert!(range.is_empty());
        return;
    }
    let path = call.attachments.get("path").unwrap_or_default();
    assert_eq!(call.attachments.path.unwrap_or_default(), path);
    let again = Invocation::peek(serialization, &body[..range.end], &limits, &mut scratch);
    let again = again.expect("the same call");
    assert_eq!(again.path(), call.path());
    assert_eq!(again.attachments.timeout, call.attachments.timeout);
    if [Serialization::HESSIAN2, Serialization::NATIVE_HESSIAN].contains(&serialization) {
        let mut tables = Tables::default();
        let mut reader = Reader::new(body, &limits, &mut tables);
        while reader.position() < range.end {
            reader.skip().expect("a value after the other");
        }
        assert_eq!(reader.position(), range.end);
    }
});
