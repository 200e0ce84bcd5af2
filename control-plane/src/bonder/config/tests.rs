use std::fs;

use super::*;

/// What `text` says, or what is said of it, the file's name left out.
fn load(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bonder.yaml");
    fs::write(&file, text).expect("written");
    fs::write(folder.path().join("token"), "s3cret").expect("written");
    let loaded = Config::load(&file).map_err(|error| error.to_string());
    loaded.map_err(|error| error.replace(&format!("{}:", file.display()), ""))
}

const WHOLE: &str = "\
http: { listen: 0.0.0.0:15020, token_file: token }
pilot: { address: 10.0.0.1:15014, token_file: token }
proxy: proxy.yaml
state: state
advertise: 10.0.0.2
dependencies: [com.foo.Greeter:1.0.0, g/com.foo.Other]
providers:
  - com.foo.Shop:1.0.0
  - { service: com.foo.Store, address: 127.0.0.1:20881, metadata: { zone: a } }
restart: always
logging: { level: 'info,control_plane=debug' }
limits: { ready_time: 1m, drain_time: 1500ms, stop_time: 3s }
";

#[test]
fn what_is_written_is_meant_and_the_rest_has_defaults() {
    let config = load("proxy: proxy.yaml").expect("good");
    assert_eq!(config.http.listen, HTTP);
    assert!(config.proxy.is_absolute() && config.proxy.ends_with("proxy.yaml"));
    assert_eq!(Some(&*config.state), config.proxy.parent());
    assert_eq!((config.pilot, config.advertise), (None, None));
    assert_eq!(config.restart, Restart::Never);
    let started = load("{ proxy: p, pilot: pilot.yaml }").expect("good");
    assert!(
        matches!(started.pilot, Some(Pilot::Here { config, token: None })
        if config.ends_with("pilot.yaml"))
    );
    let config = load(WHOLE).expect("good");
    let keys: Vec<_> = config
        .dependencies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(keys, ["com.foo.Greeter:1.0.0", "g/com.foo.Other"]);
    let at: Vec<_> = config
        .providers
        .iter()
        .map(|provided| provided.address.port())
        .collect();
    assert_eq!(at, [20880, 20881]);
    assert_eq!(config.times.drain, Duration::from_millis(1500));
    assert_eq!(config.restart, Restart::Always);
}

#[test]
fn what_is_printed_is_the_same_configuration_without_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bonder.yaml");
    fs::write(folder.path().join("token"), "s3cret").expect("written");
    for text in [
        "proxy: proxy.yaml",
        "{ proxy: p, pilot: pilot.yaml }",
        WHOLE,
    ] {
        fs::write(&file, text).expect("written");
        let config = Config::load(&file).expect("good");
        let printed = config.to_yaml();
        assert!(!printed.contains("s3cret") && !format!("{config:?}").contains("s3cret"));
        fs::write(&file, &printed).expect("written");
        assert_eq!(Config::load(&file).expect("good"), config, "{printed}");
    }
}

#[test]
fn every_wrong_value_is_named_with_its_place_and_cure() {
    let text = "\
http: { listen: 0.0.0.0:1 }
pilot: { token_file: token }
advertise: 0.0.0.0
dependencies: [a.A, a b]
providers:
  - { service: a.A, address: '1' }
  - { service: a.A, metadata: { mesh: 'true' } }
restart: sometimes
logging: { level: inof }
limits: { stop_time: 5, drain_time: 0ms }
";
    let wrong = load(text).expect_err("wrong");
    let lines = [
        " proxy: is missing; write the file of the proxy's configuration, as proxy.yaml",
        "10:37: limits.drain_time: 0ms is out of range; write 100ms to 60m",
        "10:22: limits.stop_time: \"5\" is no time; write 500ms, 1s or 5m",
        "1:17: http.listen: is beyond loopback; write http.token_file too, or listen on 127.0.0.1",
        " pilot: write either config, to have one started, or address, where one runs",
        "3:12: advertise: \"0.0.0.0\" is no address of a host; write one, or auto",
        "4:21: dependencies[1]: service key \"a b\" is malformed; write group/interface:version",
        "6:5: providers[0]: address: \"1\" is no IP:port; write where the application listens",
        "7:5: providers[1]: metadata.mesh: is set by bonder; leave it out",
        "8:10: restart: \"sometimes\" is no rule; write never or always",
        "9:19: logging.level: \"inof\" is no level; write off, error, warn, info, debug, trace or \
         MODULE=level",
    ];
    assert_eq!(wrong, lines.join("\n"));
    let deep = format!("{{ proxy: p, state: {} }}", "x".repeat(100));
    assert!(load(&deep).is_err_and(|error| error.contains("state: ")));
}

#[test]
fn no_more_is_called_than_the_proxy_takes() {
    for (count, good) in [(10_000, true), (10_001, false)] {
        let text = format!("proxy: p\ndependencies: [{}]", "a.A, ".repeat(count));
        let why = "dependencies: has more than 10000 services";
        let loaded = load(&text);
        assert_eq!(loaded.is_ok(), good);
        assert!(loaded.err().is_none_or(|error| error.contains(why)));
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    for (text, place) in [
        ("proxy: p\nproxi: p\n", "2:1:"),
        ("proxy: [p]\n", "1:8: expected one value"),
        ("proxy: p\nrestart: [p]\n", "2:10:"),
        ("proxy: p\nproxy: q\n", "2:1:"),
        ("proxy: {\n", "1:8:"),
    ] {
        let wrong = load(text).expect_err("wrong");
        assert!(wrong.starts_with(place), "{text:?}: {wrong}");
    }
}

#[test]
fn the_documentation_lists_every_key_with_its_default() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bonder.md");
    let page = fs::read_to_string(page).expect("a page");
    for (key, default) in [
        ("http.listen", HTTP.to_string()),
        ("http.token_file", "none".into()),
        ("pilot", "none".into()),
        ("pilot.config", "none".into()),
        ("pilot.address", "none".into()),
        ("pilot.token_file", "none".into()),
        ("proxy", "required".into()),
        ("state", "the folder of the file".into()),
        ("advertise", AUTO.into()),
        ("dependencies", "none".into()),
        ("providers", "none".into()),
        ("restart", NEVER.into()),
        ("logging.level", "info".into()),
        ("limits.ready_time", print(READY)),
        ("limits.drain_time", print(DRAIN)),
        ("limits.stop_time", print(STOP)),
    ] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {key}"));
        let shown = row.split('|').nth(3).unwrap_or_default().trim();
        assert_eq!(shown.trim_matches('`'), default, "{key}");
    }
}
