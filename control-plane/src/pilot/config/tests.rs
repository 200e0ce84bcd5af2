use std::fs;

use super::*;

/// What `text` says, or what is said of it, the file's name left out.
fn load(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pilot.yaml");
    fs::write(&file, text).expect("written");
    fs::write(folder.path().join("token"), "s3cret").expect("written");
    let loaded = Config::load(&file).map_err(|error| error.to_string());
    loaded.map_err(|error| error.replace(&format!("{}:", file.display()), ""))
}

#[test]
fn what_is_written_is_meant_and_the_rest_has_defaults() {
    for text in ["", "http: {}", "registries: [embedded: {}]"] {
        let config = load(text).expect("good");
        assert_eq!((config.xds.listen, &config.xds.token), (XDS, &None));
        assert_eq!((config.http.listen, &config.http.token), (HTTP, &None));
        assert!(config.registry.is_absolute() && config.registry.ends_with(REGISTRY));
        assert_eq!(config.log_level, LEVEL);
    }
    let text = "\
xds: { listen: 0.0.0.0:2, token_file: token }
http: { listen: 0.0.0.0:1, token_file: token }
registries:
  - embedded: { path: data/instances }
logging: { level: 'warn,control_plane=debug' }
";
    let config = load(text).expect("good");
    assert_eq!(
        (config.xds.listen.port(), config.http.listen.port()),
        (2, 1)
    );
    assert!(
        config
            .http
            .token
            .is_some_and(|token| token.matches(b"s3cret"))
    );
    assert!(config.registry.ends_with("data/instances"));
    assert_eq!(config.log_level, "warn,control_plane=debug");
}

#[test]
fn what_is_printed_reads_as_the_same_and_shows_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pilot.yaml");
    fs::write(folder.path().join("token"), "s3cret").expect("written");
    for text in [
        "",
        "{http: { listen: '[::]:7', token_file: token }, xds: { listen: '[::1]:8' }}",
    ] {
        fs::write(&file, text).expect("written");
        let config = Config::load(&file).expect("good");
        assert!(!config.to_yaml().contains("s3cret"));
        fs::write(&file, config.to_yaml()).expect("written");
        assert_eq!(Config::load(&file).expect("good"), config);
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_its_cure() {
    for (text, error) in [
        ("htp: {}", "1:1: unknown field `htp`"),
        (
            "http: { listen: localhost }",
            "1:17: http.listen: \"localhost\" is no IP:port",
        ),
        (
            "http: { listen: 10.0.0.1:1 }",
            "1:17: http.listen: is beyond loopback; write",
        ),
        (
            "xds: { listen: 10.0.0.1:1 }",
            "1:16: xds.listen: is beyond loopback; write xds.token_file",
        ),
        ("http: { token_file: none }", "1:21: http.token_file: "),
        (
            "registries: [nacos: {}]",
            "unknown variant `nacos`, expected one of embedded",
        ),
        (
            "registries: []",
            "1:13: registries: has 0 registries; write one",
        ),
        (
            "registries: [embedded: {}, embedded: {}]",
            "registries: has 2 registries",
        ),
        (
            "logging: { level: inof }",
            "1:19: logging.level: \"inof\" is no level",
        ),
    ] {
        let said = load(text).expect_err(text);
        assert!(said.contains(error), "{text}: {said}");
    }
    let said = load("http: { listen: a }\nlogging: { level: b }").expect_err("two");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn the_documentation_lists_every_key_with_its_default() {
    let docs = include_str!("../../../../docs/pilot.md");
    let (xds, http) = (XDS.to_string(), HTTP.to_string());
    for (key, default) in [
        ("xds.listen", xds.as_str()),
        ("xds.token_file", "none"),
        ("http.listen", http.as_str()),
        ("http.token_file", "none"),
        ("registries", "- embedded: {}"),
        ("registries[].embedded.path", REGISTRY),
        ("logging.level", LEVEL),
    ] {
        let row = docs
            .lines()
            .find(|l| l.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {key}"));
        assert!(row.contains(default), "{row}");
    }
}
