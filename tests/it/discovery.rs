//! Services that a control plane tells of: on demand, lost and found again, from the copy on disk.

use std::{fs, path::Path, time::Duration};

use dubbo_proto::head::Status;
use mesh_proto::token::Token;
use mesh_tests::{
    ads::Ads,
    http,
    peer::{Listener, Peer, answer, request, status, text},
    pilot::{Pilot, Scripted},
    proxy::Proxy,
    wait::until,
};
use tempfile::TempDir;

const SHOP: &str = "com.foo.Shop";
const PATIENCE: Duration = Duration::from_secs(20);

/// A sidecar with these control planes, a copy in `folder`, and services declared there.
fn proxy(server: std::net::SocketAddr, folder: &Path, more: &str) -> Proxy {
    let at = folder.display();
    Proxy::start(&format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}
admin: {{ listen: 127.0.0.1:0 }}
quarantine: FOLDER/quarantine
xds: {{ servers: {server}, cache: {at}/copy }}
dependencies: {at}/dependencies.json
{more}"
    ))
}

fn declare(folder: &Path, service: &str) {
    let text = format!("{{\"version\":1,\"services\":[\"{service}\"]}}");
    fs::write(folder.join("dependencies.json"), text).expect("written");
}

/// A call that is answered by this provider.
fn served(consumer: &mut Peer, provider: &mut Peer, id: u64) {
    consumer.send(&request(id, SHOP, "find", "x"));
    let call = provider.receive_call();
    provider.send(&answer(call.head.id, "here"));
    assert_eq!(status(&consumer.receive()), Status::OK);
}

fn dump(proxy: &Proxy) -> String {
    http::get(proxy.admin, "/config_dump").expect("a page").body
}

#[test]
fn a_call_waits_until_its_service_is_known_and_all_waiters_are_served() {
    let (ads, provider, folder) = (Ads::start(), Listener::bind(), TempDir::new().expect("one"));
    ads.silent(SHOP);
    let proxy = proxy(ads.address, folder.path(), "");
    let mut consumers = [proxy.connect(), proxy.connect()];
    for consumer in &mut consumers {
        consumer.send(&request(1, SHOP, "find", "x"));
    }
    until("the service is asked for", PATIENCE, || {
        let asked = ads
            .heard()
            .into_iter()
            .flat_map(|r| r.resource_names_subscribe);
        asked
            .into_iter()
            .any(|name| name == "outbound|com.foo.Shop")
            .then_some(())
    });
    ads.set(SHOP, 1, &[provider.address()]);
    let mut host = provider.accept();
    for _ in 0..2 {
        let call = host.receive_call();
        host.send(&answer(call.head.id, "here"));
    }
    for consumer in &mut consumers {
        assert_eq!(status(&consumer.receive()), Status::OK);
    }
    served(&mut consumers[0], &mut host, 2);
}

#[test]
fn absent_is_answered_at_once_and_late_at_its_deadline() {
    let (ads, folder) = (Ads::start(), TempDir::new().expect("one"));
    ads.silent("com.foo.Late");
    let proxy = proxy(ads.address, folder.path(), "limits: { held_time: 300ms }");
    let mut consumer = proxy.connect();
    for (id, service, expected) in [
        (1, "com.foo.Nobody", "is not known to this sidecar"),
        (2, "com.foo.Nobody", "is not known to this sidecar"),
        (3, "com.foo.Late", "did not say within 300 ms"),
    ] {
        consumer.send(&request(id, service, "find", "x"));
        let answered = consumer.receive();
        assert_eq!(status(&answered), Status::SERVICE_NOT_FOUND);
        let said = text(&answered);
        assert!(said.starts_with("NR ") && said.contains(expected), "{said}");
    }
    // It is there from now on, and nobody needs to ask again.
    let provider = Listener::bind();
    ads.set("com.foo.Nobody", 1, &[provider.address()]);
    let mut host = provider.accept();
    consumer.send(&request(4, "com.foo.Nobody", "find", "x"));
    let call = host.receive_call();
    host.send(&answer(call.head.id, "here"));
    assert_eq!(status(&consumer.receive()), Status::OK);
}

#[test]
fn a_lost_control_plane_takes_no_route_away_and_resends_nothing() {
    let (ads, provider, folder) = (Ads::start(), Listener::bind(), TempDir::new().expect("one"));
    ads.set(SHOP, 1, &[provider.address()]);
    declare(folder.path(), SHOP);
    let proxy = proxy(ads.address, folder.path(), "");
    let mut host = provider.accept();
    let mut consumer = proxy.connect();
    served(&mut consumer, &mut host, 1);
    let address = ads.address;
    drop(ads);
    until("the loss is shown", PATIENCE, || {
        dump(&proxy).contains("\"connected\": null").then_some(())
    });
    served(&mut consumer, &mut host, 2);
    let ads = Ads::at(address);
    ads.set(SHOP, 1, &[provider.address()]);
    until("it names what it has", PATIENCE, || {
        let heard = ads.heard();
        let versions = heard
            .iter()
            .flat_map(|r| r.initial_resource_versions.values());
        (versions.filter(|version| *version == "1").count() == 2).then_some(())
    });
    served(&mut consumer, &mut host, 3);
    // What changes is told, over the same connection to the provider.
    let other = Listener::bind();
    ads.set(SHOP, 2, &[provider.address(), other.address()]);
    drop(other.accept());
    let first = ads.sent();
    assert!(first.iter().all(|name| name == "outbound|com.foo.Shop") && first.len() <= 2);
}

#[test]
fn what_is_rejected_changes_nothing_and_is_told() {
    let (ads, provider, folder) = (Ads::start(), Listener::bind(), TempDir::new().expect("one"));
    ads.set(SHOP, 1, &[provider.address()]);
    let proxy = proxy(ads.address, folder.path(), "");
    let mut consumer = proxy.connect();
    consumer.send(&request(1, SHOP, "find", "x"));
    let mut host = provider.accept();
    let call = host.receive_call();
    ads.break_it(SHOP, 2);
    until("it is rejected", PATIENCE, || {
        let detail =
            |r: &mesh_proto::xds::discovery::DeltaDiscoveryRequest| r.error_detail.is_some();
        ads.heard().iter().any(detail).then_some(())
    });
    host.send(&answer(call.head.id, "here"));
    assert_eq!(status(&consumer.receive()), Status::OK);
    served(&mut consumer, &mut host, 2);
    assert!(
        dump(&proxy).contains("cannot be decoded"),
        "{}",
        dump(&proxy)
    );
    // A provider that is taken out finishes what it has.
    consumer.send(&request(3, SHOP, "find", "x"));
    let call = host.receive_call();
    let other = Listener::bind();
    ads.set(SHOP, 3, &[other.address()]);
    let mut second = other.accept();
    served(&mut consumer, &mut second, 4);
    host.send(&answer(call.head.id, "late"));
    assert_eq!(status(&consumer.receive()), Status::OK);
}

/// Not even while it is left out for a moment: a call of it is still in flight.
#[test]
fn what_changes_around_a_provider_never_touches_its_connection() {
    let (ads, stays, folder) = (Ads::start(), Listener::bind(), TempDir::new().expect("one"));
    ads.set(SHOP, 1, &[stays.address()]);
    let proxy = proxy(ads.address, folder.path(), "");
    let mut consumer = proxy.connect();
    consumer.send(&request(1, SHOP, "find", "x"));
    let mut host = stays.accept();
    let waiting = host.receive_call();
    for version in 2..42 {
        let other = Listener::bind();
        let now = match version % 4 {
            0 => vec![other.address()],
            1 => vec![stays.address()],
            2 => vec![stays.address(), other.address()],
            _ => vec![other.address(), stays.address()],
        };
        ads.set(SHOP, version, &now);
        if now.contains(&other.address()) {
            drop(other.accept());
        }
        // Once another service, told after it, is there, so is this.
        let marker = format!("com.foo.Marker{version}");
        consumer.send(&request(version, &marker, "find", "x"));
        assert!(text(&consumer.receive()).starts_with("NR "));
    }
    ads.set(SHOP, 42, &[stays.address()]);
    until("it stands alone", PATIENCE, || {
        let page = http::get(proxy.admin, "/clusters").expect("a page").body;
        (page.matches("::weight::").count() == 1).then_some(page)
    });
    host.send(&answer(waiting.head.id, "after forty changes"));
    let answered = consumer.receive();
    assert_eq!((answered.head.id.0, status(&answered)), (1, Status::OK));
    served(&mut consumer, &mut host, 43);
    let page = http::get(proxy.admin, "/clusters").expect("a page").body;
    let once = format!("{}::cx_total::1\n", stays.address());
    assert!(page.contains(&once), "{page}");
}

#[test]
fn it_starts_from_the_copy_when_the_control_plane_is_away() {
    let (ads, provider, folder) = (Ads::start(), Listener::bind(), TempDir::new().expect("one"));
    ads.set(SHOP, 1, &[provider.address()]);
    declare(folder.path(), SHOP);
    let address = ads.address;
    let mut first = proxy(address, folder.path(), "");
    let mut host = provider.accept();
    served(&mut first.connect(), &mut host, 1);
    first.end();
    drop(ads);
    let again = proxy(address, folder.path(), "");
    let mut host = provider.accept();
    served(&mut again.connect(), &mut host, 1);
    let ready = || {
        http::get(again.admin, "/ready")
            .ok()
            .filter(|page| page.status == 200)
    };
    until("it is ready", PATIENCE, || ready().map(drop));
}

#[test]
fn unknown_services_are_bounded_and_forgotten_when_idle() {
    let (ads, folder) = (Ads::start(), TempDir::new().expect("one"));
    let more = "limits: { learned_services: 100, learned_idle: 1s }";
    let proxy = proxy(ads.address, folder.path(), more);
    let mut consumer = proxy.connect();
    let mut codes = std::collections::BTreeMap::new();
    for id in 0..2000 {
        consumer.send(&request(id, &format!("com.foo.Any{id}"), "find", "x"));
        let said = text(&consumer.receive());
        *codes.entry(said[..2].to_owned()).or_insert(0) += 1;
    }
    assert!(
        codes["NR"] >= 100 && codes["NR"] + codes["UO"] == 2000,
        "{codes:?}"
    );
    until("they are forgotten", PATIENCE, || {
        let gone: usize = ads
            .heard()
            .iter()
            .map(|r| r.resource_names_unsubscribe.len())
            .sum();
        (gone >= 300).then_some(())
    });
    until("others may be asked for", PATIENCE, || {
        consumer.send(&request(1, "com.foo.Other", "find", "x"));
        text(&consumer.receive()).starts_with("NR ").then_some(())
    });
}

#[test]
fn a_control_plane_that_wants_a_token_gets_it() {
    let folder = TempDir::new().expect("one");
    let file = folder.path().join("token");
    fs::write(&file, "s3cret").expect("written");
    let token = Token::read(&file).expect("a token");
    let pilot = Pilot::guarded(Scripted::default(), Some(token));
    let provider = Listener::bind();
    pilot.registry.provide(SHOP, provider.address().port());
    declare(folder.path(), SHOP);
    let asks = |token: &str| {
        let (server, at) = (pilot.address(), folder.path().display());
        Proxy::start(&format!(
            "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}
admin: {{ listen: 127.0.0.1:0 }}
quarantine: FOLDER/quarantine
xds: {{ servers: '{server}', cache: FOLDER/copy{token} }}
dependencies: {at}/dependencies.json
"
        ))
    };
    let with = asks(&format!(", token_file: '{}'", file.display()));
    served(&mut with.connect(), &mut provider.accept(), 1);
    let without = asks("");
    until("that it is refused", PATIENCE, || {
        dump(&without).contains("xds.token_file").then_some(())
    });
    // It declares a service that nobody told it of, and so nothing is confirmed.
    let metrics = http::get(without.admin, "/stats/prometheus").expect("a page");
    for line in [
        "mesh_xds_connects_total 0",
        "mesh_xds_confirmed_timestamp_seconds 0",
    ] {
        let said = metrics.body.lines().any(|said| said == line);
        assert!(said, "no {line} in {}", metrics.body);
    }
}

#[test]
fn a_control_plane_may_say_nothing_until_it_has_something_to_tell() {
    let (ads, folder) = (Ads::reticent(), TempDir::new().expect("one"));
    ads.silent(SHOP);
    declare(folder.path(), SHOP);
    let proxy = proxy(ads.address, folder.path(), "");
    until("it is asked", PATIENCE, || {
        (!ads.heard().is_empty()).then_some(())
    });
    assert!(dump(&proxy).contains("\"connected\": null"));
    let provider = Listener::bind();
    ads.set(SHOP, 1, &[provider.address()]);
    served(&mut proxy.connect(), &mut provider.accept(), 1);
    let server = format!("\"connected\": \"{}\"", ads.address);
    assert!(dump(&proxy).contains(&server), "{}", dump(&proxy));
}
