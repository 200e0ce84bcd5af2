//! Peers that do not read, over real sockets, beyond what the kernel takes for them.

use std::time::Duration;

use mesh_tests::http;
use mesh_tests::peer::{Listener, answer, request, text};
use mesh_tests::proxy::{Proxy, SERVICE, call, outbound, trio};
use mesh_tests::wait::until;

/// Calls of [`LONG`] bytes: twenty megabytes, where a kernel takes ten for a connection.
const CALLS: u64 = 100;
const LONG: usize = 200_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// One number of `/stats`; 0 if it is not there.
fn stat(proxy: &Proxy, name: &str) -> u64 {
    let stats = http::get(proxy.admin, "/stats").expect("an admin").body;
    let line = stats.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.trim_start_matches(": ").parse().ok());
    number.unwrap_or(0)
}

#[test]
fn an_application_that_does_not_read_is_closed_and_others_do_not_notice() {
    let limits = "limits: { max_body: 1MiB, session_queue: 1MiB }\n";
    let (proxy, mut slow, _listener, mut provider) = trio(limits);
    for id in 0..CALLS {
        slow.send(&call(id, "find"));
    }
    let seen: Vec<_> = (0..CALLS).map(|_| provider.receive_call()).collect();
    let long = "x".repeat(LONG);
    for frame in seen {
        provider.send(&answer(frame.head.id, &long));
    }
    let closed = "mesh_session_closed_total{side=\"outbound\",reason=\"slow_reader\"}";
    until("the end of the slow one", PATIENCE, || {
        (stat(&proxy, closed) == 1).then_some(())
    });
    let mut quick = proxy.connect();
    quick.send(&call(1, "find"));
    let seen = provider.receive_call();
    provider.send(&answer(seen.head.id, "world"));
    assert_eq!(text(&quick.receive_call()), "world");
}

#[test]
fn a_provider_that_does_not_read_costs_the_calls_that_find_no_room() {
    let (stuck, alive) = (Listener::bind(), Listener::bind());
    let more = format!(
        "    - {{ key: com.foo.Alive, endpoints: [\"{}\"] }}\n\
         limits: {{ max_body: 1MiB, host_queue: 2MiB }}\n",
        alive.address()
    );
    let proxy = Proxy::start(&outbound(&[stuck.address()], &more));
    let (mut stuck, mut alive) = (stuck.accept(), alive.accept());
    let mut loud = proxy.connect();
    let long = "x".repeat(LONG);
    for id in 0..CALLS {
        loud.send(&request(id, SERVICE, "find", &long));
    }
    // On the same connection, to somebody else.
    loud.send(&request(CALLS, "com.foo.Alive", "find", "x"));
    let seen = alive.receive_call();
    alive.send(&answer(seen.head.id, "world"));

    let overflown = "mesh_call_finished_total{side=\"outbound\",outcome=\"UO\"}";
    let (refused, waiting) = until("every call to have found its place", PATIENCE, || {
        let (refused, waiting) = (stat(&proxy, overflown), stat(&proxy, "mesh_call_in_flight"));
        (refused + waiting == CALLS).then_some((refused, waiting))
    });
    assert!(
        refused > 0 && waiting > 0,
        "{refused} refused, {waiting} wait"
    );
    for _ in 0..waiting {
        let seen = stuck.receive_call();
        stuck.send(&answer(seen.head.id, "late"));
    }
    let (mut late, mut world) = (0, 0);
    for _ in 0..=CALLS {
        match &*text(&loud.receive_call()) {
            "late" => late += 1,
            "world" => world += 1,
            other => assert!(other.starts_with("UO overflow"), "{other}"),
        }
    }
    assert_eq!((late, world), (waiting, 1));
}
