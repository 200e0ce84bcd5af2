//! From text to configuration and back.

use std::{
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use super::*;
use crate::{
    config::host::Host,
    model::{Balance, Endpoint, Idempotent, Profile},
};

/// What `text` says in a file `/etc/mesh/proxy.yaml` on a host with one address.
fn parse(text: &str) -> Result<Config, Error> {
    let host = Host {
        name: "box".into(),
        addresses: vec![IpAddr::from([10, 0, 0, 5])],
    };
    file::parse(text, Path::new("/etc/mesh/proxy.yaml"), &host)
}

/// What is said about `text`, without the file's name.
fn complaint(text: &str) -> String {
    let complaint = parse(text).expect_err(text).to_string();
    complaint.replace("/etc/mesh/proxy.yaml:", "")
}

/// A configuration of one service with these further keys.
fn service(keys: &str) -> String {
    format!("static:\n  services:\n    - {{ key: a.B, endpoints: [127.0.0.1:1], {keys} }}\n")
}

/// A configuration of one provider behind a sidecar.
fn behind(sidecar: &str, direct: &str) -> String {
    let endpoint = format!("{{ address: '{sidecar}', direct: '{direct}' }}");
    format!("static: {{ services: [{{ key: a, endpoints: [{endpoint}] }}] }}")
}

const FULL: &str = r#"
node: { id: shop-1, cluster: shop }
outbound: { listen: [127.0.0.1:16001, "unix:run/mesh.sock"], own_addresses: false, default: g/a.B:1.0.0 }
inbound: { listen: 0.0.0.0:16006, provider: "localhost:20880" }
admin: { listen: "[::1]:16000" }
logging: { level: "info,dubbo_proxy=debug", format: json }
workers: 2
quarantine: /tmp/frames
xds: { servers: [127.0.0.1:15010, 127.0.0.1:15011], cache: copy }
dependencies: dependencies.json
limits: { max_body: 4MiB, drain_time: 5s, max_sessions: 7 }
static:
  services:
    - key: com.foo.Greeter:1.0.0
      endpoints: [127.0.0.1:20880, { address: "127.0.0.1:20881", weight: 50, direct: "127.0.0.1:1" }]
      timeout: 1s
      retries: 0
      idempotent: [get, find]
      balance: least_request
    - { key: com.foo.Every, endpoints: ["[2001:db8::1]:20880"], idempotent: true }
    - { key: "com.foo.Bare:0.0.0", endpoints: ["Orders.shop:20880"] }
"#;

#[test]
fn an_empty_file_is_the_defaults() {
    for text in ["", "\n", "# nothing\n", "{}", "outbound:\nstatic:\n"] {
        let config = parse(text).expect(text);
        assert_eq!(
            config.node,
            Node {
                id: "box".into(),
                cluster: "default".into()
            }
        );
        let outbound = config.outbound.expect("by default");
        assert_eq!(
            outbound.listen,
            [Listen::Tcp(([127, 0, 0, 1], 15001).into())]
        );
        assert!(outbound.own_addresses && outbound.default.is_none());
        assert_eq!(config.inbound, None);
        assert_eq!(
            config.admin,
            Admin {
                listen: ([127, 0, 0, 1], 15000).into(),
                token: None
            }
        );
        assert_eq!(config.workers, NonZeroUsize::MIN);
        assert_eq!(config.limits, Limits::default());
        assert_eq!(
            config.quarantine,
            Path::new("/etc/mesh/dubbo-mesh.quarantine")
        );
        assert!(config.services.is_empty());
        assert_eq!((config.xds, config.dependencies), (None, None));
    }
}

#[test]
fn every_key_is_understood() {
    let config = parse(FULL).expect("a configuration");
    let outbound = config.outbound.expect("outbound");
    let socket = PathBuf::from("/etc/mesh/run/mesh.sock");
    assert_eq!(
        outbound.listen,
        [
            Listen::Tcp(([127, 0, 0, 1], 16001).into()),
            Listen::Unix(socket)
        ]
    );
    assert!(!outbound.own_addresses);
    assert_eq!(outbound.default, "g/a.B:1.0.0".parse().ok());
    let inbound = config.inbound.expect("inbound");
    assert_eq!(
        inbound.provider,
        Address::Name {
            host: "localhost".into(),
            port: 20880
        }
    );
    assert_eq!(config.logging.format, LogFormat::Json);
    assert_eq!(config.limits.max_body, 4 << 20);
    assert_eq!(config.limits.drain_time, Duration::from_secs(5));
    assert_eq!(config.limits.max_sessions, 7);
    let xds = config.xds.expect("control planes");
    let servers = [15010, 15011].map(|port| ([127, 0, 0, 1], port).into());
    assert_eq!(xds.servers, servers);
    assert_eq!(xds.cache, Path::new("/etc/mesh/copy"));
    let declared = PathBuf::from("/etc/mesh/dependencies.json");
    assert_eq!(config.dependencies, Some(declared));
    let [greeter, every, bare] = &config.services[..] else {
        panic!("three services")
    };
    let endpoint = |address: &str, weight| Endpoint {
        address: address.parse().expect("an address"),
        profile: Profile {
            weight,
            ..Profile::default()
        },
    };
    let mut fronted = endpoint("127.0.0.1:20881", 50);
    fronted.profile.direct = Some(([127, 0, 0, 1], 1).into());
    assert_eq!(
        **greeter,
        Service {
            key: "com.foo.Greeter:1.0.0".parse().expect("a key"),
            wildcard: false,
            endpoints: vec![endpoint("127.0.0.1:20880", 100), fronted],
            timeout: Some(Duration::from_secs(1)),
            retries: 0,
            idempotent: Idempotent::Methods(["find".into(), "get".into()].into()),
            balance: Balance::LeastRequest,
        }
    );
    assert!(every.wildcard && every.idempotent == Idempotent::All && every.retries == 2);
    assert_eq!(every.endpoints, [endpoint("[2001:db8::1]:20880", 100)]);
    assert!(!bare.wildcard);
    assert_eq!(bare.endpoints, [endpoint("orders.shop:20880", 100)]);
}

#[test]
fn printed_and_read_again_it_is_the_same() {
    for text in [
        "",
        FULL,
        "outbound: { listen: [] }",
        &service("timeout: 1500ms"),
    ] {
        let config = parse(text).expect(text);
        let printed = config.to_yaml();
        assert_eq!(parse(&printed).expect(&printed), config, "{printed}");
    }
}

#[test]
fn a_token_is_never_printed() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("token"), "s3cret").expect("written");
    let file = dir.path().join("proxy.yaml");
    std::fs::write(
        &file,
        "admin: { listen: 0.0.0.0:15000, token_file: token }
xds: { servers: 10.0.0.1:15010, token_file: token }",
    )
    .expect("written");
    let config = Config::load(&file).expect("a configuration");
    assert!(
        config
            .admin
            .token
            .as_ref()
            .is_some_and(|token| token.matches(b"s3cret"))
    );
    assert!(
        config
            .xds
            .as_ref()
            .is_some_and(|xds| xds.token == config.admin.token)
    );
    for printed in [
        config.to_yaml(),
        config.to_json().to_string(),
        format!("{config:?}"),
    ] {
        assert!(!printed.contains("s3cret"), "{printed}");
        assert!(printed.contains("token"), "{printed}");
    }
}

#[test]
fn what_the_parser_refuses_comes_alone_with_line_column_and_cure() {
    for (text, expected) in [
        (
            "workers: 1\nbnd: 2\n",
            "2:1: unknown field `bnd`, expected one of node",
        ),
        (
            "workers: 0\nstatic:\n  servces: []\n",
            "3:3: unknown field `servces`, expected",
        ),
        ("workers: [1]\n", "1:10: expected one value"),
        (
            "outbound: { own_addresses: yes }\n",
            "1:28: invalid boolean",
        ),
        (
            "static: { services: [{ key: a, endpoints: [[]] }] }",
            "1:44: invalid type: sequence, expected IP:port",
        ),
        (
            "limits: { max_bdy: 1 }\n",
            "1:11: unknown field `max_bdy`, expected one of max_body",
        ),
        (
            "workers: 1\nworkers: 2\n",
            "2:1: duplicate mapping key `workers`",
        ),
        ("node: {\n", "1:7: unclosed bracket"),
        ("workers: 1\n---\nworkers: 1\n", ""),
        (
            &service("idempotent: some"),
            "3:45: invalid type: string \"some\", expected true, false or a list",
        ),
    ] {
        let complaint = complaint(text);
        assert!(complaint.starts_with(expected), "{text:?}: {complaint}");
        assert!(!complaint.contains('\n'), "alone: {complaint}");
    }
}

#[test]
fn hostile_files_are_refused_without_much_work() {
    let laughs: String = (1..30)
        .map(|n| {
            format!(
                "l{n}: &l{n} [*l{p}, *l{p}, *l{p}, *l{p}, *l{p}, *l{p}]\n",
                p = n - 1
            )
        })
        .collect();
    for text in [
        format!("l0: &l0 [x]\n{laughs}"),
        format!("static: {{ services: {} }}", "[".repeat(100_000)),
        format!(
            "static: {{ services: {}1{} }}",
            "[".repeat(1000),
            "]".repeat(1000)
        ),
        "a: &a [*a]".into(),
        "? ? ? x".into(),
        "\u{0}".into(),
        "workers: !!binary AAAA".into(),
        "- 1".into(),
        "1".into(),
    ] {
        assert!(matches!(
            parse(&text),
            Err(Error::Syntax { .. } | Error::Values { .. })
        ));
    }
}

#[test]
fn many_services_are_read_and_a_wrong_one_among_them_is_found() {
    let service = |n| format!("    - {{ key: com.foo.S{n}, endpoints: [127.0.0.1:1] }}\n");
    let services: String = (0..2000).map(service).collect();
    let text = format!("static:\n  services:\n{services}");
    assert_eq!(parse(&text).expect("a configuration").services.len(), 2000);
    let complaint = complaint(&format!("{text}{}", service(7)));
    assert!(
        complaint.starts_with("2003:9: static.services[2000].key: "),
        "{complaint}"
    );
}

#[test]
fn all_errors_of_value_come_together() {
    let complaint = complaint(
        "\
workers: 0
outbound:
  listen: 127.0.0.1
admin: { listen: 0.0.0.0:15000 }
static:
  services:
    - key: com.foo.A
      endpoints:
        - { address: 127.0.0.1:1, weight: 0 }
        - 127.0.0.1
    - { key: com.foo.A, endpoints: [127.0.0.1:1], timeout: 5 }
    - endpoints: []
limits:
  max_body: 8MB
",
    );
    let lines: Vec<_> = complaint.lines().collect();
    let expected = [
        "14:3: limits.max_body: \"8MB\" is no size; write 8MiB, 64KiB or bytes",
        "3:3: outbound.listen: \"127.0.0.1\" is neither IP:port nor unix:PATH",
        "9:35: static.services[0].endpoints[0].weight: 0 would take no calls; leave the endpoint out",
        "10:11: static.services[0].endpoints[1]: \"127.0.0.1\" has no port; write IP:port or name:port",
        "11:51: static.services[1].timeout: \"5\" has no unit; write 5s or 5ms",
        "11:9: static.services[1].key: com.foo.A is static.services[0] already; write one of them",
        "12:7: static.services[2].key: is missing; write group/interface:version",
        "12:7: static.services[2].endpoints: has nobody to call; write at least one IP:port or name:port",
        "4:10: admin.listen: is beyond loopback; write admin.token_file too, or listen on 127.0.0.1",
        "1:1: workers: 0 is out of range; write 1 to 64",
    ];
    assert_eq!(lines, expected, "{complaint}");
}

#[test]
fn each_wrong_value_is_named_with_its_cure() {
    for (text, expected) in [
        ("node: { id: '' }", "1: node.id: is no name"),
        ("xds: {}", "1: xds: names no control plane; write 1 to 16"),
        ("xds: { servers: [] }", "1: xds.servers: names no control"),
        (
            "xds: { servers: pilot:1 }",
            "1: xds.servers: \"pilot:1\" is no IP:port",
        ),
        (
            "xds: { servers: 127.0.0.1:0 }",
            "1: xds.servers: \"127.0.0.1:0\" has port 0",
        ),
        (
            "xds: { servers: [127.0.0.1:1, 127.0.0.1:1] }",
            "1: xds.servers[1]: 127.0.0.1:1 is there twice",
        ),
        (
            "outbound: { default: a/b/c }",
            "1: outbound.default: service key \"a/b/c\" is malformed",
        ),
        (
            "inbound: {}",
            "1: inbound.provider: is missing; write where the application listens",
        ),
        (
            "inbound: { provider: 127.0.0.1:0 }",
            "1: inbound.provider: \"127.0.0.1:0\" has no port",
        ),
        (
            "inbound: { provider: 0.0.0.0:1 }",
            "1: inbound.provider: \"0.0.0.0:1\" is every address",
        ),
        (
            "inbound: { provider: 127.0.0.1:15001 }",
            "1: inbound.provider: 127.0.0.1:15001 is our own",
        ),
        (
            "inbound: { provider: 10.0.0.5:15001 }",
            "1: inbound.provider: 10.0.0.5:15001 is our own",
        ),
        (
            "admin: { listen: here }",
            "1: admin.listen: \"here\" is no IP:port",
        ),
        (
            "xds: { servers: 127.0.0.1:1, token_file: /nowhere/y }",
            "1: xds.token_file: /nowhere/y: No such file",
        ),
        (
            "admin: { token_file: /nowhere/x }",
            "1: admin.token_file: /nowhere/x: No such file",
        ),
        (
            "admin: { listen: 127.0.0.1:15001 }",
            "1: admin.listen: 127.0.0.1:15001 is taken by outbound",
        ),
        (
            "outbound: { listen: [0.0.0.0:1, 127.0.0.1:1] }",
            "1: outbound.listen: 127.0.0.1:1 is taken",
        ),
        (
            "logging: { level: inof }",
            "1: logging.level: \"inof\" is no level",
        ),
        (
            "logging: { format: xml }",
            "1: logging.format: \"xml\" is no format; write text or json",
        ),
        ("workers: many", "1: workers: \"many\" is no whole number"),
        (
            "limits: { max_sessions: 0 }",
            "1: limits.max_sessions: 0 is out of range; write 1 to",
        ),
        (
            "limits: { max_body: 1GiB }",
            "1: limits.host_queue: is below 2 * limits.max_body",
        ),
        (
            "limits: { host_timeout: 1s }",
            "1: limits.host_timeout: is below limits.host_heartbeat",
        ),
        (
            &service("retries: 11"),
            "3: static.services[0].retries: 11 is out of range; write 0 to 10",
        ),
        (
            &service("timeout: 0ms"),
            "3: static.services[0].timeout: 0ms is out of range",
        ),
        (
            &service("idempotent: ['a b']"),
            "3: static.services[0].idempotent: \"a b\" is no method",
        ),
        (
            &service("balance: best"),
            "3: static.services[0].balance: \"best\" is no balance",
        ),
        (
            "static: { services: [{ key: 'a:*', endpoints: [127.0.0.1:1] }] }",
            "1: static.services[0].key: \"a:*\": for every group and version, write a alone",
        ),
        (
            "static: { services: [{ key: a, endpoints: [127.0.0.1:1, '[::ffff:127.0.0.1]:1'] }] }",
            "1: static.services[0].endpoints[1]: 127.0.0.1:1 is endpoint [0] already",
        ),
        (
            "static: { services: [{ key: a, endpoints: [127.0.0.1:15001] }] }",
            "1: static.services[0].endpoints[0]: 127.0.0.1:15001 is our own outbound listener",
        ),
        (
            &behind("127.0.0.1:1", "app:1"),
            "1: static.services[0].endpoints[0].direct: \"app:1\" is a name; write IP:port",
        ),
        (
            &behind("shop:1", "127.0.0.1:1"),
            "1: static.services[0].endpoints[0].direct: shop is a name, which may be many sidecars",
        ),
        (
            &behind("127.0.0.1:1", "127.0.0.1:15001"),
            "1: static.services[0].endpoints[0].direct: 127.0.0.1:15001 is our own outbound",
        ),
    ] {
        let complaint = complaint(text);
        let (place, what) = complaint.split_once(": ").expect("a place");
        let (line, _column) = place.split_once(':').expect("line and column");
        let complaint = format!("{line}: {what}");
        assert!(complaint.starts_with(expected), "{text:?}: {complaint}");
    }
    let long = format!("outbound: {{ listen: 'unix:/{}' }}", "x".repeat(107));
    assert!(complaint(&long).contains("its path has 108 bytes; a socket's has at most 107"));
}

#[test]
fn our_own_listeners_are_told_from_others() {
    let own = [IpAddr::from([10, 0, 0, 5])];
    let ours = |listen: &str, own_addresses, address: &str| {
        let listen = vec![Listen::Tcp(listen.parse().expect("an address"))];
        let outbound = Outbound {
            listen,
            own_addresses,
            default: None,
        };
        outbound.is_ours(address.parse().expect("an address"), &own)
    };
    assert!(ours("127.0.0.1:9", false, "127.0.0.1:9"));
    assert!(ours("127.0.0.1:9", false, "[::ffff:127.0.0.1]:9"));
    assert!(!ours("127.0.0.1:9", false, "127.0.0.1:8"));
    assert!(!ours("127.0.0.1:9", false, "10.0.0.5:9"));
    assert!(ours("127.0.0.1:9", true, "10.0.0.5:9"));
    assert!(!ours("127.0.0.1:9", true, "10.0.0.6:9"));
    assert!(ours("0.0.0.0:9", false, "10.0.0.5:9"));
    assert!(ours("0.0.0.0:9", false, "127.0.0.2:9"));
    assert!(!ours("127.0.0.1:0", true, "127.0.0.1:0"));
}

/// The cells of the table rows of docs/config.md that begin so.
fn rows(begin: &str) -> Vec<Vec<String>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md");
    let text = std::fs::read_to_string(file).expect("docs/config.md");
    let rows = text.lines().filter(|line| line.starts_with(begin));
    let cells = rows.map(|row| row.trim_matches(['|', ' ']).split(" | "));
    cells.map(|row| row.map(str::to_owned).collect()).collect()
}

/// The rows that name a key: key, type, default.
fn documented() -> Vec<(String, String, String)> {
    let cell = |row: &[String], n: usize| row[n].trim_matches('`').to_owned();
    let rows = rows("| `").into_iter();
    rows.map(|row| (cell(&row, 0), cell(&row, 1), cell(&row, 2)))
        .collect()
}

/// Every key of `value` that holds no further keys, with what it holds.
fn leaves(path: &str, value: &serde_json::Value, found: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{key}"), value, found);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|v| leaves(&format!("{path}[]"), v, found)),
        Value::String(text) => found.push((path.into(), text.clone())),
        Value::Null => found.push((path.into(), "none".into())),
        other => found.push((path.into(), other.to_string())),
    }
}

#[test]
fn the_documentation_lists_every_key_with_its_default() {
    let least = "inbound: { provider: 127.0.0.1:1 }
xds: { servers: 127.0.0.1:15010 }
static: { services: [{ key: a.B, endpoints: [127.0.0.1:1] }] }";
    let mut code = Vec::new();
    leaves("", &parse(least).expect(least).to_json(), &mut code);
    for (key, default) in &mut code {
        match key.as_str() {
            "node.id" => *default = "the host's name".into(),
            "quarantine" | "xds.cache" => *default = default.replace("/etc/mesh/", ""),
            "xds.servers" => *default = "required".into(),
            "inbound.provider" | "static.services[].key" => *default = "required".into(),
            "static.services[].endpoints[].address" => *default = "required".into(),
            _ => {}
        }
    }
    let mut docs: Vec<_> = documented()
        .into_iter()
        .map(|(key, _, def)| (key, def))
        .collect();
    code.sort();
    docs.sort();
    assert_eq!(
        docs, code,
        "docs/config.md on the left, the code on the right"
    );
}

#[test]
fn the_documentation_lists_every_fixed_bound() {
    for (what, most) in fixed::all() {
        let row = rows(&format!("| {what} | {most} | "));
        assert_eq!(row.len(), 1, "docs/config.md: {what}, {most}");
    }
    let table = rows("| ").into_iter().skip_while(|row| row[0] != "bound");
    assert_eq!(
        table.count() - 2,
        fixed::all().len(),
        "rows of docs/config.md"
    );
}

#[test]
fn the_documented_ranges_are_the_real_ones() {
    let out_of_range = |key: &str, value: &str| {
        let text = match key.strip_prefix("static.services[].") {
            Some(key) => service(&format!("{key}: {value}")),
            None => key
                .rsplit('.')
                .fold(value.to_owned(), |v, k| format!("{{ {k}: {v} }}")),
        };
        parse(&text).is_err_and(|error| error.to_string().contains("out of range"))
    };
    let mut seen = 0;
    for (key, kind, _) in documented() {
        let Some((least, most)) = kind
            .split_once(", ")
            .and_then(|(_, r)| r.split_once(" to "))
        else {
            continue;
        };
        if key.contains("weight") {
            continue; // its message for 0 is another
        }
        let unit = most.trim_start_matches(|c: char| c.is_ascii_digit());
        let ten_times = format!("{}0{unit}", most.trim_end_matches(unit));
        assert!(
            !out_of_range(&key, least) && !out_of_range(&key, most),
            "{key}"
        );
        assert!(out_of_range(&key, &ten_times), "{key}: {ten_times}");
        assert!(
            least.starts_with('0') || out_of_range(&key, &format!("0{unit}")),
            "{key}: 0"
        );
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
}
