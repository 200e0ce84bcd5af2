//! A client between a scripted sidecar and real providers: every way to leave the sidecar, and back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::script::{Ledger, Mode, Script, client, provider, providers, until};
use thin_sdk::failover::{Cause, Sidecar};
use thin_sdk::{Client, Code, Error, Executed, Unsent};

const SERVICE: &str = "com.foo.Shop";
const OTHER: &str = "com.foo.Stock";

/// Who answers a call.
async fn who(client: &Client, service: &str) -> Result<String, Error> {
    client.call(service, "who").send().await
}

async fn until_sidecar(client: &Client) {
    until("the sidecar to carry all", || {
        client.state().sidecar == Sidecar::Up
    })
    .await;
}

/// The client goes back, and says so.
async fn expect_return(client: &Client) {
    until_sidecar(client).await;
    assert_eq!(who(client, SERVICE).await, Ok("sidecar".into()));
}

#[tokio::test]
async fn a_sidecar_that_refuses_is_left_and_found_again() {
    let mut sidecar = Script::start(Mode::Serve).await;
    sidecar.refuse().await;
    let (provider, client) = provider_and_client(&sidecar).await;
    assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
    assert_eq!(client.state().sidecar, Sidecar::Down(Cause::Refused));
    sidecar.listen().await;
    expect_return(&client).await;
    drop(provider);
}

#[tokio::test]
async fn a_socket_that_nobody_serves_is_no_sidecar() {
    let sidecar = Script::start(Mode::Mute).await;
    let (_provider, client) = provider_and_client(&sidecar).await;
    assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
    sidecar.mode(Mode::Serve);
    expect_return(&client).await;
}

#[tokio::test]
async fn a_broken_connection_sends_direct_and_back() {
    let sidecar = Script::start(Mode::Serve).await;
    let (_provider, client) = provider_and_client(&sidecar).await;
    assert_eq!(who(&client, SERVICE).await, Ok("sidecar".into()));
    for _ in 0..3 {
        sidecar.mode(Mode::Mute);
        sidecar.break_connections();
        until("the loss", || {
            client.state().sidecar == Sidecar::Down(Cause::Broken)
        })
        .await;
        assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
        sidecar.mode(Mode::Serve);
        expect_return(&client).await;
    }
    let counts = client.state().counts;
    assert_eq!((counts.losses, counts.returns), (3, 3));
}

#[tokio::test]
async fn a_sidecar_that_hangs_is_left() {
    let sidecar = Script::start(Mode::Serve).await;
    let (_provider, client) = provider_and_client(&sidecar).await;
    assert_eq!(who(&client, SERVICE).await, Ok("sidecar".into()));
    sidecar.mode(Mode::Mute);
    // Sent to it before anybody knows, and moved when its heartbeats have stopped.
    let call = client
        .call(SERVICE, "who")
        .idempotent(true)
        .send::<String>();
    assert_eq!(call.await, Ok("provider".into()));
    assert_eq!(client.state().sidecar, Sidecar::Down(Cause::Silent));
    sidecar.mode(Mode::Serve);
    expect_return(&client).await;
}

#[tokio::test]
async fn readonly_sends_new_calls_direct_and_the_others_finish() {
    let sidecar = Script::start(Mode::Serve).await;
    let (_provider, client) = provider_and_client(&sidecar).await;
    assert_eq!(who(&client, SERVICE).await, Ok("sidecar".into()));
    sidecar.mode(Mode::Hold);
    let held = tokio::spawn(client.call(SERVICE, "who").send::<String>());
    until("the call", || sidecar.held() == 1).await;
    sidecar.read_only();
    until("the news", || {
        client.state().sidecar == Sidecar::Down(Cause::ReadOnly)
    })
    .await;
    assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
    sidecar.mode(Mode::Serve);
    assert_eq!(held.await.expect("no panic"), Ok("sidecar".into()));
    expect_return(&client).await;
}

#[tokio::test]
async fn no_route_and_no_host_switch_one_service() {
    let flaws = [
        (60, "NR no route found: x"),
        (80, "UH no healthy upstream: x"),
    ];
    for (status, text) in flaws {
        let sidecar = Script::start(Mode::Serve).await;
        let (_provider, client) = provider_and_client(&sidecar).await;
        sidecar.flaw(SERVICE, status, text);
        // The very call that met it goes on.
        assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
        assert_eq!(who(&client, OTHER).await, Ok("sidecar".into()));
        let state = client.state();
        assert_eq!(state.services.get(SERVICE), Some(&0.0));
        assert_eq!((state.services.len(), state.counts.switches), (1, 1));
        assert_eq!(state.sidecar, Sidecar::Up);
        sidecar.mend(SERVICE);
        // Trials are real calls: without any, nothing is tried.
        until_calls("the return", &client, |client| {
            client.state().services.is_empty()
        })
        .await;
        assert_eq!(who(&client, SERVICE).await, Ok("sidecar".into()));
    }
}

#[tokio::test]
async fn without_a_provider_the_mesh_has_the_last_word() {
    let sidecar = Script::start(Mode::Serve).await;
    let client = client(&sidecar).build().expect("a client");
    sidecar.flaw(SERVICE, 60, "NR no route found: x");
    let text = "NR no route found: x".to_owned();
    let code = Code::NoRoute;
    assert_eq!(who(&client, SERVICE).await, Err(Error::Mesh { code, text }));
    assert!(client.state().services.is_empty());
}

#[tokio::test]
async fn what_may_have_run_is_repeated_by_the_sidecar_first_and_only_if_it_may() {
    let lost = "UC upstream connection lost: x";
    for (idempotent, wanted, attempts) in
        [(true, Ok("provider".to_owned()), 2), (false, Err(()), 1)]
    {
        let sidecar = Script::start(Mode::Serve).await;
        let (_provider, client) = provider_and_client(&sidecar).await;
        sidecar.flaw(SERVICE, 80, lost);
        let call = client.call(SERVICE, "who").idempotent(idempotent);
        let answer = call.send::<String>().await;
        assert_eq!(sidecar.seen(), attempts);
        if let Err(error) = &answer {
            assert_eq!(error.executed(), Executed::Maybe, "{error:?}");
        }
        assert_eq!(answer.map_err(drop), wanted);
        assert!(client.state().services.is_empty(), "no reason to switch");
    }
}

#[tokio::test]
async fn what_certainly_did_not_run_moves_unless_the_mesh_protects() {
    let sidecar = Script::start(Mode::Serve).await;
    let (_provider, client) = provider_and_client(&sidecar).await;
    sidecar.flaw(SERVICE, 80, "UF upstream connection failure: x");
    assert_eq!(who(&client, SERVICE).await, Ok("provider".into()));
    assert!(client.state().services.is_empty());
    assert_eq!(client.state().counts.moved, 1);
    sidecar.flaw(SERVICE, 100, "UO overflow: x");
    let over = who(&client, SERVICE).await;
    assert!(matches!(
        over,
        Err(Error::Mesh {
            code: Code::Overflow,
            ..
        })
    ));
    sidecar.flaw(SERVICE, 31, "UT deadline passed: x");
    let executed = Executed::Maybe;
    assert_eq!(
        who(&client, SERVICE).await,
        Err(Error::Deadline { executed })
    );
}

#[tokio::test]
async fn a_provider_that_is_gone_costs_no_call() {
    let mut sidecar = Script::start(Mode::Serve).await;
    sidecar.refuse().await;
    let (one, two) = (provider("one", None).await, provider("two", None).await);
    let addresses = [one.address(), two.address()];
    let client = client(&sidecar)
        .providers(SERVICE, addresses)
        .build()
        .expect("a client");
    let mut seen = HashMap::<String, u32>::new();
    for _ in 0..10 {
        *seen
            .entry(who(&client, SERVICE).await.expect("an answer"))
            .or_default() += 1;
    }
    assert_eq!(
        seen,
        HashMap::from([("one".into(), 5), ("two".into(), 5)]),
        "in turn"
    );
    gone(one).await;
    for _ in 0..10 {
        let call = client.call(SERVICE, "who").idempotent(true);
        assert_eq!(call.send().await, Ok("two".to_owned()));
    }
    gone(two).await;
    // Everybody is gone: the call waits for the sidecar.
    let before = client.state().counts.direct;
    let call = client.call(SERVICE, "who").idempotent(true);
    let call = tokio::spawn(call.send::<String>());
    until("the call to find nobody", || {
        client.state().counts.direct >= before + 2
    })
    .await;
    sidecar.listen().await;
    assert_eq!(call.await.expect("no panic"), Ok("sidecar".into()));
}

/// With a sidecar that is gone, and with none.
async fn both(provider: &Script) -> [Client; 2] {
    let mut sidecar = Script::start(Mode::Serve).await;
    sidecar.refuse().await;
    let builders = [client(&sidecar), client(&sidecar).direct()];
    builders.map(|builder| {
        let builder = builder.providers(SERVICE, [provider.address()]);
        builder.build().expect("a client")
    })
}

#[tokio::test]
async fn a_call_goes_round_while_its_providers_may_come_back() {
    for number in 0..2 {
        // In this test a scripted sidecar is the provider.
        let mut provider = Script::start(Mode::Hold).await;
        let client = &both(&provider).await[number];
        let call = |idempotent| client.call(SERVICE, "who").idempotent(idempotent);
        let once = tokio::spawn(call(false).send::<String>());
        until("the call", || provider.held() == 1).await;
        provider.break_connections();
        assert_eq!(once.await.expect("no panic"), Err(Error::Lost));
        let again = tokio::spawn(call(true).send::<String>());
        for times in 2..=4 {
            until("the call", || provider.held() == times).await;
            provider.break_connections();
        }
        until("the call", || provider.held() == 5).await;
        provider.refuse().await;
        until("it to find nobody", || client.state().counts.moved >= 2).await;
        let unsent = tokio::spawn(call(false).send::<String>());
        until("both to find nobody", || client.state().counts.moved >= 8).await;
        provider.listen().await;
        provider.mode(Mode::Serve);
        for call in [again, unsent] {
            assert_eq!(call.await.expect("no panic"), Ok("sidecar".into()));
        }
    }
}

#[tokio::test]
async fn a_call_that_goes_round_ends_and_says_that_it_may_have_run() {
    for number in 0..2 {
        let mut provider = Script::start(Mode::Hold).await;
        let client = &both(&provider).await[number];
        let call = client.call(SERVICE, "who").idempotent(true);
        let call = call.deadline(Duration::from_millis(200)).send::<String>();
        let call = tokio::spawn(call);
        until("the call", || provider.held() == 1).await;
        // Whatever comes later was certainly not sent.
        provider.refuse().await;
        let error = call.await.expect("no panic").expect_err("nobody answers");
        assert_eq!(error.executed(), Executed::Maybe, "{error:?}");
        assert!(client.state().counts.moved > 1);
    }
}

#[tokio::test]
async fn a_call_that_breaks_every_connection_is_not_sent_without_end() {
    let provider = Script::start(Mode::Hold).await;
    let client = &both(&provider).await[0];
    let call = client.call(SERVICE, "who").idempotent(true);
    let call = tokio::spawn(call.deadline(Duration::from_secs(60)).send::<String>());
    let mut broken = 0;
    while !call.is_finished() {
        if provider.held() > broken {
            broken = provider.held();
            provider.break_connections();
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(call.await.expect("no panic"), Err(Error::Lost));
    assert_eq!(broken, 16);
}

/// A client of a scripted provider, which says `sidecar`, and of another.
async fn scripted_and_real() -> (Script, thin_sdk::Server, Client) {
    let (one, two) = (
        Script::start(Mode::Serve).await,
        provider("two", None).await,
    );
    let client = client(&one)
        .direct()
        .providers(SERVICE, [one.address(), two.address()])
        .build()
        .expect("a client");
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(who(&client, SERVICE).await.expect("an answer"));
    }
    seen.sort_unstable();
    assert_eq!(seen, ["sidecar", "sidecar", "two", "two"]);
    (one, two, client)
}

#[tokio::test]
async fn a_provider_that_closes_is_left_alone_while_there_is_another() {
    let (one, two, client) = scripted_and_real().await;
    one.mode(Mode::Hold);
    let held = [0, 1].map(|_| tokio::spawn(client.call(SERVICE, "who").send::<String>()));
    until("a call", || one.held() == 1).await;
    one.read_only();
    one.mode(Mode::Serve);
    // What it has it answers, after READONLY.
    for held in held {
        assert!(held.await.expect("no panic").is_ok());
    }
    for _ in 0..6 {
        assert_eq!(who(&client, SERVICE).await, Ok("two".into()));
    }
    gone(two).await;
    let call = client.call(SERVICE, "who").idempotent(true);
    assert_eq!(call.send().await, Ok("sidecar".to_owned()), "no other");
}

#[tokio::test]
async fn a_provider_that_hangs_is_left_alone_soon() {
    let (one, _two, client) = scripted_and_real().await;
    one.mode(Mode::Mute);
    for _ in 0..2 {
        let call = client.call(SERVICE, "who").idempotent(true);
        assert_eq!(call.send().await, Ok("two".to_owned()));
    }
    assert_eq!(client.state().counts.repeated, 1);
    for _ in 0..6 {
        assert_eq!(who(&client, SERVICE).await, Ok("two".into()));
    }
}

#[tokio::test]
async fn a_call_that_can_go_nowhere_ends_at_its_deadline_and_did_not_run() {
    let sidecar = Script::start(Mode::Mute).await;
    let client = client(&sidecar).build().expect("a client");
    let call = client
        .call(SERVICE, "who")
        .deadline(Duration::from_millis(100));
    assert_eq!(
        call.send::<String>().await,
        Err(Error::NotSent(Unsent::Nowhere))
    );
}

#[tokio::test]
async fn a_one_way_call_moves_too() {
    let mut sidecar = Script::start(Mode::Serve).await;
    sidecar.refuse().await;
    let ledger = Ledger::default();
    let provider = provider("provider", Some(&ledger)).await;
    let client = client(&sidecar)
        .providers(SERVICE, [provider.address()])
        .build()
        .expect("a client");
    let sent = client.call(SERVICE, "run").arg(7i64).one_way().await;
    assert_eq!(sent, Ok(()));
    until("the call to run", || ledger.runs(7) == 1).await;
}

/// The whole point: a sidecar that dies and lives again and again, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_idempotent_call_is_lost_and_no_other_runs_twice() {
    let ledger = Ledger::default();
    let sidecar = Script::recording(Mode::Serve, ledger.clone()).await;
    let all = providers(&ledger, 3).await;
    let client = client(&sidecar)
        .providers(SERVICE, all.iter().map(thin_sdk::Server::address))
        .build()
        .expect("a client");
    until_sidecar(&client).await;
    let failed = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..20i64 {
        let (client, failed, stopped) = (client.clone(), Arc::clone(&failed), stopped.clone());
        callers.spawn(async move {
            let mut calls = 0i64;
            while !*stopped.borrow() {
                let id = caller << 32 | calls;
                let idempotent = calls % 2 == 0;
                let call = client.call(SERVICE, "run").arg(id).idempotent(idempotent);
                let ran: Result<i64, Error> = call.send().await;
                match ran {
                    Ok(answer) => assert_eq!(answer, id),
                    Err(error) => failed.lock().expect("no panic").push((id, error)),
                }
                calls += 1;
            }
            calls
        });
    }
    for round in 1..=10u64 {
        until("calls by the sidecar", || sidecar.seen() > round * 50).await;
        // Dead, but its socket accepts; then alive again.
        sidecar.mode(Mode::Mute);
        sidecar.break_connections();
        until("the loss", || client.state().counts.losses >= round).await;
        sidecar.mode(Mode::Serve);
        until_sidecar(&client).await;
    }
    stop.send_replace(true);
    let mut calls = 0;
    while let Some(made) = callers.join_next().await {
        calls += made.expect("no panic");
    }
    let failed = std::mem::take(&mut *failed.lock().expect("no panic"));
    let state = client.state();
    for (id, error) in &failed {
        assert_eq!(
            id & 1,
            1,
            "an idempotent call is lost: {error:?}, {state:?}"
        );
        assert_eq!(*error, Error::Lost, "{state:?}");
    }
    assert!(
        failed.len() <= 20 * 10,
        "at most those in flight: {}",
        failed.len()
    );
    assert!(calls > 500 && state.counts.direct > 0, "{calls}, {state:?}");
    for (id, runs) in ledger.all() {
        assert!(runs == 1 || id & 1 == 0, "call {id} ran {runs} times");
    }
}

/// Ends a provider, and waits for its end.
async fn gone(provider: thin_sdk::Server) {
    let address = provider.address();
    drop(provider);
    until("the end", || std::net::TcpStream::connect(address).is_err()).await;
}

async fn provider_and_client(sidecar: &Script) -> (thin_sdk::Server, Client) {
    let provider = provider("provider", None).await;
    let client = client(sidecar)
        .providers(SERVICE, [provider.address()])
        .build()
        .expect("a client");
    (provider, client)
}

/// Calls until something holds.
async fn until_calls(what: &str, client: &Client, holds: impl Fn(&Client) -> bool) {
    let calls = async {
        while !holds(client) {
            let _ = who(client, SERVICE).await;
            tokio::task::yield_now().await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(10), calls).await;
    assert!(within.is_ok(), "no {what}: {:?}", client.state());
}
