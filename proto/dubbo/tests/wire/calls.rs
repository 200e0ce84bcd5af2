//! Calls made to mislead: what Java would act on is what we see, or the call is refused.

use dubbo_proto::{
    head::{HEAD_LEN, Serialization},
    hessian2::writer::Writer,
    invocation::{Invocation, Outgoing, Scratch, write},
};

use crate::vector::{LIMITS, frames};

fn peek(body: &[u8]) -> Result<Invocation<'_>, String> {
    let mut scratch = Scratch::default();
    Invocation::peek(Serialization::HESSIAN2, body, &LIMITS, &mut scratch)
        .map_err(|error| error.to_string())
}

/// A body with these arguments and, encoded already, attachments.
fn body(types: &str, arguments: &[u8], attachments: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let call = Outgoing {
        path: "front",
        version: "1",
        method: "$invoke",
        types,
        arguments,
        attachments: &[],
    };
    write(&mut body, &call);
    body.truncate(body.len() - 2);
    [&body, attachments].concat()
}

fn path(attachments: &[u8]) -> Result<String, String> {
    let body = body("", b"", attachments);
    peek(&body).map(|call| call.path().to_string())
}

#[test]
fn the_path_is_the_one_java_looks_up() {
    let is = |text: &str| Ok(text.to_owned());
    assert_eq!(path(b"N"), is("front"));
    assert_eq!(path(b"HZ"), is("front"));
    assert_eq!(path(b"H\x04path\x01aZ"), is("a"));
    assert_eq!(path(b"H\x04path\x01a\x04path\x01bZ"), is("b"), "the last");
    assert_eq!(
        path(b"H\x04path\x01a\x04pathNZ"),
        is(""),
        "null finds nothing"
    );
    assert_eq!(path(b"M\x01t\x04path\x01aZ"), is("a"), "a typed map");
    assert_eq!(
        path(b"H\x52\0\x02pa\x52\0\0\x02th\x01aZ"),
        is("a"),
        "a key in chunks"
    );
    assert_eq!(
        path(b"H\x04\xc1\xb0ath\x01aZ"),
        is("a"),
        "an overlong p, which Java reads as p"
    );
    assert_eq!(
        path(b"H\x04path\x52\0\x01a\x01bZ"),
        is("ab"),
        "a value in chunks"
    );
    assert_eq!(
        path(b"H\x01x\x48\x04path\x01aZZ"),
        is("front"),
        "of a map inside"
    );
    assert_eq!(
        path(b"H\x48\x04path\x01aZ\x01xZ"),
        is("front"),
        "of a map that is a key"
    );
    assert_eq!(
        path(b"H\x95\x01x\x04path\x01aZ"),
        is("a"),
        "behind a key that is no string"
    );
    assert_eq!(path(b"H\x04Path\x01aZ"), is("front"), "of another case");
}

#[test]
fn what_java_would_fail_on_is_refused() {
    let said = |what: &str| Err(format!("malformed attachments: {what}"));
    assert_eq!(
        path(b"H\x04path\x95Z"),
        said("not a string as path at byte 24")
    );
    assert_eq!(
        path(b"H\x05group\x78Z"),
        said("not a string as group at byte 24")
    );
    assert_eq!(path(b"\x00"), said("not a map at byte 23"));
    assert_eq!(path(b"\x79N"), said("not a map at byte 23"));
    // An object whose class Java does not know would become a map of its fields.
    assert_eq!(
        path(b"C\x01x\x91\x04path\x60\x01a"),
        said("not a map at byte 23")
    );
    assert_eq!(path(b"Q\x90"), said("reference out of range at byte 24"));
    assert_eq!(path(b""), said("truncated at byte 23"));
    assert_eq!(path(b"H\x04path\x01a"), said("truncated at byte 31"));
}

#[test]
fn attachments_may_be_a_map_of_the_arguments() {
    let two = "Ljava/util/List;Ljava/lang/Object;";
    let list = b"\x7a\x79\x79NH\x04path\x01a\x05group\x01gZ";
    let with = |attachments: &[u8]| {
        let body = body(
            two,
            &[&list[..], b"C\x01x\x91\x01f\x60Q\x90"].concat(),
            attachments,
        );
        peek(&body).map(|call| {
            assert_eq!(call.attachments.range().len(), attachments.len());
            assert_eq!(call.attachments.get("group"), call.attachments.group);
            call.path().to_string()
        })
    };
    assert_eq!(with(b"Q\x93"), Ok("a".into()));
    assert_eq!(with(b"HZ"), Ok("front".into()));
    for other in [b"Q\x90", b"Q\x92", b"Q\x94"] {
        assert!(
            with(other)
                .expect_err("a list or object")
                .contains("not a map")
        );
    }
    assert!(
        with(b"Q\x95")
            .expect_err("nothing")
            .contains("reference out of range")
    );
    let vector = frames()
        .into_iter()
        .find(|v| v.name == "att-ref")
        .expect("att-ref");
    let call = peek(&vector.bytes[HEAD_LEN..]).expect("a call");
    assert!(call.path().is(b"evil") && call.positional_path.is(b"com.foo.DemoService"));
}

#[test]
fn the_method_of_a_generic_call_is_its_first_argument() {
    for vector in frames()
        .iter()
        .filter(|v| v.name.starts_with("req-generic"))
    {
        let call = peek(&vector.bytes[HEAD_LEN..]).expect("a call");
        assert!(call.real_method().is(b"sayHello"), "{}", vector.name);
    }
    let method = |types, arguments| {
        let body = body(types, arguments, b"N");
        peek(&body).map(|call| call.real_method().to_string())
    };
    assert_eq!(
        method("Ljava/lang/String;", b"\x52\0\x02fi\x02nd"),
        Ok("find".into())
    );
    assert_eq!(
        method("I", b"\x90"),
        Ok("$invoke".into()),
        "not what it should be"
    );
    assert_eq!(method("", b""), Ok("$invoke".into()));
}

/// Java sends an emoji as two surrogates of three bytes each, which others took for the end of it.
#[test]
fn surrogates_are_characters() {
    let nick = |text: &[u8]| {
        let attachments = [b"H\x04nick", text, b"\x04path\x01aZ"].concat();
        let body = body("Ljava/lang/String;", text, &attachments);
        peek(&body).map(|call| {
            assert!(call.path().is(b"a"), "what follows is not shifted");
            let nick = call.attachments.get("nick").expect("a text");
            assert_eq!(call.real_method(), nick);
            String::from_utf8(nick.to_utf8().into_owned()).expect("UTF-8")
        })
    };
    assert_eq!(
        nick(b"\x04a\xed\xa0\xbd\xed\xb8\x80b"),
        Ok("a\u{1f600}b".into())
    );
    assert_eq!(
        nick(b"\x03a\xed\xa0\xbdb"),
        Ok("a\u{fffd}b".into()),
        "a lone surrogate"
    );
    assert_eq!(
        nick(b"\x52\0\x02a\xed\xa0\xbd\x02\xed\xb8\x80b"),
        Ok("a\u{1f600}b".into())
    );
    let many = "\u{1f600}".repeat(40_000);
    let mut written = Vec::new();
    Writer::new(&mut written).text(&many);
    assert_eq!(nick(&written), Ok(many));
    let four_bytes = nick(b"\x02\xf0\x9f\x98\x80").expect_err("as Java does");
    assert!(four_bytes.contains("bad text"), "{four_bytes}");
}

#[test]
fn times_are_read_in_every_form() {
    let times = |entries: &[u8]| {
        let body = body("", b"", &[b"H", entries, b"Z"].concat());
        let told = peek(&body).expect("a call").attachments;
        (
            told.timeout.map(|t| t.as_millis()),
            told.remaining.map(|t| t.as_millis()),
        )
    };
    assert_eq!(
        times(b"\x07timeout\x041000\x03_TO\xcb\x20"),
        (Some(1000), Some(800))
    );
    assert_eq!(
        times(b"\x07timeout\xcb\xe8\x03_TO\x4c\0\0\0\0\0\0\0\x05"),
        (Some(1000), Some(5))
    );
    assert_eq!(times(b"\x03_to\x015"), (None, Some(5)));
    assert_eq!(
        times(b"\x03_TO\x017\x03_to\x015"),
        (None, Some(7)),
        "_TO before _to"
    );
    assert_eq!(times(b"\x03_to\x015\x03_TO\x017"), (None, Some(7)));
    assert_eq!(times(b"\x07timeout\x010\x03_TO\x02-5"), (None, Some(0)));
    assert_eq!(times(b"\x07timeout\x02-1\x03_TO\x8f"), (None, Some(0)));
    assert_eq!(times(b"\x07timeoutN\x03_TON"), (None, None));
    assert_eq!(times(b"\x07timeout\x021s\x03_TO\x00"), (None, None));
    let nineteen = b"\x07timeout\x139223372036854775808";
    assert_eq!(times(nineteen), (None, None), "no long");
}

#[test]
fn flags_are_read() {
    let told = |entries: &[u8]| {
        let body = body("", b"", &[b"H", entries, b"Z"].concat());
        let told = peek(&body).expect("a call").attachments;
        (told.idempotent, told.callback, told.stub_event)
    };
    assert_eq!(told(b"\x0fmesh.idempotent\x04true"), (true, false, false));
    assert_eq!(
        told(b"\x0fmesh.idempotent\x04true\x0fmesh.idempotentF"),
        (false, false, false)
    );
    assert_eq!(told(b"\x12sys_callback_arg-1\x03123"), (false, true, false));
    assert_eq!(told(b"\x10dubbo.stub.event\x04true"), (false, false, true));
    assert_eq!(
        told(b"\x10dubbo.stub.event\x05false\x10sys_callback_arg\x01x"),
        (false, false, false)
    );
}
