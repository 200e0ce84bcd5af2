use std::{collections::BTreeMap, time::Duration};

use tempfile::TempDir;

use super::*;
use crate::registry::{
    Change,
    conformance::{self, expect, forever, instance, key},
};

/// A registry in a folder of its own.
struct Fresh {
    folder: TempDir,
    registry: Embedded,
}

impl Fresh {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Embedded::open(&folder.path().join("registry.redb")).expect("a registry");
        Self { folder, registry }
    }

    /// Closes the file and opens it again.
    fn again(self) -> Self {
        let Self { folder, registry } = self;
        drop(registry);
        let registry = Embedded::open(&folder.path().join("registry.redb")).expect("a registry");
        Self { folder, registry }
    }
}

/// Every function of the suite is a test here.
macro_rules! conforms {
    ($($name:ident),*) => {$(
        #[tokio::test]
        async fn $name() {
            conformance::$name(&Fresh::open().registry).await;
        }
    )*};
}
conforms!(
    a_subscriber_is_told_at_once,
    every_change_is_told_until_the_subscription_ends,
    a_lease_ends_unless_it_is_renewed,
    services_are_listed_while_they_have_instances
);

/// A registry that nobody fills is read all the same.
#[tokio::test]
async fn a_file_that_failed_is_opened_again_though_nobody_writes() {
    let fresh = Fresh::open();
    let put = fresh.registry.put(vec![forever(instance("a", 1))]);
    put.await.expect("registered");
    fresh.registry.fail();
    let inbox = Inbox::default();
    let _subscription = fresh.registry.subscribe(&key("a"), &inbox);
    assert!(!fresh.registry.is_complete());
    let put = fresh.registry.put(vec![forever(instance("a", 2))]);
    assert!(put.await.is_err(), "it cannot be opened");
    fresh.registry.store.mend();
    let told = Change::Set([instance("a", 1)].into());
    expect(&inbox, "a", &told).await;
    assert!(fresh.registry.services().await.is_ok());
}

#[tokio::test]
async fn what_was_registered_is_there_when_it_is_opened_again() {
    let fresh = Fresh::open();
    let mut v6 = instance("a:1", 2);
    v6.address = "[2001:db8::1]:20880".parse().expect("an address");
    v6.metadata = BTreeMap::from([("direct".into(), "10.0.0.9:20880".into())]);
    let lease = Registration {
        instance: v6,
        ttl: Some(Duration::from_secs(60)),
    };
    let wanted = [forever(instance("a:1", 1)), lease];
    fresh
        .registry
        .put(wanted.clone().into())
        .await
        .expect("put");
    let fresh = fresh.again();
    let found = fresh.registry.registrations(&key("a:1")).await;
    assert_eq!(found.expect("read"), wanted);
    let size = fresh.registry.size().await.expect("read");
    assert_eq!((size.services, size.instances), (1, 2));
}

#[tokio::test]
async fn leases_run_on_from_the_start() {
    let fresh = Fresh::open();
    let lease = Registration {
        instance: instance("a", 1),
        ttl: Some(Duration::from_millis(20)),
    };
    fresh.registry.put(vec![lease]).await.expect("put");
    let fresh = fresh.again();
    let inbox = Inbox::default();
    let _subscription = fresh.registry.subscribe(&key("a"), &inbox);
    expect(&inbox, "a", &Change::Gone).await;
}

#[tokio::test]
async fn a_renewal_writes_nothing_and_tells_nobody() {
    let fresh = Fresh::open();
    let lease = Registration {
        instance: instance("a", 1),
        ttl: Some(Duration::from_secs(60)),
    };
    fresh.registry.put(vec![lease.clone()]).await.expect("put");
    let inbox = Inbox::default();
    let _subscription = fresh.registry.subscribe(&key("a"), &inbox);
    expect(&inbox, "a", &Change::Set([lease.instance.clone()].into())).await;
    let file = fresh.folder.path().join("registry.redb");
    let before = std::fs::read(&file).expect("a file");
    fresh.registry.put(vec![lease]).await.expect("renewed");
    assert!(before == std::fs::read(&file).expect("a file"));
    assert_eq!(inbox.take(), None);
}

#[tokio::test]
async fn who_has_the_answer_knows_that_others_have_been_told() {
    let fresh = Fresh::open();
    let inbox = Inbox::default();
    let _subscription = fresh.registry.subscribe(&key("a"), &inbox);
    expect(&inbox, "a", &Change::Gone).await;
    for port in 1..=50 {
        let one = instance("a", port);
        fresh
            .registry
            .put(vec![forever(one.clone())])
            .await
            .expect("put");
        let told = inbox.take().expect("it was told");
        assert!(matches!(told.1, Change::Set(all) if all.contains(&one)));
    }
}

#[tokio::test]
async fn a_service_has_a_bound_and_beyond_it_nothing_of_a_list_is_taken() {
    let fresh = Fresh::open();
    let most = u16::try_from(MAX_OF_A_SERVICE).expect("a few");
    let full = (1..=most).map(|port| forever(instance("a", port)));
    fresh.registry.put(full.collect()).await.expect("put");
    let beyond = vec![forever(instance("b", 1)), forever(instance("a", most + 1))];
    let refused = fresh.registry.put(beyond).await;
    assert!(
        matches!(
            refused,
            Err(Error::Full {
                limit: MAX_OF_A_SERVICE,
                ..
            })
        ),
        "{refused:?}"
    );
    // What is there already may change.
    let mut heavy = instance("a", 1);
    heavy.weight = 1;
    fresh.registry.put(vec![forever(heavy)]).await.expect("put");
    let size = fresh.registry.size().await.expect("read");
    assert_eq!((size.services, size.instances), (1, MAX_OF_A_SERVICE));
}

/// They come one behind the other while a long list is written: who was answered last has it.
#[tokio::test]
async fn what_is_put_behind_its_own_removal_is_there() {
    let fresh = Fresh::open();
    let registry = &fresh.registry;
    let a = forever(instance("a", 1));
    registry.put(vec![a.clone()]).await.expect("put");
    for round in 0..8 {
        let many = (1..2000).map(|port| forever(instance(&format!("b{round}"), port)));
        let name = (a.instance.service.clone(), a.instance.address);
        let (many, removed, put) = tokio::join!(
            registry.put(many.collect()),
            registry.remove(vec![name]),
            registry.put(vec![a.clone()]),
        );
        many.expect("put");
        put.expect("put");
        assert_eq!(removed.expect("removed"), 1);
        let found = registry.registrations(&key("a")).await;
        assert_eq!(found.expect("read"), std::slice::from_ref(&a));
    }
}

#[tokio::test]
async fn a_file_that_failed_is_opened_anew() {
    let fresh = Fresh::open();
    let put = fresh.registry.put(vec![forever(instance("a", 1))]).await;
    put.expect("put");
    fresh.registry.store.reopen().expect("opened");
    let found = fresh.registry.registrations(&key("a")).await;
    assert_eq!(found.expect("read"), [forever(instance("a", 1))]);
}

#[test]
fn a_file_that_another_has_or_that_is_none_is_refused() {
    let fresh = Fresh::open();
    let file = fresh.folder.path().join("registry.redb");
    let held = Embedded::open(&file).expect_err("it is held");
    let StartError::Open { source, .. } = held else {
        panic!("{held:?}");
    };
    assert!(matches!(source, OpenError::Held), "{source:?}");
    let other = fresh.folder.path().join("text");
    std::fs::write(&other, "this is no database, but it is there already").expect("written");
    assert!(Embedded::open(&other).is_err());
    let text = std::fs::read_to_string(&other).expect("it is left alone");
    assert!(text.starts_with("this is no database"));
}
