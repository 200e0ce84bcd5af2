//! The 16-byte header in front of every frame.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 2 | magic `da bb` |
//! | 2 | 1 | `80` request, `40` two-way, `20` event, low five bits: serialization id |
//! | 3 | 1 | status, in responses only |
//! | 4 | 8 | request id, big endian |
//! | 12 | 4 | body length, big endian |
//!
//! Source: apache/dubbo, `ExchangeCodec`.

use std::fmt;

/// Bytes of a header.
pub const HEAD_LEN: usize = 16;
/// The first two bytes of a header.
pub const MAGIC: [u8; 2] = [0xda, 0xbb];
/// Where the request id stands in a header.
pub const ID: std::ops::Range<usize> = 4..12;

const REQUEST: u8 = 0x80;
const TWO_WAY: u8 = 0x40;
const EVENT: u8 = 0x20;
const SERIALIZATION: u8 = 0x1f;

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What the frame is.
    pub kind: Kind,
    /// How the body is written.
    pub serialization: Serialization,
    /// Chosen by the sender of the request, repeated by the response.
    pub id: RequestId,
    /// Bytes of body that follow. A negative length on the wire is a number above `i32::MAX` here,
    /// which no limit allows.
    pub body_len: u32,
}

impl Head {
    /// Decodes a header; `None` if the magic is wrong.
    ///
    /// The two-way bit of a response means nothing and is ignored, as Java does.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_LEN]) -> Option<Self> {
        let [
            m0,
            m1,
            flags,
            status,
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            l0,
            l1,
            l2,
            l3,
        ] = *bytes;
        if [m0, m1] != MAGIC {
            return None;
        }
        let two_way = flags & TWO_WAY != 0;
        let status = Status(status);
        let kind = match (flags & REQUEST != 0, flags & EVENT != 0) {
            (true, false) => Kind::Request { two_way },
            (true, true) => Kind::Event { two_way },
            (false, false) => Kind::Response { status },
            (false, true) => Kind::EventResponse { status },
        };
        Some(Self {
            kind,
            serialization: Serialization(flags & SERIALIZATION),
            id: RequestId(u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7])),
            body_len: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }

    /// Encodes the header.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_LEN] {
        let (bits, status) = match self.kind {
            Kind::Request { two_way } => (REQUEST | if two_way { TWO_WAY } else { 0 }, 0),
            Kind::Event { two_way } => (REQUEST | EVENT | if two_way { TWO_WAY } else { 0 }, 0),
            Kind::Response { status } => (0, status.0),
            Kind::EventResponse { status } => (EVENT, status.0),
        };
        let [i0, i1, i2, i3, i4, i5, i6, i7] = self.id.0.to_be_bytes();
        let [l0, l1, l2, l3] = self.body_len.to_be_bytes();
        let flags = bits | self.serialization.0;
        let [m0, m1] = MAGIC;
        [
            m0, m1, flags, status, i0, i1, i2, i3, i4, i5, i6, i7, l0, l1, l2, l3,
        ]
    }

    /// Bytes of the whole frame.
    #[inline]
    #[must_use]
    pub fn frame_len(&self) -> usize {
        HEAD_LEN + self.body_len as usize
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call. With `two_way` false nobody may answer it.
    Request {
        /// Whether the caller waits for an answer.
        two_way: bool,
    },
    /// The answer to a call.
    Response {
        /// How the call went.
        status: Status,
    },
    /// A heartbeat or a notice such as READONLY.
    Event {
        /// Whether the sender waits for an answer.
        two_way: bool,
    },
    /// The answer to an event.
    EventResponse {
        /// Ignored by every peer.
        status: Status,
    },
}

/// A request id: unique per sender and direction, not per connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RequestId(pub u64);

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for RequestId {
    /// As Java prints it: a signed number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.cast_signed())
    }
}

/// A serialization id, five bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serialization(u8);

impl Serialization {
    /// Hessian2 as Dubbo writes it, the default of every version.
    pub const HESSIAN2: Self = Self(2);
    /// Java's own object stream with Dubbo's flags.
    pub const JAVA: Self = Self(3);
    /// As [`Self::JAVA`], with compact class descriptors.
    pub const COMPACTED_JAVA: Self = Self(4);
    /// JSON of fastjson 1: lines or length-prefixed, depending on the writer.
    pub const FASTJSON: Self = Self(6);
    /// Java's own object stream, bare.
    pub const NATIVE_JAVA: Self = Self(7);
    /// Caucho's Hessian2: the same grammar.
    pub const NATIVE_HESSIAN: Self = Self(10);
    /// Avro.
    pub const AVRO: Self = Self(11);
    /// Protostuff.
    pub const PROTOSTUFF: Self = Self(12);
    /// JSON lines by Gson.
    pub const GSON: Self = Self(16);
    /// JSON lines by Jackson.
    pub const JACKSON: Self = Self(18);
    /// JSON lines by protobuf.
    pub const PROTOBUF_JSON: Self = Self(21);
    /// Length-delimited protobuf messages.
    pub const PROTOBUF: Self = Self(22);
    /// Length-prefixed JSONB items.
    pub const FASTJSON2: Self = Self(23);
    /// MessagePack.
    pub const MSGPACK: Self = Self(27);

    /// The low five bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & SERIALIZATION)
    }

    /// The id, 0 to 31.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// The status of a response. Every byte is a legal value; Java treats unknown ones as errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// The provider answered: a value or an exception of the application.
    pub const OK: Self = Self(20);
    /// The answer could not be written (3.x).
    pub const SERIALIZATION_ERROR: Self = Self(25);
    /// The caller's time was over before the request left.
    pub const CLIENT_TIMEOUT: Self = Self(30);
    /// The caller's time was over after the request left.
    pub const SERVER_TIMEOUT: Self = Self(31);
    /// The connection broke.
    pub const CHANNEL_INACTIVE: Self = Self(35);
    /// The request could not be read.
    pub const BAD_REQUEST: Self = Self(40);
    /// The answer could not be written (2.x).
    pub const BAD_RESPONSE: Self = Self(50);
    /// No such service.
    pub const SERVICE_NOT_FOUND: Self = Self(60);
    /// The provider failed outside the method.
    pub const SERVICE_ERROR: Self = Self(70);
    /// The provider failed otherwise.
    pub const SERVER_ERROR: Self = Self(80);
    /// The client could not read the answer.
    pub const CLIENT_ERROR: Self = Self(90);
    /// The provider has no thread left.
    pub const THREADPOOL_EXHAUSTED: Self = Self(100);
}
