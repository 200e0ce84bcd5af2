//! Bodies of fastjson2, id 23.

use std::time::Duration;

use dubbo_proto::{
    event::{self, Event},
    fastjson2::{Items, Symbols},
    head::{Head, Kind, Serialization},
    invocation::{Invocation, Scratch},
    reply,
};
use serde_json::Value as Json;

use crate::vector::{LIMITS, Vector, is_name, load};

const ID: Serialization = Serialization::FASTJSON2;

fn item(value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).expect("short");
    [&len.to_be_bytes()[..], value].concat()
}

fn peek(body: &[u8]) -> Result<Invocation<'_>, String> {
    let mut scratch = Scratch::default();
    Invocation::peek(ID, body, &LIMITS, &mut scratch).map_err(|e| e.to_string())
}

/// A request whose attachments are `map`.
fn request(map: &[u8]) -> Vec<u8> {
    call("m", "", &[map])
}

/// A request whose arguments and attachments are `values`.
fn call(method: &str, types: &str, values: &[&[u8]]) -> Vec<u8> {
    let string = |text: &str| {
        let tag = 0x49 + u8::try_from(text.len()).expect("short");
        item(&[&[tag], text.as_bytes()].concat())
    };
    let null = item(&[0xaf]);
    let names = [
        string("2.0.2"),
        string("com"),
        null,
        string(method),
        string(types),
    ];
    let values: Vec<u8> = values.iter().flat_map(|value| item(value)).collect();
    [names.concat(), values].concat()
}

fn compare_attachments(call: &Invocation<'_>, expect: &Json) {
    for (key, value) in expect.as_object().expect("a map") {
        let text = call.attachments.get(key);
        assert!(
            is_name(text, value) || !value.is_string(),
            "{key}: {text:?}"
        );
        match key.as_str() {
            "path" => assert!(is_name(call.attachments.path, value)),
            "version" => assert!(is_name(call.attachments.version, value)),
            "interface" => assert!(is_name(call.attachments.interface, value)),
            "timeout" => assert_eq!(call.attachments.timeout, Some(Duration::from_secs(1))),
            "_TO" => {
                let millis = value.as_u64().expect("a number");
                assert_eq!(
                    call.attachments.remaining,
                    Some(Duration::from_millis(millis))
                );
            }
            _ => {}
        }
    }
}

fn compare_body(head: &Head, body: &[u8], expect: &Json) {
    let mut symbols = Symbols::default();
    match head.kind {
        Kind::Request { .. } if expect.get("error").is_some() => {
            peek(body).expect_err("broken");
        }
        Kind::Request { .. } => {
            let call = peek(body).expect("a call");
            for (text, key) in [
                (call.dubbo, "dubbo_version"),
                (call.positional_path, "path"),
                (call.positional_version, "version"),
                (call.method, "method"),
                (call.types, "desc"),
            ] {
                assert_eq!(
                    text.to_string(),
                    expect[key].as_str().unwrap_or_default(),
                    "{key}"
                );
            }
            compare_attachments(&call, &expect["attachments"]);
            assert_eq!(call.attachments.range().end, body.len());
        }
        Kind::Response { status } => {
            let mut items = Items::new(body);
            let kind = reply::kind(status, ID, body);
            if let Some(message) = expect.get("error_message") {
                let text = items.item().expect("an item").text(&LIMITS, &mut symbols);
                assert!(is_name(text.expect("a string"), message));
                assert_eq!(kind, reply::Kind::Error);
                return;
            }
            let code = items.item().expect("an item").int(&LIMITS, &mut symbols);
            assert_eq!(expect["value_type"], code.expect("a type"));
            match expect["value_type"].as_i64().expect("a type") {
                0 | 3 => {
                    assert_eq!(kind, reply::Kind::Exception);
                    let class = reply::exception_class(ID, body, &mut Scratch::default());
                    assert_eq!(class.as_deref(), Some("RuntimeException"));
                }
                1 | 4 => assert_eq!(kind, reply::Kind::Value),
                _ => assert_eq!(kind, reply::Kind::Null),
            }
        }
        Kind::Event { .. } | Kind::EventResponse { .. } => {
            let meant = match expect["event"].as_str() {
                None => Event::Heartbeat,
                Some(_) => Event::ReadOnly,
            };
            assert_eq!(event::read(ID, body), meant);
        }
    }
}

#[test]
fn bodies_are_read() {
    let mut vectors = load(include_str!("../vectors/fastjson2.json"));
    vectors.extend(load(include_str!("../vectors/java_frames.json")));
    let mut seen = 0;
    for Vector { name, bytes, json } in vectors {
        let Some((head, body)) = bytes.split_first_chunk() else {
            continue;
        };
        let Some(head) = Head::decode(head).filter(|head| head.serialization == ID) else {
            continue;
        };
        println!("{name}");
        let expect = json["expect"]
            .get("body")
            .unwrap_or_else(|| &json["expect"]);
        compare_body(&head, body, expect);
        seen += 1;
    }
    assert!(seen > 20, "{seen} bodies only");
}

#[test]
fn single_values_are_read() {
    for Vector { name, bytes, json } in load(include_str!("../vectors/fastjson2.json")) {
        let expect = &json["expect"];
        if let Some(string) = expect.get("string") {
            let mut symbols = Symbols::default();
            let one = item(&bytes);
            let text = Items::new(&one)
                .item()
                .expect("an item")
                .text(&LIMITS, &mut symbols);
            assert!(is_name(text.expect(&name), string), "{name}");
            for cut in 0..bytes.len() {
                let one = item(&bytes[..cut]);
                let text = Items::new(&one).item().expect("an item");
                text.text(&LIMITS, &mut symbols).expect_err(&name);
            }
        }
        if let Some(map) = expect.get("map") {
            let body = request(&bytes);
            compare_attachments(&peek(&body).expect(&name), map);
            for cut in 0..bytes.len() {
                peek(&request(&bytes[..cut])).expect_err(&name);
            }
        }
    }
}

#[test]
fn attachments_may_be_written_in_odd_ways() {
    let path = |map: &[u8]| {
        let body = request(map);
        peek(&body).map(|call| call.path().to_string())
    };
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(path(b"\xaf"), ok("com"), "null");
    assert_eq!(
        path(b"\xa6\x4dpath\x4aa\x4dpath\x4ab\xa5"),
        ok("b"),
        "the last duplicate"
    );
    assert_eq!(
        path(b"\xa6\x7f\x4dpath\x00\x4aa\x7f\x00\x4ab\xa5"),
        ok("b"),
        "symbols"
    );
    assert_eq!(
        path(b"\xa6\x4ax\xa6\x4dpath\x4aa\xa5\xa5"),
        ok("com"),
        "an inner map"
    );
    assert_eq!(
        path(b"\xa6\x4dpath\x93\x4a$\xa5"),
        Err("malformed attachments: not a string as path at byte 39".into())
    );
    assert_eq!(
        path(b"\x4aa"),
        Err("malformed attachments: not a map at byte 38".into())
    );
    assert_eq!(
        path(b"\xaf\xaf"),
        Err("malformed attachments: bytes after the value at byte 39".into())
    );
    assert_eq!(
        path(b"\xa6\x7f\x05\x4aa\xa5"),
        Err("malformed attachments: symbol out of range at byte 40".into())
    );
}

/// Arguments are passed over by their length, so what is in them was not checked.
#[test]
fn the_method_of_a_generic_call_is_read_within_limits() {
    let method = |argument: &[u8]| {
        let body = call("$invoke", "Ljava/lang/String;", &[argument, b"\xaf"]);
        peek(&body).expect("a call").real_method().to_string()
    };
    assert_eq!(method(b"\x4dfind"), "find");
    assert_eq!(method(b"\x7f\x4dfind\x00"), "find");
    for hostile in [
        &b"\x7f\x4dfind\x48\x7f\xff\xff\xff"[..],
        b"\x7f\x4dfind\xff",
        b"\xa4\x48\x7f\xff\xff\xff",
        &[0x95; 3000],
    ] {
        assert_eq!(method(hostile), "$invoke");
    }
}
