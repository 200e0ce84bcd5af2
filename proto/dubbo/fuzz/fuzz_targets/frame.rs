//! A stream cut anywhere yields the same frames, and nothing in their bodies panics.
#![no_main]

use bytes::BytesMut;
use dubbo_proto::{
    event,
    frame::{Error, Frame, Limits},
    head::Kind,
    hessian2,
    invocation::{Invocation, Scratch},
    reply,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((size, stream)) = input.split_first() else {
        return;
    };
    let whole = decode([stream].into_iter());
    let pieces = decode(stream.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, pieces);
    for frame in &whole.0 {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        let again = decode([&out[..]].into_iter());
        assert_eq!(again.0.first(), Some(frame));
        read(frame);
    }
});

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<Error>) {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match Frame::decode(&mut input, Limits { max_body: 4096 }) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn read(frame: &Frame) {
    let (serialization, body) = (frame.head.serialization, &frame.body[..]);
    let (mut scratch, limits) = (Scratch::default(), hessian2::Limits::default());
    match frame.head.kind {
        Kind::Request { .. } => {
            let _ = Invocation::peek(serialization, body, &limits, &mut scratch);
        }
        Kind::Response { status } => {
            let _ = reply::kind(status, serialization, body);
            let _ = reply::exception_class(serialization, body, &mut scratch);
            let taken = reply::take_attachment(serialization, body, "dubbo", &limits, &mut scratch);
            if let Some((at, _)) = taken {
                let cut = [&body[..at.start], &body[at.end..]].concat();
                let before = reply::kind(status, serialization, body);
                assert_eq!(reply::kind(status, serialization, &cut), before);
            }
        }
        Kind::Event { .. } | Kind::EventResponse { .. } => {
            let _ = event::read(serialization, body);
        }
    }
}
