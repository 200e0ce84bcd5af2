//! Whom the proxy tells its clients to call without it.

use std::time::Duration;

use mesh_tests::{
    http,
    peer::Listener,
    proxy::{Proxy, SERVICE},
    wait::until,
};

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn providers_are_told_by_their_own_addresses_and_the_lost_ones_last() {
    let (one, two) = (Listener::bind(), Listener::bind());
    let (own, behind) = (one.address(), two.address());
    let proxy = Proxy::start(&format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}\n\
         inbound: {{ listen: 127.0.0.1:0, provider: 127.0.0.1:9 }}\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         static:\n  services:\n    - key: {SERVICE}\n      endpoints:\n\
         \x20       - {{ address: '{own}' }}\n\
         \x20       - {{ address: '{behind}', mesh: true, direct: '127.0.0.1:7' }}\n"
    ));
    let (first, second) = (one.accept(), two.accept());
    let told = || {
        let answer = http::get(proxy.admin, "/failover").expect("an answer");
        assert_eq!(answer.status, 200);
        let (_, services) = answer.body.split_once("\"services\": ").expect("a map");
        let services: String = services.split_whitespace().collect();
        services
            .split_inclusive(']')
            .next()
            .expect("a list")
            .to_owned()
    };
    let order = |first: &str, second: &str| format!("{{\"{SERVICE}\":[\"{first}\",\"{second}\"]");
    let (own, direct) = (own.to_string(), "127.0.0.1:7");
    // Which one comes first is for the name of this host to say: that one is lost.
    let turned = if told() == order(&own, direct) {
        drop((one, first));
        order(direct, &own)
    } else {
        assert_eq!(told(), order(direct, &own));
        drop((two, second));
        order(&own, direct)
    };
    until("the lost one last", PATIENCE, || {
        (told() == turned).then_some(())
    });
}
