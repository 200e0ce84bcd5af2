//! What the proxy is beside its calls: memory, start, size.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::Error;
use super::contender::{MESH, Starter};
use super::course::{COURSES, SPREAD};
use super::figures::Footprint;
use crate::configuration;
use crate::cpu;
use crate::http::exchange;
use crate::load::Round;
use crate::load::tally::Tally;
use crate::part::{Part, free_address};
use crate::statistics::median;
use crate::time::now;

impl Footprint {
    /// Measures it. A busy one is busy for `busy`.
    pub(super) async fn measure(starter: &Starter<'_>, busy: Duration) -> Result<Self, Error> {
        let fresh = starter.mesh(MESH, 1, 1)?;
        let pid = fresh.pid().ok_or(Error::Alone)?;
        sleep(SETTLE).await;
        let idle_kib = memory(pid)?.rss_kib;
        let after_connections_kib = after_connections(fresh.address, pid, idle_kib).await?;
        drop(fresh);

        let fresh = starter.mesh(MESH, 1, 1)?;
        let pid = fresh.pid().ok_or(Error::Alone)?;
        let spread = COURSES.iter().find(|course| course.name == SPREAD);
        if let Some(course) = spread {
            let plan = course.load.plan(&fresh.services, busy, vec![]);
            Round::measure(&plan, fresh.address, Rc::new(Tally::new())).await?;
        }
        let busy_kib = memory(pid)?.rss_peak_kib;
        drop(fresh);

        let mut starts = Vec::new();
        for _ in 0..STARTS {
            starts.push(cold_start(starter).await?.as_secs_f64() * 1e3);
        }
        Ok(Self {
            idle_kib,
            busy_kib,
            after_connections_kib,
            cold_start_ms: median(starts).unwrap_or_default(),
            program_bytes: stripped(starter.program)?,
        })
    }
}

/// Opens connections that nothing goes over, and closes them; the least memory after that, beyond
/// idle, within the time.
async fn after_connections(address: SocketAddr, pid: u32, idle_kib: u64) -> Result<u64, Error> {
    let opened: Result<Vec<_>, _> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(address))
        .collect();
    let opened = opened?;
    sleep(SETTLE).await;
    drop(opened);
    let until = now() + GIVEN_BACK;
    let mut least = u64::MAX;
    while now() < until {
        least = least.min(memory(pid)?.rss_kib);
        sleep(PAUSE).await;
    }
    Ok(least.saturating_sub(idle_kib))
}

/// From the start of a process until it says that it is ready.
async fn cold_start(starter: &Starter<'_>) -> Result<Duration, Error> {
    let (address, admin, folder) = (free_address()?, free_address()?, TempDir::new()?);
    let endpoints = [starter.providers[0]];
    let services = json!({ "services": [{ "key": "bench.Service0", "endpoints": endpoints }] });
    let file = folder.path().join("proxy.yaml");
    let services = format!("static: {services}\n");
    fs::write(
        &file,
        configuration::proxy("bench", address, admin, &services),
    )?;
    let arguments = ["proxy", "--config", &file.to_string_lossy()];
    let begun = now();
    let part = Part::start(starter.program, "sidecar", &arguments)?;
    while exchange(admin, Method::GET, "/ready", "").await.is_err() {
        if begun.elapsed() > PATIENCE {
            return Err(part.failed().into());
        }
        sleep(PAUSE).await;
    }
    Ok(begun.elapsed())
}

/// Bytes of the program without its symbols; as it is, on a machine that cannot take them out.
fn stripped(program: &Path) -> Result<u64, Error> {
    let folder = TempDir::new()?;
    let copy = folder.path().join("stripped");
    let made = Command::new("strip")
        .arg(program)
        .arg("-o")
        .arg(&copy)
        .output();
    let made = made.is_ok_and(|made| made.status.success());
    let file = if made { &copy } else { program };
    Ok(fs::metadata(file)?.len())
}

fn memory(pid: u32) -> Result<cpu::Sample, Error> {
    let all = cpu::sample(&[pid])?;
    all.into_iter().next().ok_or(Error::Alone)
}

/// Idle connections.
const CONNECTIONS: usize = 2000;
/// Time for memory to come back.
const GIVEN_BACK: Duration = Duration::from_secs(10);
/// Time for what is under way to be done.
const SETTLE: Duration = Duration::from_secs(1);
/// Starts of which the median counts.
const STARTS: usize = 11;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(10);
