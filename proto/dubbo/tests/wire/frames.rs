//! Whole frames and streams of them.

use bytes::BytesMut;
use dubbo_proto::{
    event::{self, Event},
    frame::{Error, Frame, Limits as FrameLimits},
    head::{Head, Kind, Serialization},
    hessian2::{Reader, Tables, Value},
    invocation::{Invocation, Scratch},
    reply,
};
use serde_json::Value as Json;

use crate::vector::{LIMITS, Vector, compare, frames, is_name, load};

/// Compares everything in a Hessian2 request with what a vector expects.
pub(crate) fn compare_call(body: &[u8], call: &Invocation<'_>, expect: &Json) {
    let strings = [
        (call.dubbo, "dubbo_version"),
        (call.positional_path, "path"),
        (call.positional_version, "version"),
        (call.method, "method"),
        (call.types, "desc"),
    ];
    for (text, key) in strings {
        assert_eq!(
            text.to_string(),
            expect[key].as_str().unwrap_or_default(),
            "{key}"
        );
    }
    let mut tables = Tables::default();
    let mut reader = Reader::new(body, &LIMITS, &mut tables);
    reader.restart(call.arguments());
    for (place, argument) in expect["args"].as_array().expect("args").iter().enumerate() {
        if let Some(offset) = expect["arg_offsets"].get(place) {
            assert_eq!(*offset, reader.position());
        }
        let value = Value::read(&mut reader).expect("an argument");
        compare(&value, argument).expect("the argument");
    }
    assert_eq!(call.attachments.range().start, reader.position());
    if let Some(slots) = expect.get("refs_before_attachments") {
        assert_eq!(*slots, reader.slots());
        assert_eq!(expect["attachments_offset"], reader.position());
    }
    let value = Value::read(&mut reader).expect("attachments");
    compare(&value, &expect["attachments"]).expect("the attachments");
    assert_eq!(call.attachments.range().end, reader.position());
    if let Some(trailing) = expect.get("trailing") {
        assert_eq!(*trailing, body.len() - reader.position());
    }
    if let Value::Map { entries, .. } = value {
        for (key, value) in &entries {
            let (Value::Text(key), Value::Text(value)) = (key, value) else {
                continue;
            };
            assert_eq!(
                call.attachments.get(&key.to_string()),
                Some(*value),
                "{key}"
            );
        }
    }
}

fn compare_head(head: &Head, expect: &Json) {
    let (request, event, two_way) = match head.kind {
        Kind::Request { two_way } => (true, false, two_way),
        Kind::Event { two_way } => (true, true, two_way),
        Kind::Response { status } | Kind::EventResponse { status } => {
            assert_eq!(expect["status"], status.0);
            let event = matches!(head.kind, Kind::EventResponse { .. });
            // The two-way bit of a response means nothing.
            (false, event, expect["twoway"] == true)
        }
    };
    assert_eq!(expect["request"], request);
    assert_eq!(expect["event"], event);
    assert_eq!(expect["twoway"], two_way);
    assert_eq!(expect["serialization"], head.serialization.bits());
    assert_eq!(expect["id"], head.id.to_string());
    assert_eq!(expect["body_len"], head.body_len);
}

fn is_hessian(frame: &Frame) -> bool {
    frame.head.serialization == Serialization::HESSIAN2
}

/// Reads a body as far as we can; an error as text.
fn read_body(frame: &Frame) -> Result<(), String> {
    let (serialization, body) = (frame.head.serialization, &frame.body[..]);
    let mut scratch = Scratch::default();
    match frame.head.kind {
        Kind::Request { .. } => Invocation::peek(serialization, body, &LIMITS, &mut scratch)
            .map(|_| ())
            .map_err(|e| e.to_string()),
        Kind::Response { status } if is_hessian(frame) => {
            let mut tables = Tables::default();
            let mut reader = Reader::new(body, &LIMITS, &mut tables);
            Value::read(&mut reader).map_err(|e| e.to_string())?;
            match reply::kind(status, serialization, body) {
                reply::Kind::Opaque => Err("no type that we know".to_owned()),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn compare_reply(frame: &Frame, expect: &Json) {
    let Kind::Response { status } = frame.head.kind else {
        return;
    };
    let body = &frame.body[..];
    let kind = reply::kind(status, frame.head.serialization, body);
    let mut tables = Tables::default();
    let mut reader = Reader::new(body, &LIMITS, &mut tables);
    let mut value = || Value::read(&mut reader).expect("a value");
    if let Some(message) = expect.get("error_message") {
        assert_eq!(kind, reply::Kind::Error);
        match value() {
            Value::Null => assert!(message.is_null()),
            Value::Text(text) => assert!(is_name(Some(text), message)),
            other => panic!("{other:?}"),
        }
        return;
    }
    let code = expect["value_type"].as_i64().expect("a type");
    assert!(matches!(value(), Value::Int(got) if i64::from(got) == code));
    let mut scratch = Scratch::default();
    let class = reply::exception_class(frame.head.serialization, body, &mut scratch);
    let means = match code {
        0 | 3 => {
            compare(&value(), &expect["exception"]).expect("the exception");
            assert_eq!(class.as_deref(), expect["exception"]["class"].as_str());
            reply::Kind::Exception
        }
        1 | 4 => {
            compare(&value(), &expect["value"]).expect("the value");
            reply::Kind::Value
        }
        _ => reply::Kind::Null,
    };
    assert_eq!(kind, means);
    if code < 3 {
        return;
    }
    compare(&value(), &expect["attachments"]).expect("the attachments");
    let (at, version) = reply::take_attachment(
        frame.head.serialization,
        body,
        "dubbo",
        &LIMITS,
        &mut scratch,
    )
    .expect("Java attaches its version");
    assert!(version.is(b"2.0.2"));
    let cut = [&body[..at.start], &body[at.end..]].concat();
    assert!(body[at].starts_with(b"\x05dubbo"));
    let serialization = frame.head.serialization;
    assert_eq!(reply::kind(status, serialization, &cut), kind);
    let again = reply::take_attachment(serialization, &cut, "dubbo", &LIMITS, &mut scratch);
    assert_eq!(again, None, "it was cut out");
}

fn compare_frame(frame: &Frame, expect: &Json) {
    compare_head(&frame.head, &expect["header"]);
    if expect["body"] == "opaque" || !is_hessian(frame) {
        return;
    }
    match frame.head.kind {
        Kind::Request { .. } => {
            let mut scratch = Scratch::default();
            let body = &frame.body[..];
            let call = Invocation::peek(frame.head.serialization, body, &LIMITS, &mut scratch);
            compare_call(body, &call.expect("a call"), &expect["body"]);
        }
        Kind::Response { .. } => compare_reply(frame, &expect["body"]),
        Kind::Event { .. } | Kind::EventResponse { .. } => {
            let event = event::read(frame.head.serialization, &frame.body);
            let meant = match expect["event_data"]["v"].as_str() {
                _ if expect.get("event_data").is_none() => Event::Other,
                None => Event::Heartbeat,
                Some("R") => Event::ReadOnly,
                Some("W") => Event::Writeable,
                Some(_) => Event::Other,
            };
            assert_eq!(event, meant);
        }
    }
}

/// Feeds a frame in pieces; the first piece to yield something says what.
fn decode_in<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<(Frame, BytesMut)>, Error> {
    let mut input = BytesMut::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        if let Some(frame) = Frame::decode(&mut input, FrameLimits::default())? {
            return Ok(Some((frame, input)));
        }
    }
    Ok(None)
}

#[test]
fn frames_are_read() {
    for Vector { name, bytes, json } in frames() {
        println!("{name}");
        let whole = decode_in(std::iter::once(&bytes[..]));
        // The vector holds it for a frame whose attachments are a string. Java refuses it as we do.
        let refused = name == "att-not-a-map";
        if json.get("error").is_some() || refused {
            if let Ok(frame) = whole {
                let (frame, _) = frame.expect("its body is whole");
                read_body(&frame).expect_err(&name);
            }
            continue;
        }
        match json["expect"]["outcome"].as_str() {
            Some("need_more") => assert_eq!(whole, Ok(None), "{name}"),
            Some("frame") => {
                let (frame, rest) = whole.expect(&name).expect(&name);
                assert!(rest.is_empty(), "{name}");
                compare_frame(&frame, &json["expect"]);
            }
            _ => {} // bodies of fastjson2: in their own file
        }
    }
}

#[test]
fn pieces_make_no_difference() {
    for vector in frames() {
        let bytes = &vector.bytes[..];
        let whole = decode_in(std::iter::once(bytes));
        assert_eq!(
            decode_in(bytes.chunks(1)),
            whole,
            "{} byte by byte",
            vector.name
        );
        for cut in vector.cuts() {
            let (front, back) = bytes.split_at(cut);
            let split = decode_in([front, back].into_iter());
            assert_eq!(split, whole, "{} split at {cut}", vector.name);
            if whole.is_ok() {
                let part = decode_in(std::iter::once(front));
                assert_eq!(part, Ok(None), "{} cut at {cut} needs more", vector.name);
            }
        }
    }
}

#[test]
fn frames_are_written_as_they_were() {
    for Vector { name, bytes, json } in frames() {
        if let Ok(Some((frame, _))) = decode_in(std::iter::once(&bytes[..])) {
            let mut out = BytesMut::new();
            frame.encode(&mut out);
            let (mut out, mut bytes) = (out.to_vec(), bytes);
            if json["expect"]["header"]["request"] == true {
                bytes[3] = 0; // what a request has as status is ignored
            } else {
                bytes[2] &= !0x40; // and so is the two-way bit of a response
                out[2] &= !0x40;
            }
            assert_eq!(out, bytes, "{name}");
        }
    }
}

/// A cut body whose frame says so is malformed, never a panic and never a call.
#[test]
fn a_cut_body_is_malformed() {
    for vector in frames() {
        let Ok(Some((frame, _))) = decode_in(std::iter::once(&vector.bytes[..])) else {
            continue;
        };
        let mut scratch = Scratch::default();
        let serialization = frame.head.serialization;
        let call = Invocation::peek(serialization, &frame.body, &LIMITS, &mut scratch);
        let (Kind::Request { .. }, Ok(call)) = (frame.head.kind, call) else {
            continue;
        };
        for cut in 0..call.attachments.range().end {
            let body = &frame.body[..cut];
            let mut scratch = Scratch::default();
            let error = Invocation::peek(serialization, body, &LIMITS, &mut scratch);
            let name = &vector.name;
            assert!(error.is_err(), "{name} cut at {cut} is a call");
        }
    }
}

/// The ids of the frames in a stream that comes in pieces, up to what is no frame.
fn ids_in<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Option<Error>) {
    let (mut input, mut ids) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match Frame::decode(&mut input, FrameLimits::default()) {
                Ok(Some(frame)) => ids.push(frame.head.id.to_string()),
                Ok(None) => break,
                Err(error) => return (ids, Some(error)),
            }
        }
    }
    (ids, None)
}

#[test]
fn streams_are_cut_into_frames_until_foreign_bytes_come() {
    for vector in load(include_str!("../vectors/streams.json")) {
        let (name, bytes) = (&vector.name, &vector.bytes[..]);
        let (ids, error) = ids_in(std::iter::once(bytes));
        // Java goes on behind foreign bytes, and hangs there more often than not. We don't.
        let mut items = vector.json["items"].as_array().expect("items").iter();
        let frames = items
            .clone()
            .take_while(|item| item["frame_id"].is_string() && item["local_error"] != true);
        let want: Vec<_> = frames
            .map(|f| f["frame_id"].as_str().expect("id"))
            .collect();
        assert_eq!(ids, want, "{name}");
        let rest = items.nth(want.len());
        let more = rest.is_none_or(|item| item["need_more"] == true);
        assert_eq!(error.is_none(), more, "{name}: {error:?}");
        let whole = (ids, error);
        for size in [1, 7] {
            assert_eq!(ids_in(bytes.chunks(size)), whole, "{name} by {size}");
        }
        for cut in vector.cuts() {
            let (front, back) = bytes.split_at(cut);
            let split = ids_in([front, back].into_iter());
            assert_eq!(split, whole, "{name} split at {cut}");
        }
    }
}
