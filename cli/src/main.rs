//! `dubbo-mesh`: one binary, a subcommand per process or tool.

mod bench;
mod bonder;
mod demo;
mod estimate;
mod evaluate;
mod load;
mod memory;
mod pilot;
mod provider;
mod proxy;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A service mesh for Dubbo
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Daemons.
    /// Run the sidecar proxy
    Proxy(proxy::Options),
    /// Run the control plane
    Pilot(pilot::Options),
    /// Start and supervise pilot, proxy and application in a container
    Bonder(bonder::Options),
    /// What bonder starts its children by
    #[command(hide = true)]
    Launch(bonder::Launch),

    // Tools.
    /// Serve as a Dubbo provider for tests
    Provider(mesh_benches::provider::Options),
    /// Call a provider or a sidecar, and measure
    Load(mesh_benches::load::Options),
    /// Measure what a hop through the sidecar costs a service
    Evaluate(mesh_benches::evaluate::Options),
    /// Reckon what a service of your own would pay for the mesh
    Estimate(mesh_benches::estimate::Options),
    /// Measure a part of the mesh
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show the mesh at work, and what happens when its parts are killed
    Demo(mesh_benches::demo::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Proxy(options) => proxy::run(&options),
        Command::Pilot(options) => pilot::run(&options),
        Command::Bonder(options) => bonder::run(&options),
        Command::Launch(options) => Ok(bonder::launch(&options)),
        Command::Provider(options) => provider::run(options),
        Command::Load(options) => load::run(&options),
        Command::Evaluate(options) => evaluate::run(&options),
        Command::Estimate(options) => estimate::run(&options),
        Command::Bench(bench) => bench::run(&bench),
        Command::Demo(options) => demo::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// What a tool that went through exits with.
fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Says what went wrong, in one write: processes that share a terminal or a log cut into each
/// other's lines otherwise.
fn complain(what: &str) {
    // There is nobody to tell when even this fails.
    let _ = io::stderr().write_all(format!("error: {what}\n").as_bytes());
}
