//! The proxy as a process, and its control plane.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;

use mesh_tests::process::Process;
use serde_json::Value;

use crate::sidecar::PROGRAM;

/// What is wrong is said, but not with each try.
#[test]
fn a_control_plane_that_is_not_to_be_had_is_complained_of_once() {
    let server = TcpListener::bind("127.0.0.1:0").expect("bound");
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "outbound: {{ listen: 127.0.0.1:0, own_addresses: false }}
admin: {{ listen: 127.0.0.1:0 }}
xds: {{ servers: '{}', cache: '{at}/copy' }}
dependencies: '{at}/dependencies.json'
quarantine: '{at}/quarantine'
",
        server.local_addr().expect("an address"),
        at = folder.path().display()
    );
    let file = folder.path().join("proxy.yaml");
    std::fs::write(&file, config).expect("written");
    let mut command = Command::new(PROGRAM);
    command.arg("proxy").arg("--config").arg(file);
    let proxy = Process::start("proxy", command);
    // The last try comes after what is said of the one before.
    for _ in 0..6 {
        drop(server.accept().expect("a try"));
    }
    let said = proxy.output();
    let warnings = said.lines().filter(|line| line.contains("WARN"));
    let causes: Vec<_> = warnings
        .map(|line| line.split_once("no control plane; ").expect("of it").1)
        .collect();
    let unique: BTreeSet<_> = causes.iter().collect();
    assert!(!causes.is_empty() && causes.len() == unique.len(), "{said}");
}

/// A registry of 100,000 services costs a proxy that declares 20 of them nothing.
#[test]
#[ignore = "takes a while and has to be optimised"]
fn a_proxy_pays_for_what_it_declares_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let arguments = "bench discovery --services 100000 --declared 20 --changes 40 --undeclared 40";
    let ran = Command::new(PROGRAM)
        .args(arguments.split(' '))
        .arg("--json")
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(ran.status.success(), "{ran:?}");
    println!("{}", String::from_utf8_lossy(&ran.stdout));
    let figures = std::fs::read(&file).expect("figures");
    let figures: Value = serde_json::from_slice(&figures).expect("JSON");
    assert_eq!(figures["pushes_for_others"], 0, "{figures:#}");
    let proxy = figures["rss_kib"]["proxy"].as_u64().expect("a number");
    assert!(proxy < 15 * 1024, "{figures:#}");
}
