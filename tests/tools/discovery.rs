//! `dubbo-mesh bench discovery`, in a hurry.

use std::process::Command;

use serde_json::Value;

#[test]
fn changes_reach_calls_and_others_cost_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    command.args(["bench", "discovery", "--services", "400", "--declared", "5"]);
    command.args(["--changes", "10", "--undeclared", "10", "--json"]);
    let ran = command.arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{printed}{said}");
    assert!(printed.contains("400 services, 5 declared"), "{printed}");

    let figures = std::fs::read(&file).expect("figures");
    let figures: Value = serde_json::from_slice(&figures).expect("JSON");
    assert_eq!(figures["undeclared"], 10, "{figures:#}");
    assert_eq!(figures["pushes_for_others"], 0, "{figures:#}");
    let ms = |name: &str| {
        let [low, high] = ["p50", "max"].map(|column| figures[name][column].as_f64());
        let (low, high) = (low.expect("a time"), high.expect("a time"));
        assert!(0.0 < low && low <= high, "{figures:#}");
        low
    };
    // The pilot waits for more before it tells a change, but not before it tells a service.
    assert!(ms("applied_ms") >= 20.0, "{figures:#}");
    assert!(ms("first_call_ms") < ms("applied_ms"), "{figures:#}");
    assert!(ms("known_call_ms") < ms("first_call_ms"), "{figures:#}");
    assert!(ms("registered_ms") < ms("applied_ms"), "{figures:#}");
}

#[test]
fn more_than_there_is_cannot_be_called() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dubbo-mesh"));
    let ran = command
        .args(["bench", "discovery", "--services", "10"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !ran.status.success() && said.contains("write a greater --services"),
        "{said}"
    );
}
