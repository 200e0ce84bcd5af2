//! Events: heartbeats, and notices about the connection. A body is one short value.
//!
//! Source: apache/dubbo, `HeartbeatHandler`, `HeaderExchangeHandler`.

use crate::{
    frame,
    head::{Kind, RequestId, Serialization, Status},
};

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Is anybody there. Answered if two-way.
    Heartbeat,
    /// The provider is going away: no new calls on this connection. Never answered.
    ReadOnly,
    /// The provider takes [`Self::ReadOnly`] back. Never answered.
    Writeable,
    /// Something we do not know, or a serialization we cannot read.
    Other,
}

/// Reads the body of an event. An empty one is a heartbeat too: Java refuses it, but it costs
/// nothing to be generous.
#[must_use]
pub fn read(serialization: Serialization, body: &[u8]) -> Event {
    let null = null(serialization);
    if body.is_empty() || !null.is_empty() && body.starts_with(null) {
        return Event::Heartbeat;
    }
    let (letter, rest) = match (serialization, body) {
        (Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN, [1, letter, rest @ ..])
        | (Serialization::FASTJSON2, [0, 0, 0, 2, 0x4a, letter, rest @ ..])
        | (Serialization::PROTOBUF, [3, 0x0a, 1, letter, rest @ ..])
        | (Serialization::MSGPACK, [0xa1, letter, rest @ ..]) => (letter, rest),
        (
            Serialization::FASTJSON
            | Serialization::GSON
            | Serialization::JACKSON
            | Serialization::PROTOBUF_JSON,
            [b'"', letter, b'"', ..],
        ) => (letter, [].as_slice()),
        _ => return Event::Other,
    };
    // dubbo-go adds a null to whatever it sends.
    match (letter, rest) {
        (b'H', _) => Event::Heartbeat,
        (b'R', [] | [b'N']) => Event::ReadOnly,
        (b'W', [] | [b'N']) => Event::Writeable,
        _ => Event::Other,
    }
}

/// Appends a heartbeat, a whole frame.
pub fn heartbeat(out: &mut Vec<u8>, serialization: Serialization, id: RequestId, two_way: bool) {
    append(
        out,
        Kind::Event { two_way },
        serialization,
        id,
        null(serialization),
    );
}

/// Appends the answer to a heartbeat, a whole frame, in the serialization of the heartbeat.
pub fn heartbeat_answer(out: &mut Vec<u8>, serialization: Serialization, id: RequestId) {
    let status = Status::OK;
    append(
        out,
        Kind::EventResponse { status },
        serialization,
        id,
        null(serialization),
    );
}

/// Appends READONLY, a whole frame that nobody answers, in Hessian2, which every peer reads.
pub fn read_only(out: &mut Vec<u8>, id: RequestId) {
    let kind = Kind::Event { two_way: false };
    append(out, kind, Serialization::HESSIAN2, id, b"\x01R");
}

fn append(out: &mut Vec<u8>, kind: Kind, serialization: Serialization, id: RequestId, body: &[u8]) {
    frame::append(out, kind, serialization, id, |out| {
        out.extend_from_slice(body)
    });
}

/// How a heartbeat's null is written: Java takes for a heartbeat what equals this. Empty if we do
/// not know.
const fn null(serialization: Serialization) -> &'static [u8] {
    match serialization {
        Serialization::FASTJSON2 => b"\0\0\0\x01\xaf",
        Serialization::FASTJSON | Serialization::GSON | Serialization::JACKSON => b"null\n",
        // Protobuf has no null: the text `H`.
        Serialization::PROTOBUF_JSON => b"\"H\"\n",
        Serialization::PROTOBUF => b"\x03\x0a\x01H",
        Serialization::MSGPACK => b"\xc0",
        Serialization::JAVA | Serialization::COMPACTED_JAVA => b"\xac\xed\0\x05\x77\x01\0",
        Serialization::NATIVE_JAVA => b"\xac\xed\0\x05\x70",
        Serialization::HESSIAN2 | Serialization::NATIVE_HESSIAN => b"N",
        _ => b"",
    }
}
