//! A registry of 100,000 services costs a proxy that declares 20 of them nothing.

use std::process::Command;

use serde_json::Value;

use crate::sidecar::PROGRAM;

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
