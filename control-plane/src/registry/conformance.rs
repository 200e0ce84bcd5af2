//! What every registry must do: each kind runs these functions from its own tests, over a registry
//! in which none of these services is.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use tokio::time::timeout;

use super::*;

/// One that both is asked and registers.
pub(super) trait Registry: Discover + Register {}
impl<R: Discover + Register> Registry for R {}

pub(super) fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}

pub(super) fn instance(service: &str, port: u16) -> Instance {
    Instance {
        service: key(service),
        address: ([10, 0, 0, 1], port).into(),
        weight: Instance::WEIGHT,
        metadata: BTreeMap::new(),
    }
}

pub(super) fn forever(instance: Instance) -> Registration {
    Registration {
        instance,
        ttl: None,
    }
}

fn set(instances: &[Instance]) -> Change {
    Change::Set(instances.into())
}

/// Reads on to what is wanted: a registry may tell of what lies between, and need not.
pub(super) async fn expect(inbox: &Inbox, service: &str, wanted: &Change) {
    let reached = async {
        loop {
            let (of, change) = inbox.next().await;
            assert_eq!(of, key(service), "only what is subscribed to is told");
            if change == *wanted {
                return;
            }
        }
    };
    ok(timeout(PATIENCE, reached).await);
}

fn ok<T, E: Debug>(result: Result<T, E>) -> T {
    result.expect("it comes within the time of the test")
}

/// Both answers: of a service that is there, and of one that is not.
pub(super) async fn a_subscriber_is_told_at_once(registry: &impl Registry) {
    let (one, two) = (instance("told.A", 1), instance("told.A", 2));
    ok(registry
        .put(vec![forever(two.clone()), forever(one.clone())])
        .await);
    let inbox = Inbox::default();
    let _there = registry.subscribe(&key("told.A"), &inbox);
    expect(&inbox, "told.A", &set(&[one, two])).await;
    let _absent = registry.subscribe(&key("told.B"), &inbox);
    expect(&inbox, "told.B", &Change::Gone).await;
    assert!(registry.is_complete());
}

/// Whole lists, the last of which is what is registered.
pub(super) async fn every_change_is_told_until_the_subscription_ends(registry: &impl Registry) {
    let inbox = Inbox::default();
    let subscription = registry.subscribe(&key("g/change.A:1"), &inbox);
    expect(&inbox, "g/change.A:1", &Change::Gone).await;
    let one = instance("g/change.A:1", 1);
    ok(registry.put(vec![forever(one.clone())]).await);
    expect(&inbox, "g/change.A:1", &set(std::slice::from_ref(&one))).await;

    let mut heavier = one.clone();
    heavier.weight = 200;
    heavier.metadata.insert("zone".into(), "b".into());
    let two = instance("g/change.A:1", 2);
    // Another group, another service.
    let other = instance("change.A:1", 3);
    let all = [heavier.clone(), two.clone(), other];
    ok(registry.put(all.map(forever).into()).await);
    expect(&inbox, "g/change.A:1", &set(&[heavier, two.clone()])).await;

    let names = |ports: &[u16]| {
        let name = |port: &u16| (key("g/change.A:1"), instance("x", *port).address);
        ports.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(ok(registry.remove(names(&[1, 9])).await), 1);
    expect(&inbox, "g/change.A:1", &set(&[two])).await;
    assert_eq!(ok(registry.remove(names(&[2])).await), 1);
    expect(&inbox, "g/change.A:1", &Change::Gone).await;

    // A second one of the same service does not end with the first.
    let second = Inbox::default();
    let _kept = registry.subscribe(&key("g/change.A:1"), &second);
    expect(&second, "g/change.A:1", &Change::Gone).await;
    drop(subscription);
    ok(registry.put(vec![forever(one.clone())]).await);
    expect(&second, "g/change.A:1", &set(&[one])).await;
    assert_eq!(inbox.take(), None);
}

/// The last registration of an instance says how long it stays.
pub(super) async fn a_lease_ends_unless_it_is_renewed(registry: &impl Registry) {
    let inbox = Inbox::default();
    let _subscription = registry.subscribe(&key("lease.A"), &inbox);
    expect(&inbox, "lease.A", &Change::Gone).await;
    let [short, long, unbound] = [1, 2, 3].map(|port| instance("lease.A", port));
    let leased = |instance: &Instance, ttl| Registration {
        instance: instance.clone(),
        ttl: Some(ttl),
    };
    let moment = Duration::from_millis(50);
    let both = vec![leased(&short, moment), leased(&unbound, moment)];
    ok(registry.put(both).await);
    ok(registry
        .put(vec![leased(&long, PATIENCE), forever(unbound.clone())])
        .await);
    expect(&inbox, "lease.A", &set(&[long, unbound])).await;
}

/// What can be subscribed to, and nothing that is gone.
pub(super) async fn services_are_listed_while_they_have_instances(registry: &impl Registry) {
    let [a, b] = [("g/list.A:1", 1), ("list.B", 2)].map(|(s, port)| instance(s, port));
    let more = instance("list.B", 3);
    ok(registry.put([a.clone(), b, more].map(forever).into()).await);
    let listed = async || {
        let all = ok(registry.services().await);
        assert!(all.is_sorted());
        let ours = |(service, _): &(ServiceKey, u64)| service.interface().starts_with("list.");
        all.into_iter().filter(ours).collect::<Vec<_>>()
    };
    let b = (key("list.B"), 2);
    assert_eq!(listed().await, [b.clone(), (key("g/list.A:1"), 1)]);
    ok(registry.remove(vec![(a.service, a.address)]).await);
    assert_eq!(listed().await, [b]);
}

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
