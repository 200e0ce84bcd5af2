//! Applications with the SDK, real sidecars in between, and what happens when these end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dubbo_proxy::model::Side;
use mesh_tests::proxy::{Proxy, SERVICE, outbound};
use mesh_tests::wait::until_state;
use thin_sdk::failover::{Sidecar, Timing};
use thin_sdk::{Client, Error, Executed, Server};
use tokio::task::JoinSet;

/// How often each call ran.
type Ledger = Arc<Mutex<HashMap<i64, u32>>>;

#[test]
fn a_sidecar_that_ends_and_starts_again_loses_no_call() {
    run(async {
        let ledger = Ledger::default();
        let providers = [provider(&ledger).await, provider(&ledger).await];
        let config = outbound(&providers.each_ref().map(Server::address), "");
        let mut proxy = Proxy::start(&config);
        let address = proxy.address(Side::Outbound);
        let folder = tempfile::tempdir().expect("a folder");
        // Nothing but the sidecar's word says where the providers are.
        let client = client(address)
            .admin(Some(proxy.admin))
            .roster(folder.path().join("roster.json"))
            .build()
            .expect("a client");
        until_state("addresses", &client, |_| {
            folder.path().join("roster.json").exists()
        })
        .await;
        let load = Load::start(&client, 20);
        for round in 1..=3 {
            let by_sidecar = client.state().counts.by_sidecar;
            until_state("calls by the sidecar", &client, |state| {
                state.counts.by_sidecar > by_sidecar + 200 && state.sidecar == Sidecar::Up
            })
            .await;
            // Without a drain: its connections break.
            drop(proxy);
            until_state("the loss", &client, |state| state.counts.losses == round).await;
            let direct = client.state().counts.direct;
            until_state("direct calls", &client, |state| {
                state.counts.direct > direct + 20
            })
            .await;
            let fixed = format!("listen: {address}, ");
            proxy = Proxy::start(&config.replacen("listen: 127.0.0.1:0, ", &fixed, 1));
            until_state("the return", &client, |state| state.sidecar == Sidecar::Up).await;
        }
        let failed = load.stop().await;
        for (id, error) in &failed {
            assert_eq!(id & 1, 1, "an idempotent call is lost: {error:?}");
            assert_eq!(error.executed(), Executed::Maybe, "{error:?}");
        }
        assert!(
            failed.len() <= 20 * 3,
            "at most those in flight: {}",
            failed.len()
        );
        expect_no_twins(&ledger);
    });
}

#[test]
fn a_drain_costs_no_call_at_all() {
    run(async {
        let ledger = Ledger::default();
        let provider = provider(&ledger).await;
        let mut proxy = Proxy::outbound(&[provider.address()], "");
        let client = client(proxy.address(Side::Outbound))
            .providers(SERVICE, [provider.address()])
            .build()
            .expect("a client");
        until_state("the sidecar", &client, |state| state.sidecar == Sidecar::Up).await;
        let load = Load::start(&client, 20);
        until_state("calls", &client, |state| state.counts.by_sidecar > 200).await;
        proxy = tokio::task::spawn_blocking(move || {
            proxy.end();
            proxy
        })
        .await
        .expect("it ends well");
        let direct = client.state().counts.direct;
        until_state("direct calls", &client, |state| {
            state.counts.direct > direct + 200
        })
        .await;
        assert_eq!(load.stop().await, []);
        expect_no_twins(&ledger);
        drop(proxy);
    });
}

#[test]
fn a_service_without_a_healthy_host_goes_direct_alone_and_comes_back() {
    run(async {
        let ledger = Ledger::default();
        let provider = provider(&ledger).await;
        let nobody = mesh_tests::peer::Listener::bind().address();
        let config = |of| outbound(&[of], "") + "limits: { reconnect_wait: 20ms }\n";
        let proxy = Proxy::start(&config(nobody));
        let client = client(proxy.address(Side::Outbound))
            .providers(SERVICE, [provider.address()])
            .build()
            .expect("a client");
        let load = Load::start(&client, 2);
        // As long as the sidecar hopes, it says something else, and calls go direct one by one.
        until_state("the switch", &client, |state| {
            state.services.contains_key(SERVICE)
        })
        .await;
        assert_eq!(client.state().sidecar, Sidecar::Up);
        std::fs::write(&proxy.file, config(provider.address())).expect("written");
        until_state("the return", &client, |state| state.services.is_empty()).await;
        assert_eq!(load.stop().await, []);
    });
}

/// Runs a test on a thread of its own runtime.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

async fn provider(ledger: &Ledger) -> Server {
    let ledger = Arc::clone(ledger);
    let server = Server::builder().method(SERVICE, "run", move |call| {
        let ledger = Arc::clone(&ledger);
        async move {
            let (id,): (i64,) = call.arguments()?;
            *ledger.lock().expect("no panic").entry(id).or_default() += 1;
            // So that some are in flight when something ends.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(id)
        }
    });
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = server.expect("a key").listen(any_port).await;
    server.expect("a port")
}

/// A client that is quick to leave the sidecar and to come back.
fn client(sidecar: SocketAddr) -> thin_sdk::Builder {
    let ms = Duration::from_millis;
    Client::builder()
        .sidecar(sidecar)
        .admin(None)
        .bonder(None)
        .seed(1)
        .failover(Timing {
            jitter: ms(10),
            ramp: ms(100),
            redial_max: ms(50),
            trial_min: ms(10),
            trial_max: ms(50),
            ..Timing::default()
        })
}

/// Callers that call as fast as they are answered, every other call declared idempotent: those
/// with even numbers.
struct Load {
    stop: tokio::sync::watch::Sender<bool>,
    callers: JoinSet<Vec<(i64, Error)>>,
}

impl Load {
    fn start(client: &Client, callers: i64) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut tasks = JoinSet::new();
        for caller in 1..=callers {
            let (client, stopped) = (client.clone(), stopped.clone());
            tasks.spawn(async move {
                let (mut failed, mut next) = (Vec::new(), caller << 32);
                while !*stopped.borrow() {
                    let (id, idempotent) = (next, next & 1 == 0);
                    next += 1;
                    let call = client.call(SERVICE, "run").arg(id).idempotent(idempotent);
                    match call.send::<i64>().await {
                        Ok(answer) => assert_eq!(answer, id),
                        Err(error) => failed.push((id, error)),
                    }
                }
                failed
            });
        }
        Self {
            stop,
            callers: tasks,
        }
    }

    /// The calls that failed.
    async fn stop(self) -> Vec<(i64, Error)> {
        self.stop.send_replace(true);
        self.callers.join_all().await.concat()
    }
}

#[track_caller]
fn expect_no_twins(ledger: &Ledger) {
    for (id, runs) in &*ledger.lock().expect("no panic") {
        assert!(*runs == 1 || id & 1 == 0, "call {id} ran {runs} times");
    }
}
