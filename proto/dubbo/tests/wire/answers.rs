//! What we write ourselves, against frames that Java wrote and as a consumer reads it.

use dubbo_proto::{
    event,
    frame::{self, Frame},
    head::{HEAD_LEN, RequestId, Serialization, Status},
    hessian2::{Limits, Reader, Tables, Value},
    invocation::{Outgoing, Scratch, write},
    reply,
};

use crate::vector::{LIMITS, Vector, frames};

const HESSIAN2: Serialization = Serialization::HESSIAN2;
const FASTJSON2: Serialization = Serialization::FASTJSON2;

/// The bytes of the vector with this name.
fn vector(name: &str) -> Vec<u8> {
    let named = |vector: &Vector| vector.name == name;
    frames().into_iter().find(named).expect(name).bytes
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    let frame = out.split_off(6);
    assert_eq!(out, b"before", "it appends");
    let head = frame::peek(&frame, frame::Limits::default())
        .expect("a head")
        .expect("whole");
    assert_eq!(head.frame_len(), frame.len());
    frame
}

#[test]
fn events_are_written_as_java_writes_them() {
    let id = RequestId(5);
    for (name, serialization) in [("hessian2", HESSIAN2), ("fastjson2", FASTJSON2)] {
        let frame = written(|out| event::heartbeat(out, serialization, id, true));
        assert_eq!(frame, vector(&format!("javaframe-{name}-heartbeat")));
        let frame = written(|out| event::heartbeat_answer(out, serialization, id));
        assert_eq!(
            frame,
            vector(&format!("javaframe-{name}-heartbeat-response"))
        );
    }
    let frame = written(|out| event::read_only(out, RequestId(6)));
    assert_eq!(frame, vector("javaframe-hessian2-readonly"));
    let frame = written(|out| event::heartbeat(out, HESSIAN2, RequestId(31), false));
    assert_eq!(frame, vector("hb-req-oneway"));
    let frame = written(|out| event::heartbeat(out, Serialization::PROTOBUF, RequestId(40), true));
    assert_eq!(frame, vector("hb-req-protobuf"));
}

#[test]
fn errors_and_values_are_written_as_java_writes_them() {
    let (id, text) = (RequestId(1), "Fail to decode request due to: x");
    for (name, serialization) in [("hessian2", HESSIAN2), ("fastjson2", FASTJSON2)] {
        let status = Status::BAD_REQUEST;
        let frame = written(|out| reply::error(out, serialization, id, status, text));
        assert_eq!(frame, vector(&format!("javaframe-{name}-response-40")));
    }
    let value = |attachments, value| written(|out| reply::value(out, id, attachments, value));
    let hello = Some(&b"\x05hello"[..]);
    assert_eq!(
        value(true, hello),
        vector("javaframe-hessian2-response-value-2.0.2")
    );
    assert_eq!(
        value(false, hello),
        vector("javaframe-hessian2-response-value-2.6.2")
    );
    assert_eq!(
        value(true, None),
        vector("javaframe-hessian2-response-null-2.0.2")
    );
    assert_eq!(
        value(false, None),
        vector("javaframe-hessian2-response-null-2.6.2")
    );
}

#[test]
fn calls_are_written_as_java_writes_them() {
    let mut body = Vec::new();
    let call = Outgoing {
        path: "com.foo.DemoService",
        version: "0.0.0",
        method: "sayHello",
        types: "Ljava/lang/String;",
        arguments: b"\x05world",
        attachments: &[
            ("path", "com.foo.DemoService"),
            ("remote.application", "demo-consumer"),
            ("interface", "com.foo.DemoService"),
            ("version", "0.0.0"),
            ("timeout", "1000"),
        ],
    };
    write(&mut body, &call);
    assert_eq!(body, vector("javaframe-hessian2-request")[HEAD_LEN..]);
}

const RUNTIME: &str = "java.lang.RuntimeException";

/// The exception as a Hessian2 value, and what follows it.
fn exception(attachments: bool, message: &str) -> (i32, String, Vec<u8>) {
    let frame = written(|out| {
        reply::exception(out, HESSIAN2, RequestId(1), attachments, RUNTIME, message);
    });
    let mut scratch = Scratch::default();
    let body = &frame[HEAD_LEN..];
    assert_eq!(
        reply::kind(Status::OK, HESSIAN2, body),
        reply::Kind::Exception
    );
    let class = reply::exception_class(HESSIAN2, body, &mut scratch);
    assert_eq!(class.as_deref(), Some(RUNTIME));
    let (limits, mut tables) = (Limits::default(), Tables::default());
    let mut reader = Reader::new(body, &limits, &mut tables);
    let Ok(Value::Int(code)) = Value::read(&mut reader) else {
        panic!("no type");
    };
    let Ok(Value::Object { fields, .. }) = Value::read(&mut reader) else {
        panic!("no object");
    };
    let [(name, Value::Text(text))] = &fields[..] else {
        panic!("{fields:?}");
    };
    assert!(name.is(b"detailMessage"));
    (code, text.to_string(), body[reader.position()..].to_vec())
}

#[test]
fn exceptions_carry_attachments_only_for_who_reads_them() {
    let message = "RL rate limited: \u{1f600} ".repeat(40);
    let (code, text, rest) = exception(true, &message);
    assert_eq!((code, text), (3, message));
    assert_eq!(rest, b"H\x05dubbo\x052.0.2Z");
    let (code, text, rest) = exception(false, "no");
    assert_eq!((code, text.as_str(), &rest[..]), (0, "no", &b""[..]));
}

#[test]
fn exceptions_of_fastjson2_are_named_as_java_names_them() {
    for (attachments, items) in [(true, 3), (false, 2)] {
        let frame = written(|out| {
            reply::exception(out, FASTJSON2, RequestId(1), attachments, RUNTIME, "boom");
        });
        let body = &frame[HEAD_LEN..];
        assert_eq!(
            reply::kind(Status::OK, FASTJSON2, body),
            reply::Kind::Exception
        );
        let class = reply::exception_class(FASTJSON2, body, &mut Scratch::default());
        assert_eq!(class.as_deref(), Some("RuntimeException"));
        let mut cut = dubbo_proto::fastjson2::Items::new(body);
        let count = std::iter::from_fn(|| cut.item().ok()).count();
        assert_eq!(count, items);
        assert!(
            body.windows(19)
                .any(|part| part == b"\x56detailMessage\x4dboom")
        );
    }
}

/// Where an object cannot be written the caller gets an error that says the same.
#[test]
fn exceptions_elsewhere_are_errors() {
    let frame = written(|out| {
        reply::exception(
            out,
            Serialization::GSON,
            RequestId(1),
            true,
            RUNTIME,
            "no \"entry\"",
        );
    });
    let frame = Frame::decode(&mut frame[..].into(), frame::Limits::default());
    let frame = frame.expect("good").expect("whole");
    assert_eq!(
        frame.head.kind,
        dubbo_proto::head::Kind::Response {
            status: Status::SERVICE_ERROR
        }
    );
    assert_eq!(&frame.body[..], b"\"no \\\"entry\\\"\"\n");
}

/// A null result with attachments was refused by another proxy: after the type nothing was allowed.
#[test]
fn a_null_result_may_have_attachments() {
    let map = b"\x95H\x05dubbo\x052.0.2";
    for (rest, kind) in [
        (&b"Z"[..], reply::Kind::Null),
        (b"\x01kNZ", reply::Kind::Null),
        (b"\x01kNZN", reply::Kind::Null),
    ] {
        let body = [map, rest].concat();
        assert_eq!(reply::kind(Status::OK, HESSIAN2, &body), kind);
        let mut scratch = Scratch::default();
        let taken = reply::take_attachment(HESSIAN2, &body, "dubbo", &LIMITS, &mut scratch);
        assert_eq!(taken.map(|(at, _)| at), Some(2..14));
        let taken = reply::take_attachment(HESSIAN2, &body, "k", &LIMITS, &mut scratch);
        assert_eq!(taken, None, "null is no string");
    }
}

#[test]
fn what_is_cut_out_of_a_reply_changes_nothing_else() {
    let value = b"\x94\x71\x04[int\x79H\x01aQ\x90Z";
    let map = b"H\x07closing\x01a\x07closing\x04true\x01o\x60Z";
    let body = [&value[..], &map[..]].concat();
    let mut scratch = Scratch::default();
    // The object's class was never defined: nothing of a broken reply is cut.
    assert_eq!(
        reply::take_attachment(HESSIAN2, &body, "closing", &LIMITS, &mut scratch),
        None
    );
    let body = [
        &value[..],
        b"H\x07closing\x01a\x07closing\x04true\x01oC\x01x\x90\x60Z",
    ]
    .concat();
    let (at, text) = reply::take_attachment(HESSIAN2, &body, "closing", &LIMITS, &mut scratch)
        .expect("the last one");
    assert!(text.is(b"true"));
    let cut = [&body[..at.start], &body[at.end..]].concat();
    let (_, text) = reply::take_attachment(HESSIAN2, &cut, "closing", &LIMITS, &mut scratch)
        .expect("the one before");
    assert!(text.is(b"a"));
}
