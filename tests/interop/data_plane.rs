//! The comparison of the data plane with its rivals, as a tool that works; it judges nothing here.

use std::process::Command;

use serde_json::Value;

use crate::peers::built;
use crate::sidecar::PROGRAM;

#[test]
#[ignore = "needs HAProxy and Envoy, and has to be optimised; .ci/run runs it"]
fn the_data_plane_is_measured_beside_its_rivals() {
    let folder = tempfile::tempdir().expect("a folder");
    let [json, page, log] =
        ["figures.json", "report.html", "log.md"].map(|n| folder.path().join(n));
    let ran = Command::new(PROGRAM)
        .args(["bench", "data-plane", "--quick"])
        .arg("--envoy")
        .arg(built().join("envoy/envoy/_bin/envoy"))
        .arg("--json")
        .arg(&json)
        .arg("--report")
        .arg(&page)
        .arg("--append")
        .arg(&log)
        .output()
        .expect("it runs");
    println!("{}", String::from_utf8_lossy(&ran.stdout));
    assert!(ran.status.success(), "{ran:?}");
    let figures = std::fs::read(&json).expect("figures");
    let figures: Value = serde_json::from_slice(&figures).expect("JSON");
    assert_eq!(figures["failed_calls"], 0, "{figures:#}");
    assert_eq!(figures["missing"], Value::Array(Vec::new()), "{figures:#}");
    let of = |course: &str, contender: &str| {
        let named = |all: &Value, name: &str| {
            let mut all = all.as_array().expect("a list").iter();
            all.find(|one| one["name"] == name).expect(name).clone()
        };
        named(&named(&figures["courses"], course)["contenders"], contender)["medians"].clone()
    };
    // One connection for all that is in flight, where Envoy has one for each call.
    assert_eq!(of("1000/100", "mesh")["connections"], 1, "{figures:#}");
    assert_eq!(of("1000/100", "HAProxy")["connections"], 100, "{figures:#}");
    assert_eq!(of("100", "Envoy")["connections"], 100, "{figures:#}");
    for contender in ["HAProxy", "Envoy", "mesh", "mesh, everything on"] {
        let cpu = of("100", contender)["cpu_us"].as_f64();
        assert!(cpu.is_some_and(|cpu| cpu > 0.0), "{contender}: {figures:#}");
    }
    let page = std::fs::read_to_string(page).expect("a report");
    for part in ["<svg", "What has to hold", "too short for a verdict"] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("CPU per call, 1000/100"), "{log}");
}
