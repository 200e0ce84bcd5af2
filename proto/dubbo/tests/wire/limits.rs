//! Every limit, at it and one beyond.

use dubbo_proto::{
    head::Serialization,
    hessian2::{Limits, Reader, Tables, Value, writer::Writer},
    invocation::{Invocation, Outgoing, Scratch, write},
};

/// Small limits, so that each is reached by a few bytes.
const SMALL: Limits = Limits {
    depth: 5,
    decode_depth: 4,
    decode_values: 6,
    classes: 2,
    fields: 3,
    types: 2,
    slots: 7,
    attachments: 2,
    key_len: 8,
    name_len: 12,
};

fn skip(bytes: &[u8]) -> Result<usize, String> {
    let mut tables = Tables::default();
    let mut reader = Reader::new(bytes, &SMALL, &mut tables);
    reader.skip().map_err(|error| error.to_string())?;
    Ok(reader.position())
}

fn read(bytes: &[u8]) -> Result<usize, String> {
    let mut tables = Tables::default();
    let mut reader = Reader::new(bytes, &SMALL, &mut tables);
    Value::read(&mut reader).map_err(|error| error.to_string())?;
    Ok(reader.position())
}

#[test]
fn values_are_bounded() {
    let whole = |bytes: &[u8]| Ok(bytes.len());
    let depth = b"\x79\x79\x79\x79\x79N";
    assert_eq!(skip(depth), whole(depth));
    assert_eq!(
        skip(b"\x79\x79\x79\x79\x79\x79N"),
        Err("too many levels at byte 5".into())
    );
    assert_eq!(read(b"\x79\x79\x79N"), Ok(4));
    assert_eq!(
        read(b"\x79\x79\x79\x79N"),
        Err("too many levels at byte 4".into())
    );
    assert_eq!(read(b"\x7dNNNNN"), Ok(6));
    assert_eq!(read(b"\x7eNNNNNN"), Err("too many values at byte 6".into()));
    assert_eq!(skip(b"C\x01a\x90C\x01b\x90\x60"), Ok(9));
    let third = skip(b"C\x01a\x90C\x01b\x90C\x01c\x90\x60");
    assert_eq!(third, Err("too many class definitions at byte 11".into()));
    assert_eq!(skip(b"C\x01a\x93\x01x\x01y\x01z\x60NNN"), Ok(14));
    let fourth = skip(b"C\x01a\x94\x01x\x01y\x01z\x01w\x60NNNN");
    assert_eq!(fourth, Err("too many fields at byte 3".into()));
    let long = |body: &[u8]| skip(body).expect_err("a long name");
    assert_eq!(
        skip(b"C\x08eight by\x91\x08eight by\x60\x70\x08eight by"),
        Ok(31)
    );
    assert_eq!(
        long(b"C\x09nine byte\x90\x60"),
        "too many bytes of a name at byte 1"
    );
    assert_eq!(
        long(b"C\x01x\x91\x09nine byte\x60N"),
        "too many bytes of a name at byte 4"
    );
    assert_eq!(
        long(b"\x70\x09nine byte"),
        "too many bytes of a name at byte 1"
    );
    assert_eq!(skip(b"\x7a\x70\x01a\x70\x01b"), Ok(7));
    let third = skip(b"\x7b\x70\x01a\x70\x01b\x70\x01c");
    assert_eq!(third, Err("too many type names at byte 8".into()));
    assert_eq!(skip(b"\x7e\x78\x78\x78\x78\x78\x78"), Ok(7));
    let eighth = skip(b"\x7f\x78\x78\x78\x78\x78\x78\x78");
    assert_eq!(eighth, Err("too many containers at byte 7".into()));
}

fn peek(path: &str, attachments: &[(&str, &str)]) -> Result<(), String> {
    let mut body = Vec::new();
    let call = Outgoing {
        path,
        version: "",
        method: "m",
        types: "",
        arguments: b"",
        attachments,
    };
    write(&mut body, &call);
    let mut scratch = Scratch::default();
    let call = Invocation::peek(Serialization::HESSIAN2, &body, &SMALL, &mut scratch);
    call.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn calls_are_bounded() {
    assert_eq!(peek("twelve bytes", &[]), Ok(()));
    let long = peek("thirteen byte", &[]);
    assert_eq!(
        long,
        Err("malformed path: too many bytes of a name at byte 20".into())
    );
    assert_eq!(peek("p", &[("a", "b"), ("c", "d")]), Ok(()));
    let third = peek("p", &[("a", "b"), ("c", "d"), ("e", "f")]);
    assert_eq!(
        third,
        Err("malformed attachments: too many attachments at byte 21".into())
    );
    assert_eq!(peek("p", &[("eight by", "long value is fine")]), Ok(()));
    let long = peek("p", &[("nine byte", "")]);
    assert_eq!(
        long,
        Err("malformed attachments: too many bytes of a key at byte 13".into())
    );
}

/// Strings have no limit of their own, because they never claim more than there is.
#[test]
fn a_string_is_as_long_as_the_body_lets_it_be() {
    let text = "x".repeat(70_000);
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).text(&text);
    assert_eq!(skip(&bytes), Ok(bytes.len()));
    assert_eq!(read(&bytes), Ok(bytes.len()));
    bytes.pop();
    assert_eq!(
        skip(&bytes),
        Err(format!("truncated at byte {}", bytes.len()))
    );
}

/// Seven bytes that made another reader allocate 378 GB: a list of 2^31-1 values.
#[test]
fn a_length_is_checked_before_memory_is_taken() {
    let bytes = [0x58, 0x49, 0x7f, 0xff, 0xff, 0xff, 0x90];
    let refused = Err("length exceeds the bytes left at byte 5".to_owned());
    assert_eq!(skip(&bytes), refused);
    assert_eq!(read(&bytes), refused);
}
