//! Bodies of the other serializations, laid out by hand as their writers lay them out.

use std::time::Duration;

use dubbo_proto::{
    event::{self, Event},
    head::{HEAD_LEN, RequestId, Serialization, Status},
    invocation::{Invocation, Reach, Scratch},
    reply,
};

use crate::vector::LIMITS;

const STRINGS: [&str; 5] = [
    "2.0.2",
    "com.foo.A",
    "1.0.0",
    "$invoke",
    "Ljava/lang/String;I",
];

fn peek(serialization: Serialization, body: &[u8]) -> Result<Invocation<'_>, String> {
    let mut scratch = Scratch::default();
    Invocation::peek(serialization, body, &LIMITS, &mut scratch).map_err(|e| e.to_string())
}

/// The body that an error has in this serialization: one string.
fn string(serialization: Serialization, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::error(
        &mut out,
        serialization,
        RequestId(1),
        Status::SERVER_ERROR,
        text,
    );
    out.split_off(HEAD_LEN)
}

fn strings(serialization: Serialization, texts: &[&str]) -> Vec<u8> {
    texts
        .iter()
        .flat_map(|text| string(serialization, text))
        .collect()
}

/// Checks a request whose attachments say path, group and timeout; every cut of it is refused.
fn check_full(serialization: Serialization, arguments: &[u8], attachments: &[u8]) {
    let body = [&strings(serialization, &STRINGS), arguments, attachments].concat();
    println!("{serialization:?}: {}", String::from_utf8_lossy(&body));
    let call = peek(serialization, &body).expect("a call");
    let texts = [
        call.dubbo,
        call.positional_path,
        call.positional_version,
        call.method,
        call.types,
    ];
    assert_eq!(texts.map(|text| text.to_string()), STRINGS);
    assert_eq!(call.reach, Reach::Full);
    assert_eq!(call.real_method().to_string(), "say\u{1f600}");
    assert_eq!(call.path().to_string(), "evil");
    assert_eq!(call.group().to_string(), "g\"");
    assert_eq!(call.attachments.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(call.attachments.get("path"), call.attachments.path);
    assert_eq!(call.attachments.get("absent"), None);
    let range = call.attachments.range();
    assert_eq!(body.len() - attachments.len(), range.start);
    let last = attachments.trim_ascii_end().len();
    for cut in 0..range.start + last {
        let cut = &body[..cut];
        assert!(
            peek(serialization, cut).is_err(),
            "{}",
            String::from_utf8_lossy(cut)
        );
    }
    let behind = [&body[..], b"\x00\n"].concat();
    assert_eq!(
        peek(serialization, &behind)
            .expect("the same call")
            .path()
            .to_string(),
        "evil"
    );
}

#[test]
fn json_lines() {
    let map =
        br#"{"a":{"path":"x","y":[1,"]}"]},"p\u0061th":"evil","group":"g\"","timeout":"1500"}"#;
    let arguments = string(Serialization::GSON, "say\u{1f600}");
    let arguments = [&arguments[..], b"7\r\n"].concat();
    for serialization in [
        Serialization::GSON,
        Serialization::JACKSON,
        Serialization::FASTJSON,
    ] {
        check_full(serialization, &arguments, &[map, &b"\n"[..]].concat());
        check_full(serialization, &arguments, &[map, &b"\r\n"[..]].concat());
    }
    let wrapped = [br#"{"x":[],"attachments": "#, &map[..], b" } \n"].concat();
    check_full(Serialization::PROTOBUF_JSON, &arguments, &wrapped);
}

#[test]
fn fastjson_marks_types() {
    let id = Serialization::FASTJSON;
    let map =
        br#"{"@type":"java.util.HashMap","_TO":1000L,7:"x","path":null,"d":1.5D,"s":Set[1,2]}"#;
    let strings = strings(id, &["2.0.2", "com.foo.A", "", "m", ""]);
    let body = [&strings[..], map].concat();
    let call = peek(id, &body).expect("a call");
    assert_eq!(call.attachments.remaining, Some(Duration::from_secs(1)));
    assert!(call.path().is(b""), "null is what Java would look up");
}

#[test]
fn fastjson_behind_lengths() {
    let id = Serialization::FASTJSON;
    let texts = [
        &br#""2.0.2""#[..],
        br#""com.foo.A""#,
        b"null",
        br#""$invokeAsync""#,
        br#""Ljava/lang/String;""#,
        br#""find""#,
        br#"{"timeout":5,"version":"2"}"#,
    ];
    let item = |text: &&[u8]| {
        let len = u32::try_from(text.len()).expect("short");
        [&len.to_be_bytes(), *text].concat()
    };
    let body: Vec<u8> = texts.iter().flat_map(item).collect();
    let call = peek(id, &body).expect("a call");
    assert!(call.real_method().is(b"find") && call.version().is(b"2"));
    assert_eq!(call.attachments.timeout, Some(Duration::from_millis(5)));
    for cut in 0..body.len() {
        peek(id, &body[..cut]).expect_err("cut");
    }
}

#[test]
fn malformed_json_is_refused() {
    let id = Serialization::GSON;
    let strings = strings(id, &["2.0.2", "com.foo.A", "", "m", ""]);
    for (map, said) in [
        ("[]", "not a map"),
        ("\"x\"", "not a map"),
        ("{", "not a value"),
        ("{\"a\"}", "not a entry"),
        ("{\"a\":}", "not a value"),
        ("{\"a\":1]", "reserved tag 0x5d"),
        ("{\"a\":\"\\q\"}", "bad text"),
        ("{\"a\":\"\\u12x4\"}", "bad text"),
        ("{} {}", "bytes after the value"),
        ("{\"path\":5}", "not a string as path"),
        ("{\"a\":[[1,2}", "truncated"),
    ] {
        let body = [&strings[..], map.as_bytes()].concat();
        let error = peek(id, &body).expect_err(map);
        assert!(error.contains(said), "{map}: {error}");
    }
}

#[test]
fn protobuf() {
    let id = Serialization::PROTOBUF;
    let entry = |key: &str, value: &str| {
        let field = |tag: u8, text: &str| {
            let len = u8::try_from(text.len()).expect("short");
            [&[tag, len], text.as_bytes()].concat()
        };
        let entry = [field(0x0a, key), field(0x12, value)].concat();
        [
            &[0x0a, u8::try_from(entry.len()).expect("short")],
            &entry[..],
        ]
        .concat()
    };
    let entries = [
        entry("path", "evil"),
        entry("group", "g\""),
        entry("timeout", "1500"),
    ];
    let map = entries.concat();
    let map = [&[u8::try_from(map.len()).expect("short")], &map[..]].concat();
    let arguments = [string(id, "say\u{1f600}"), b"\x02\x08\x07".to_vec()].concat();
    check_full(id, &arguments, &map);
    // What a later reader may merge over the first map decides nothing, but is not overlooked.
    let strings = strings(id, &["2.0.2", "com.foo.A", "", "m", ""]);
    let second = [&strings[..], b"\x0c\x12\x0a\x0a\x04path\x12\x02\x0a\x00"].concat();
    let error = peek(id, &second).expect_err("a path of another kind");
    assert!(error.contains("not a string as path"), "{error}");
}

#[test]
fn msgpack() {
    let id = Serialization::MSGPACK;
    let entry = |key: &str, value: &str| [string(id, key), string(id, value)].concat();
    let map = [
        b"\x85".to_vec(),
        b"\x05\x91\x81\xa1x\xc0".to_vec(),
        string(id, "o"),
        b"\x82\xa4path\xa1x\xa1y\x92\xcb12345678\xd6x1234".to_vec(),
        entry("path", "evil"),
        entry("group", "g\""),
        string(id, "timeout"),
        b"\xcd\x05\xdc".to_vec(),
    ];
    let arguments = [string(id, "say\u{1f600}"), b"\x07".to_vec()].concat();
    check_full(id, &arguments, &map.concat());
    let strings = strings(id, &["2.0.2", "com.foo.A", "", "m", ""]);
    for bomb in [
        &b"\xdf\xff\xff\xff\xff"[..],
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
    ] {
        peek(id, &[&strings[..], bomb].concat()).expect_err("a length bomb");
    }
}

#[test]
fn strings_before_what_cannot_be_read() {
    for id in [Serialization::AVRO, Serialization::PROTOSTUFF] {
        let body = [strings(id, &STRINGS), b"whatever".to_vec()].concat();
        let call = peek(id, &body).expect("a call");
        let texts = [call.positional_path, call.method, call.types];
        assert_eq!(
            texts.map(|text| text.to_string()),
            [STRINGS[1], STRINGS[3], STRINGS[4]]
        );
        assert_eq!(call.reach, Reach::Positional);
        assert!(call.attachments.range().is_empty());
        assert_eq!(call.attachments.get("path"), None);
        for cut in 0..body.len() - 8 {
            peek(id, &body[..cut]).expect_err("cut");
        }
    }
    for (id, negative) in [
        (Serialization::AVRO, &b"\x01"[..]),
        (Serialization::PROTOSTUFF, b"\xff\xff\xff\xff"),
    ] {
        peek(id, negative).expect_err("a negative length");
    }
}

/// A Java stream of the given data in blocks of at most `len` bytes.
fn java(data: &[u8], len: usize) -> Vec<u8> {
    let block = |data: &[u8]| {
        let len = u8::try_from(data.len()).expect("a short block");
        [&[0x77, len], data].concat()
    };
    let blocks = data.chunks(len).flat_map(block);
    [0xac, 0xed, 0, 5].into_iter().chain(blocks).collect()
}

#[test]
fn java_strings_stand_in_blocks() {
    let texts = ["2.0.2", "com.\u{e9}\u{1f600}.A", "\0", "m", "I"];
    for (id, lengths) in [
        (Serialization::JAVA, true),
        (Serialization::COMPACTED_JAVA, true),
        (Serialization::NATIVE_JAVA, false),
    ] {
        let mut data = Vec::new();
        for text in texts {
            // What an error writes holds one string in one block.
            let stream = string(id, text);
            let (head, rest) = stream.split_at(6);
            assert_eq!(head[..5], [0xac, 0xed, 0, 5, 0x77]);
            assert_eq!(usize::from(head[5]), rest.len());
            let units = u32::try_from(text.encode_utf16().count()).expect("short");
            assert_eq!(rest.starts_with(&units.to_be_bytes()), lengths);
            data.extend_from_slice(rest);
        }
        for block in [1, 2, 3, 7, 200] {
            let body = java(&data, block);
            let call = peek(id, &body).expect("a call");
            let read = [
                call.dubbo,
                call.positional_path,
                call.positional_version,
                call.method,
                call.types,
            ];
            assert_eq!(
                read.map(|text| text.to_string()),
                texts,
                "blocks of {block}"
            );
            assert!(call.dubbo.is(b"2.0.2") && call.takes_reply_attachments());
            assert_eq!(call.reach, Reach::Positional);
            for cut in 0..body.len() {
                peek(id, &body[..cut]).expect_err("cut");
            }
        }
    }
    let null = java(&[0xff; 4].repeat(3), 100);
    let error = peek(Serialization::JAVA, &null).expect_err("a null method");
    assert!(error.starts_with("malformed method"), "{error}");
}

#[test]
fn an_unknown_serialization_is_no_malformed_call() {
    for bits in 0..32 {
        let id = Serialization::from_bits(bits);
        let known = [2, 3, 4, 6, 7, 10, 11, 12, 16, 18, 21, 22, 23, 27].contains(&bits);
        let error = peek(id, b"").expect_err("empty");
        assert_eq!(error.contains("cannot be read"), !known, "{bits}: {error}");
        assert_eq!(string(id, "x").is_empty(), !known, "{bits}");
        let heartbeat = |body: &[u8]| event::read(id, body) == Event::Heartbeat;
        let mut out = Vec::new();
        event::heartbeat(&mut out, id, RequestId(1), true);
        assert!(heartbeat(&out[HEAD_LEN..]), "{bits}");
        assert!(!heartbeat(b"\xffanything"), "{bits}");
    }
}

#[test]
fn replies_have_kinds() {
    use reply::Kind::{Exception, Null, Opaque, Value};
    let kind = |id, body: &[u8]| reply::kind(Status::OK, id, body);
    assert_eq!(kind(Serialization::GSON, b"4\n\"x\"\n"), Value);
    assert_eq!(kind(Serialization::JACKSON, b"3\r\n{}\n"), Exception);
    assert_eq!(kind(Serialization::FASTJSON, b"\0\0\0\x015"), Null);
    assert_eq!(kind(Serialization::PROTOBUF, b"\x02\x08\x04\x00"), Value);
    assert_eq!(kind(Serialization::PROTOBUF, b"\x00\x00"), Exception);
    assert_eq!(kind(Serialization::MSGPACK, b"\x02"), Null);
    assert_eq!(
        kind(Serialization::JAVA, b"\xac\xed\0\x05\x77\x01\x01"),
        Value
    );
    assert_eq!(kind(Serialization::GSON, b"9\n"), Opaque);
    assert_eq!(kind(Serialization::AVRO, b"\x02"), Opaque);
    assert_eq!(kind(Serialization::MSGPACK, b""), Opaque);
}
