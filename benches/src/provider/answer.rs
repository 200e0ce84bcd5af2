//! What a call is answered with: pure, from the bytes of its body to the bytes of a frame.

use std::net::SocketAddr;
use std::sync::Arc;

use dubbo_proto::head::{ID, Serialization, Status};
use dubbo_proto::hessian2::{Limits, Reader, Tables};
use dubbo_proto::invocation::{Invocation, Scratch};
use dubbo_proto::key::{KeyRef, ServiceKey};
use dubbo_proto::mux::Call;
use dubbo_proto::reply;

use super::Options;

/// What all connections of a provider answer.
#[derive(Debug)]
pub(super) struct Answers {
    /// None: every service.
    services: Vec<ServiceKey>,
    address: SocketAddr,
    /// The value of every call, encoded; none: its first argument.
    payload: Option<Vec<u8>>,
}

impl Answers {
    pub(super) fn new(options: &Options, address: SocketAddr) -> Self {
        let payload = options.payload.encoded();
        Self {
            services: options.services.clone(),
            address,
            payload,
        }
    }

    /// Appends the answer to `call`, a whole frame.
    fn compose(&self, call: &Call<'_>, memory: &mut Memory, out: &mut Vec<u8>) {
        if let Err((status, text)) = self.value(call, memory, out) {
            reply::error(out, call.serialization, call.id, status, &text);
        }
    }

    /// Appends a value, or appends nothing and says what is wrong with the call.
    fn value(
        &self,
        call: &Call<'_>,
        memory: &mut Memory,
        out: &mut Vec<u8>,
    ) -> Result<(), (Status, String)> {
        let bad = |text| {
            (
                Status::BAD_REQUEST,
                format!("Fail to decode request due to: {text}"),
            )
        };
        let limits = Limits::default();
        let scratch = &mut memory.scratch;
        let invocation = Invocation::peek(call.serialization, call.body, &limits, scratch)
            .map_err(|error| bad(error.to_string()))?;
        if call.serialization != Serialization::HESSIAN2 {
            return Err(bad("this provider writes Hessian2 only".to_owned()));
        }
        let group = invocation.group().to_utf8();
        let (path, version) = (invocation.path().to_utf8(), invocation.version().to_utf8());
        let key = KeyRef::new(&group, &path, &version);
        if !self.serves(key) {
            return Err((Status::SERVICE_ERROR, self.not_exported(key)));
        }
        let value = match &self.payload {
            Some(payload) if !invocation.method.is(b"$echo") => Some(payload.as_slice()),
            _ if invocation.types.is_empty() => None,
            _ => first_argument(call.body, &mut memory.tables),
        };
        reply::value(out, call.id, invocation.takes_reply_attachments(), value);
        Ok(())
    }

    fn serves(&self, key: KeyRef<'_>) -> bool {
        self.services.is_empty() || self.services.iter().any(|service| key == *service)
    }

    /// As Java says it (apache/dubbo, `DubboProtocol.getInvoker`).
    #[cold]
    fn not_exported(&self, key: KeyRef<'_>) -> String {
        let port = self.address.port();
        let exported: Vec<_> = self
            .services
            .iter()
            .map(|s| format!("{s}:{port}"))
            .collect();
        format!(
            "org.apache.dubbo.remoting.RemotingException: Not found exported service: {key}:{port} \
             in [{}], may be version or group mismatch, provider: {}",
            exported.join(", "),
            self.address
        )
    }
}

/// Answers the calls of one connection.
///
/// Whoever measures sends one body again and again: the last one is kept with its answer, so that
/// the next is compared and copied instead of read.
#[derive(Debug)]
pub(super) struct Answerer {
    answers: Arc<Answers>,
    memory: Memory,
    serialization: Serialization,
    body: Vec<u8>,
    /// A whole frame; the id in it is that of the last call.
    answer: Vec<u8>,
}

impl Answerer {
    pub(super) fn new(answers: Arc<Answers>) -> Self {
        Self {
            answers,
            memory: Memory::default(),
            serialization: Serialization::HESSIAN2,
            body: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// The answer to `call`, a whole frame.
    #[inline]
    pub(super) fn answer(&mut self, call: &Call<'_>) -> &[u8] {
        let same = self.serialization == call.serialization && self.body == call.body;
        if !same || self.answer.is_empty() {
            self.serialization = call.serialization;
            self.body.clear();
            self.body.extend_from_slice(call.body);
            self.answer.clear();
            self.answers
                .compose(call, &mut self.memory, &mut self.answer);
        }
        self.answer[ID].copy_from_slice(&call.id.0.to_be_bytes());
        &self.answer
    }
}

/// What reading needs, kept from call to call.
#[derive(Debug, Default)]
struct Memory {
    scratch: Scratch,
    tables: Tables,
}

/// The bytes of the first argument. They stand for themselves: no table has an entry before them.
fn first_argument<'a>(body: &'a [u8], tables: &mut Tables) -> Option<&'a [u8]> {
    let limits = Limits::default();
    let mut reader = Reader::new(body, &limits, tables);
    for _ in 0..STRINGS {
        reader.skip().ok()?;
    }
    let start = reader.position();
    reader.skip().ok()?;
    body.get(start..reader.position())
}

/// Strings in front of the arguments.
const STRINGS: usize = 5;

#[cfg(test)]
mod tests {
    use dubbo_proto::frame;
    use dubbo_proto::head::{Kind, RequestId};
    use dubbo_proto::invocation;

    use super::super::Payload;
    use super::*;

    fn answers(payload: Payload, services: &[&str]) -> Answerer {
        let payload = payload.encoded();
        let services = services.iter().map(|s| s.parse().expect("a key")).collect();
        let address = "127.0.0.1:20880".parse().expect("an address");
        Answerer::new(Arc::new(Answers {
            services,
            address,
            payload,
        }))
    }

    fn body(path: &str, method: &str, types: &str, arguments: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let attachments = &[("path", path)];
        let call = invocation::Outgoing {
            path,
            version: "",
            method,
            types,
            arguments,
            attachments,
        };
        invocation::write(&mut out, &call);
        out
    }

    fn ask(answerer: &mut Answerer, id: u64, body: &[u8]) -> (Kind, u64, Vec<u8>) {
        let serialization = Serialization::HESSIAN2;
        let call = Call {
            id: RequestId(id),
            serialization,
            two_way: true,
            body,
        };
        let mut frame = answerer.answer(&call);
        let (head, body) = frame::cut(&mut frame, frame::Limits::default())
            .expect("a frame")
            .expect("whole");
        assert!(frame.is_empty());
        (head.kind, head.id.0, body.to_vec())
    }

    const OK: Kind = Kind::Response { status: Status::OK };

    #[test]
    fn the_argument_comes_back_under_each_id() {
        let mut echo = answers(Payload::Echo, &[]);
        let hello = body("a.B", "m", "Ljava/lang/String;", b"\x05hello");
        for id in [7, 8] {
            let (kind, got, answer) = ask(&mut echo, id, &hello);
            assert_eq!((kind, got), (OK, id));
            assert!(answer.starts_with(b"\x94\x05hello"), "{answer:x?}");
        }
        let (_, _, answer) = ask(&mut echo, 9, &body("a.B", "m", "", b""));
        assert_eq!(answer.first(), Some(&0x95), "null, with attachments");
    }

    #[test]
    fn a_payload_answers_all_but_echo() {
        let mut fixed = answers(Payload::Bytes(3), &[]);
        let (_, _, answer) = ask(&mut fixed, 1, &body("a.B", "m", "I", b"\x91"));
        assert!(answer.starts_with(b"\x94\x03xxx"), "{answer:x?}");
        let (_, _, answer) = ask(
            &mut fixed,
            1,
            &body("a.B", "$echo", "Ljava/lang/Object;", b"\x91"),
        );
        assert!(answer.starts_with(b"\x94\x91"), "{answer:x?}");
    }

    #[test]
    fn what_is_not_served_is_refused_in_words() {
        let mut picky = answers(Payload::Echo, &["a.B"]);
        let (kind, ..) = ask(&mut picky, 1, &body("a.B", "m", "", b""));
        assert_eq!(kind, OK);
        let (kind, _, answer) = ask(&mut picky, 2, &body("a.C", "m", "", b""));
        assert_eq!(
            kind,
            Kind::Response {
                status: Status::SERVICE_ERROR
            }
        );
        let text = String::from_utf8_lossy(&answer);
        assert!(
            text.contains("Not found exported service: a.C:20880"),
            "{text}"
        );
        let (kind, ..) = ask(&mut picky, 3, b"\x05no");
        assert_eq!(
            kind,
            Kind::Response {
                status: Status::BAD_REQUEST
            }
        );
    }
}
