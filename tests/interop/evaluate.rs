//! `dubbo-mesh evaluate` as a user runs it: in a hurry, on three machines that are one, interrupted.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mesh_tests::process::Process;
use mesh_tests::wait::until;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sidecar::PROGRAM;

#[test]
fn a_quick_evaluation_tells_all_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let report = folder.path().join("report.html");
    let ran = evaluate(folder.path())
        .arg("--report")
        .arg(&report)
        .args([
            "--quick",
            "--rates",
            "20,10",
            "--concurrency",
            "8",
            "--json",
        ])
        .arg(&file)
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{printed}{ran:?}");
    assert!(
        printed.contains("pages of 21 calls one after another"),
        "{printed}"
    );
    let told = json(&file);
    assert_eq!(told["shape"]["calls"], 21);
    assert_eq!(told["failed_pages"], serde_json::json!({}));
    let points = told["points"].as_array().expect("points");
    let loads: Vec<_> = points
        .iter()
        .map(|point| point["load"].to_string())
        .collect();
    assert_eq!(
        loads,
        ["{\"rate\":10}", "{\"rate\":20}", "{\"concurrency\":8}"]
    );
    for point in points {
        for way in ["direct", "mesh"] {
            let figures = &point[way];
            sane(figures, if way == "mesh" { "proxy" } else { "glue" });
            assert_eq!(figures["provider_connections"], 1.0, "{point:#}");
        }
        assert_eq!(point["direct"]["cpu_percent"]["proxy"], 0.0);
    }
    let pages = points[1]["mesh"]["pages_per_s"].as_f64();
    assert!(
        pages <= Some(20.0),
        "no more than were asked for: {pages:?}"
    );
    let many = &points[2]["many"];
    sane(many, "glue");
    assert_eq!(
        many["provider_connections"], 8.0,
        "one for each page at once"
    );
    let page = fs::read_to_string(&report).expect("a report");
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("<td>10</td>"), "its table");
    fs::remove_file(&report).expect("a file");
    assert_eq!(left_behind(folder.path()), ["figures.json"]);
    estimates(&file);
}

/// What was measured is what an estimate reckons with.
fn estimates(figures: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let json_file = folder.path().join("estimate.json");
    let service = [
        "--rt", "5ms", "--calls", "21", "--qps", "15", "--cores", "4",
    ];
    for measured in [true, false] {
        let mut command = Command::new(PROGRAM);
        command.arg("estimate").args(service);
        command.arg("--json").arg(&json_file);
        if measured {
            command.arg("--figures").arg(figures);
        }
        let ran = command.output().expect("it runs");
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(
            printed.contains("built in, measured on"),
            !measured,
            "{printed}"
        );
        let told = json(&json_file);
        let number = |path: &str| told.pointer(path).and_then(Value::as_f64);
        assert_eq!(number("/calls_per_s"), Some(315.0));
        assert_eq!(number("/rt_ms/before"), Some(5.0));
        assert!(number("/rt_ms/after") >= Some(5.0), "{told:#}");
        assert!(number("/sidecar_cores") > Some(0.0), "{told:#}");
    }
    let mut command = Command::new(PROGRAM);
    command
        .arg("estimate")
        .args(service)
        .arg("--figures")
        .arg(&json_file);
    let ran = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !ran.status.success() && said.contains("no figures of an evaluation"),
        "{said}"
    );
}

#[test]
fn three_roles_make_one_evaluation() {
    let folder = tempfile::tempdir().expect("a folder");
    let role = |name: &str, more: &[&str]| {
        let mut command = evaluate(folder.path());
        command.args(["--role", name]).args(more);
        Process::start(name, command)
    };
    let mut provider = role("provider", &[]);
    let dubbo = address(&mut provider, "Dubbo on ").to_string();
    let provider_at = address(&mut provider, "listening on ").to_string();
    let mut glue = role("glue", &["--dubbo", &dubbo]);
    let glue_at = address(&mut glue, "listening on ").to_string();
    let file = folder.path().join("figures.json");
    let mut loader = role(
        "loader",
        &[
            "--glue",
            &glue_at,
            "--provider",
            &provider_at,
            "--quick",
            "--rates",
            "10",
            "--concurrency",
            "2",
            "--calls",
            "5",
            "--concurrent-calls",
            "--json",
            &file.to_string_lossy(),
        ],
    );
    let status = loader.exit(WITHIN);
    assert!(status.success(), "{}", loader.output());
    let told = json(&file);
    assert_eq!(told["shape"]["concurrent"], true);
    for way in ["direct", "mesh", "many"] {
        sane(
            &told["points"][1][way],
            if way == "mesh" { "proxy" } else { "glue" },
        );
    }
    let many = told["points"][1]["many"]["provider_connections"].as_f64();
    assert!((5.0..=10.0).contains(&many.expect("a number")), "{told:#}");
    drop(loader);
    for role in [glue, provider] {
        assert!(role.stop(WITHIN).success());
    }
    assert_eq!(running(folder.path()), 0);
    assert_eq!(left_behind(folder.path()), ["figures.json"]);
}

#[test]
fn an_interrupted_evaluation_leaves_nothing_behind() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = evaluate(folder.path());
        command.args(["--duration", "60s"]);
        let mut process = Process::start("evaluate", command);
        // Loader, glue server, sidecar, and the provider with its station.
        until("all processes", WITHIN, || {
            (running(folder.path()) == 5).then_some(())
        });
        process.signal(signal);
        assert!(!process.exit(WITHIN).success());
        assert!(
            process.output().contains("interrupted"),
            "{}",
            process.output()
        );
        assert_eq!(running(folder.path()), 0);
        assert_eq!(left_behind(folder.path()), [""; 0]);
    }
}

#[test]
fn a_killed_evaluation_leaves_no_process_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = evaluate(folder.path());
    command.args(["--duration", "60s"]);
    let mut process = Process::start("evaluate", command);
    until("all processes", WITHIN, || {
        (running(folder.path()) == 5).then_some(())
    });
    process.signal(Signal::SIGKILL);
    process.exit(WITHIN);
    until("the end of all", WITHIN, || {
        (running(folder.path()) == 0).then_some(())
    });
    assert_eq!(left_behind(folder.path()), [""; 0]);
}

#[test]
fn a_killed_part_leaves_no_process_behind() {
    for arguments in [
        &["evaluate", "--role", "provider", "--listen", "127.0.0.1:0"][..],
        &["bench", "discovery", "--quick"],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("TMPDIR", folder.path());
        let mut process = Process::start("part", command);
        until("its children", WITHIN, || {
            (running(folder.path()) > 1).then_some(())
        });
        process.signal(Signal::SIGKILL);
        process.exit(WITHIN);
        until("the end of all", WITHIN, || {
            (running(folder.path()) == 0).then_some(())
        });
    }
}

/// With `folder` for everything temporary, by which its processes are known too.
fn evaluate(folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("evaluate").env("TMPDIR", folder);
    command
}

#[track_caller]
fn sane(figures: &Value, caller: &str) {
    let at = |path: &str| {
        let number = figures.pointer(path).and_then(Value::as_f64);
        number.unwrap_or_else(|| panic!("{path} in {figures:#}"))
    };
    assert!(at("/pages_per_s") > 0.0, "{figures:#}");
    let times = ["p50", "p90", "p99", "p99_9", "max"].map(|p| at(&format!("/rt_ms/{p}")));
    assert!(times[0] > 0.0 && times.is_sorted(), "{figures:#}");
    assert!((0.0..=times[4]).contains(&at("/rt_ms/mean")), "{figures:#}");
    for name in ["glue", "provider", caller] {
        assert!(at(&format!("/cpu_percent/{name}")) > 0.0, "{figures:#}");
        assert!(at(&format!("/rss_mib/{name}")) > 0.0, "{figures:#}");
    }
}

fn address(process: &mut Process, label: &str) -> SocketAddr {
    process.expect("its address", WITHIN, |line| {
        line.strip_prefix(label)?.parse().ok()
    })
}

/// Processes that were told to keep what is temporary in `folder`.
pub(crate) fn running(folder: &Path) -> usize {
    let mark = format!("TMPDIR={}", folder.display());
    let processes = fs::read_dir("/proc").expect("the kernel tells").flatten();
    let environments = processes.filter_map(|p| fs::read(p.path().join("environ")).ok());
    environments
        .filter(|all| {
            all.split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
        })
        .count()
}

pub(crate) fn left_behind(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).expect("figures")).expect("JSON")
}

const WITHIN: Duration = Duration::from_secs(60);
