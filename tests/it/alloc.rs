//! In steady state a call allocates nothing, with a retry policy or without.
//!
//! Everything in the process is counted, so the peers here use fixed buffers alone.

use std::{
    alloc::System,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use dubbo_proto::head::{HEAD_LEN, Head, Kind, Serialization, Status};
use dubbo_proxy::model::Side;
use mesh_tests::proxy::{Proxy, call};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Calls of one batch.
const BATCH: usize = 50;
/// Batches that are counted, after as many that warm up.
const ROUNDS: usize = 400;

#[test]
fn a_call_allocates_nothing() {
    for policy in ["", "      idempotent: true\n      retries: 2\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let sidecar = Proxy::outbound(&[listener.local_addr().expect("an address")], policy);
        let (provider, _) = listener.accept().expect("dialled");
        let served = std::thread::spawn(move || serve(provider));
        let mut application =
            TcpStream::connect(sidecar.address(Side::Outbound)).expect("connected");
        let calls: Vec<u8> = (0..BATCH as u64).flat_map(|id| call(id, "find")).collect();
        let mut answers = vec![0; BATCH * (HEAD_LEN + ANSWER.len())];
        let mut rounds = |count: usize| {
            for _ in 0..count {
                application.write_all(&calls).expect("written");
                application.read_exact(&mut answers).expect("answered");
            }
        };
        rounds(ROUNDS);
        let region = Region::new(ALLOCATOR);
        rounds(ROUNDS);
        let counted = region.change();
        let calls = ROUNDS * BATCH;
        let allocations = counted.allocations + counted.reallocations;
        assert!(
            allocations * 200 < calls,
            "{allocations} allocations in {calls} calls with policy {policy:?}: {counted:?}"
        );
        drop(sidecar);
        served.join().expect("the provider ended");
    }
}

/// A string as value, without attachments.
const ANSWER: &[u8] = b"\x91\x05world";

/// Answers every request, until the connection ends.
fn serve(mut stream: TcpStream) {
    let mut input = vec![0; 256 * 1024];
    let mut output = vec![0; 64 * 1024];
    let mut filled = 0;
    while let Ok(read @ 1..) = stream.read(&mut input[filled..]) {
        filled += read;
        let (mut at, mut out) = (0, 0);
        while let Some(head) = input[at..filled].first_chunk().and_then(Head::decode) {
            if filled - at < head.frame_len() {
                break;
            }
            at += head.frame_len();
            if !matches!(head.kind, Kind::Request { .. }) {
                continue;
            }
            let answer = Head {
                kind: Kind::Response { status: Status::OK },
                serialization: Serialization::HESSIAN2,
                id: head.id,
                body_len: ANSWER.len() as u32,
            };
            output[out..out + HEAD_LEN].copy_from_slice(&answer.encode());
            output[out + HEAD_LEN..out + HEAD_LEN + ANSWER.len()].copy_from_slice(ANSWER);
            out += HEAD_LEN + ANSWER.len();
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        if stream.write_all(&output[..out]).is_err() {
            return;
        }
    }
}
