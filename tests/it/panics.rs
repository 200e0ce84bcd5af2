//! A shard that fails: its connections end, the process lives, the frame is refused from then on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dubbo_proto::head::{Kind, Status};
use dubbo_proxy::Entropy;
use mesh_tests::http;
use mesh_tests::peer::{Listener, answer, text};

use mesh_tests::proxy::{Proxy, call, outbound};

#[test]
fn the_frame_that_made_a_shard_fail_is_kept_and_refused() {
    let armed = Arc::new(AtomicBool::new(false));
    let trigger = Arc::clone(&armed);
    // A pick among two hosts asks for a random number: there the shard fails, once.
    let random: Entropy = Arc::new(move || {
        let armed = Arc::clone(&trigger);
        Box::new(move || {
            assert!(
                !armed.swap(false, Ordering::SeqCst),
                "a fault that a test made"
            );
            0
        })
    });
    let (one, two) = (Listener::bind(), Listener::bind());
    let config = outbound(&[one.address(), two.address()], "") + "quarantine: FOLDER/bad.frames\n";
    let proxy = Proxy::with(&config, random);
    let (mut first, mut second) = (one.accept(), two.accept());
    let mut application = proxy.connect();
    application.send(&call(1, "good"));
    first.receive_call();
    armed.store(true, Ordering::SeqCst);
    application.send(&call(2, "bad"));
    application.expect_end();
    first.expect_end();
    second.expect_end();

    let mut first = one.accept();
    drop(two.accept());
    let mut application = proxy.connect();
    application.send(&call(3, "bad"));
    let refused = application.receive_call();
    assert_eq!(
        refused.head.kind,
        Kind::Response {
            status: Status::BAD_REQUEST
        }
    );
    assert!(
        text(&refused).starts_with("DPE bad request: an earlier frame"),
        "{}",
        text(&refused)
    );
    application.send(&call(4, "good"));
    let seen = first.receive_call();
    first.send(&answer(seen.head.id, "world"));
    assert_eq!(text(&application.receive_call()), "world");
    let kept = std::fs::read(proxy.file.with_file_name("bad.frames")).expect("the file");
    assert_eq!(kept[20..], call(2, "bad")[16..], "length, head, body");
    for counter in [
        "mesh_shard_panics_total",
        "mesh_shard_quarantine_refused_total",
    ] {
        let stats = http::get(proxy.admin, &format!("/stats?filter={counter}"));
        assert_eq!(stats.expect("an admin").body, format!("{counter}: 1\n"));
    }
}
