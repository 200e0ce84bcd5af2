//! The mesh in ten seconds: two providers, a sidecar, and a load through it beside a direct one.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use crate::load;
use crate::part::{self, Part, free_address};

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process does not do what it is for.
    #[error(transparent)]
    Part(#[from] part::Error),
    /// The load could not be made.
    #[error(transparent)]
    Load(#[from] load::Error),
    /// The operating system refused something else.
    #[error("the demo cannot run")]
    System(#[from] io::Error),
}

/// Runs the demo with `program`, which is `dubbo-mesh`; whether no call failed. Everything it
/// started has ended when it returns.
///
/// # Errors
/// A part does not start, or no load can be made.
pub fn run(program: &Path) -> Result<bool, Error> {
    let folder = tempfile::tempdir()?;
    let serve = ["provider", "--listen", "127.0.0.1:0", "--service", SERVICE];
    let mut providers = [
        Part::start(program, "provider", &serve)?,
        Part::start(program, "provider", &serve)?,
    ];
    let [first, second] = &mut providers;
    let (first, second) = (
        first.address(PROVIDER_LINE)?,
        second.address(PROVIDER_LINE)?,
    );

    let outbound = free_address()?;
    let file = folder.path().join("sidecar.yaml");
    fs::write(&file, configuration(outbound, first, second))?;
    let arguments = ["proxy", "--config", &file.to_string_lossy()];
    let mut sidecar = Part::start(program, "proxy", &arguments)?;
    sidecar.wait_for(outbound)?;

    println!("providers on {first} and {second}, a sidecar in front of them on {outbound}\n");
    let mut good = true;
    for concurrency in [1, 100] {
        good &= load::run(&options(first, outbound, concurrency, sidecar.pid()))?;
        println!();
    }
    println!("{}", explanation(sidecar.pid()));
    drop(sidecar);
    Ok(good)
}

fn configuration(outbound: SocketAddr, first: SocketAddr, second: SocketAddr) -> String {
    format!(
        "node: {{ id: demo, cluster: demo }}
outbound: {{ listen: \"{outbound}\", own_addresses: false }}
admin: {{ listen: \"127.0.0.1:0\" }}
static:
  services:
    - key: \"{SERVICE}\"
      endpoints: [\"{first}\", \"{second}\"]
"
    )
}

fn options(direct: SocketAddr, sidecar: SocketAddr, concurrency: u32, pid: u32) -> load::Options {
    let one = NonZero::<u32>::MIN;
    load::Options {
        target: direct,
        compare: Some(sidecar),
        rounds: one.saturating_add(2),
        service: dubbo_proto::key::ServiceKey::new("", "demo.Greeter", "1.0.0"),
        method: "greet".to_owned(),
        arguments: Vec::new(),
        types: None,
        payload: Some(128),
        connections: one,
        concurrency: one.saturating_add(concurrency - 1),
        rate: None,
        serial: one,
        duration: TURN,
        timeout: Duration::from_secs(3),
        cpu_of: vec![pid],
        json: None,
        allow_errors: false,
    }
}

fn explanation(sidecar: u32) -> String {
    format!(
        "\
The first column calls one provider directly, the second the same service through the sidecar,
which reads every call, picks one of two providers and keeps one connection to each; the ratio is
what that costs where providers, sidecar and loader share one machine.
One call at a time pays for two more wake-ups, a hundred share them: cpu_of_{sidecar}_us_per_call
is the price of one call in the sidecar."
    )
}

const SERVICE: &str = "demo.Greeter:1.0.0";
const PROVIDER_LINE: &str = "listening on ";
/// How long each target is called at a time: three times each, twice, makes some ten seconds.
const TURN: Duration = Duration::from_millis(700);
