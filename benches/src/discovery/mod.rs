//! How fast discovery is: from a change of the registry to the first call that follows it, and what
//! the first call of a service costs that nobody declared; in a mesh of real processes.

mod figures;
mod stage;

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::runtime::{Builder, LocalOptions};

use crate::cpu;
use crate::signals::Signals;
use crate::time::now;
use crate::{file, http, part, progress};
use figures::{Figures, millis};
use stage::Stage;

/// How much to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Services of the registry, each with one instance
    #[arg(long, value_name = "N", default_value = "100000")]
    pub services: NonZero<u32>,
    /// Those of them that the application declares
    #[arg(long, value_name = "N", default_value = "20")]
    pub declared: NonZero<u32>,
    /// Changes of declared services, one after another
    #[arg(long, value_name = "N", default_value = "500")]
    pub changes: NonZero<u32>,
    /// Services that nobody declared, to be called
    #[arg(long, value_name = "N", default_value = "500")]
    pub undeclared: NonZero<u32>,
    /// A look in seconds: few of everything
    #[arg(long, conflicts_with_all = ["services", "declared", "changes", "undeclared"])]
    pub quick: bool,
    /// Write all figures to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More is to be called than there is.
    #[error(
        "of {services} services {declared} are declared and {undeclared} more called; \
         write a greater --services"
    )]
    Few {
        /// In the registry.
        services: u32,
        /// Declared.
        declared: u32,
        /// Called besides.
        undeclared: u32,
    },
    /// A process does not do what it is for.
    #[error(transparent)]
    Part(#[from] part::Error),
    /// The pilot cannot be asked, or says no.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The pilot says something else than expected.
    #[error("not what a pilot says")]
    Alien(#[from] serde_json::Error),
    /// The client cannot be made.
    #[error(transparent)]
    Client(#[from] thin_sdk::BuildError),
    /// A call failed: then times say nothing.
    #[error("a call of {service} failed")]
    Call {
        /// Of which service.
        service: String,
        /// Why.
        source: Box<thin_sdk::Error>,
    },
    /// Calls do not follow a change.
    #[error("calls of {0} do not lead where they should within {1:?}")]
    Late(String, Duration),
    /// The figures cannot be written.
    #[error(transparent)]
    Write(#[from] file::Error),
    /// A signal came before the end.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something else.
    #[error("discovery cannot be measured")]
    System(#[from] io::Error),
}

/// Measures with `program`, which is `dubbo-mesh`, and tells. Everything it started has ended when it
/// returns.
///
/// # Errors
/// A part does not start or answer, a call fails, or the file cannot be written; it was interrupted.
pub fn run(program: &Path, options: &Options) -> Result<(), Error> {
    let size = Size::of(options)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let figures = runtime.block_on(async {
        // Before anything is started that would stay behind.
        let mut signals = Signals::new()?;
        tokio::select! {
            biased;
            () = signals.next() => Err(Error::Interrupted),
            figures = measure(program, size) => figures,
        }
    })?;
    println!("{figures}");
    if let Some(path) = &options.json {
        file::write(path, &figures.json())?;
    }
    Ok(())
}

/// How many there are of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    services: u32,
    declared: u32,
    changes: u32,
    undeclared: u32,
}

impl Size {
    fn of(options: &Options) -> Result<Self, Error> {
        if options.quick {
            return Ok(QUICK);
        }
        let size = Self {
            services: options.services.get(),
            declared: options.declared.get(),
            changes: options.changes.get(),
            undeclared: options.undeclared.get(),
        };
        let called = size.declared.saturating_add(size.undeclared);
        if called > size.services {
            let (services, declared, undeclared) = (size.services, size.declared, size.undeclared);
            return Err(Error::Few {
                services,
                declared,
                undeclared,
            });
        }
        Ok(size)
    }
}

async fn measure(program: &Path, size: Size) -> Result<Figures, Error> {
    let template = "{msg:24} {wide_bar} {pos}/{len}";
    let bar = progress::bar(size.services.into(), template).with_message("filling the registry");
    let mut stage = Stage::new(program, size, &bar).await?;
    let mut figures = Figures::new(size);

    begin(&bar, size.changes, "changing services");
    for n in 0..size.changes {
        change(&mut stage, n % size.declared, &mut figures).await?;
        bar.inc(1);
    }

    // A change of each kind more is certain to come after the pilot has heard of all others.
    let fence = stage.sent().await?;
    change(&mut stage, 0, &mut figures).await?;
    let before = stage.sent().await?;
    begin(
        &bar,
        size.services - size.declared,
        "changing other services",
    );
    stage.change_others(&bar).await?;
    change(&mut stage, 0, &mut figures).await?;
    figures.pushes_for_others = (stage.sent().await? - before).saturating_sub(before - fence);

    // Before the proxy learns of more than is declared.
    let used = cpu::sample(&[stage.proxy.pid(), stage.pilot.pid()])?;
    for (rss_kib, used) in figures.rss_kib.iter_mut().zip(used) {
        *rss_kib = used.rss_kib;
    }

    begin(&bar, size.undeclared, "calling other services");
    for n in size.declared..size.declared + size.undeclared {
        for times in [&mut figures.first_call, &mut figures.known_call] {
            let begun = now();
            stage.call(n).await?;
            times.push(millis(now() - begun));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(figures)
}

/// One instance more of a service, and away with it again: how long until a call meets it.
async fn change(stage: &mut Stage, n: u32, figures: &mut Figures) -> Result<(), Error> {
    let begun = now();
    let (registered, applied) = stage.add(n).await?;
    figures.registered.push(millis(registered - begun));
    figures.applied.push(millis(applied - begun));
    stage.remove(n).await
}

fn begin(bar: &ProgressBar, length: u32, message: &'static str) {
    bar.reset();
    bar.set_length(u64::from(length));
    bar.set_message(message);
}

/// Of a look in seconds.
const QUICK: Size = Size {
    services: 2000,
    declared: 20,
    changes: 40,
    undeclared: 40,
};
