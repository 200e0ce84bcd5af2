//! What a service of the reader's own would pay for the mesh, from figures of an evaluation.

mod reckoning;

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::evaluate::{Evaluation, VERSION};
use crate::file;
use reckoning::Reckoning;

/// The service, and the figures to reckon with.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Time of a page now, without the mesh
    #[arg(long, value_parser = crate::time::parse, value_name = "TIME")]
    pub rt: Duration,
    /// Calls of a page
    #[arg(long, value_name = "N")]
    pub calls: NonZero<u32>,
    /// Pages a second, of one instance of the service
    #[arg(long, value_name = "N")]
    pub qps: NonZero<u32>,
    /// Cores that the instance has
    #[arg(long, value_name = "N")]
    pub cores: NonZero<u32>,
    /// The calls of a page are sent all at once, and not one after another
    #[arg(long)]
    pub concurrent_calls: bool,
    /// Figures that `dubbo-mesh evaluate --json` wrote; without it, built-in ones
    #[arg(long, value_name = "FILE")]
    pub figures: Option<PathBuf>,
    /// Write the estimate to a file, in JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The figures cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Where from.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what `evaluate` writes.
    #[error("{} has no figures of an evaluation", .path.display())]
    Alien {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Another version wrote it.
    #[error("the figures have format {0}, and {VERSION} is wanted: measure anew")]
    Version(u32),
    /// There is nothing to reckon with.
    #[error("the figures have no rate of pages that was answered")]
    NoRates,
    /// Figures of calls at once say nothing of calls one after another.
    #[error("the figures are of calls at once: --concurrent-calls, or others")]
    Concurrent,
    /// The estimate cannot be written.
    #[error(transparent)]
    Write(#[from] file::Error),
}

/// Reckons and prints.
///
/// # Errors
/// The figures are none, or the estimate cannot be written.
pub fn run(options: &Options) -> Result<(), Error> {
    let (figures, source) = match &options.figures {
        Some(path) => (read(path)?, "measured"),
        None => (built_in()?, "built in, measured"),
    };
    let reckoning = Reckoning::new(options, &figures, source)?;
    print!("{reckoning}");
    if let Some(path) = &options.json {
        file::write(path, &reckoning.json())?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Evaluation, Error> {
    let text = fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, path)
}

fn built_in() -> Result<Evaluation, Error> {
    parse(REFERENCE.as_bytes(), Path::new("the built-in reference"))
}

fn parse(text: &[u8], path: &Path) -> Result<Evaluation, Error> {
    let alien = |source| Error::Alien {
        path: path.to_owned(),
        source,
    };
    // The version first: another one may look different everywhere else.
    let version: Version = serde_json::from_slice(text).map_err(alien)?;
    if version.version != VERSION {
        return Err(Error::Version(version.version));
    }
    serde_json::from_slice(text).map_err(alien)
}

#[derive(serde::Deserialize)]
struct Version {
    version: u32,
}

/// What `dubbo-mesh evaluate --json` wrote, with date and machine inside.
const REFERENCE: &str = include_str!("reference.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_figures_are_of_this_format() {
        let figures = built_in().expect("figures");
        assert!(figures.rates().len() >= 3, "{figures:#?}");
        assert_eq!(figures.failed(), 0);
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let told = |text: &str| parse(text.as_bytes(), Path::new("x.json")).map(|_| ());
        assert!(matches!(told("{\"version\":9}"), Err(Error::Version(9))));
        for alien in [
            "",
            "[]",
            "{\"version\":1}",
            "{\"version\":1,\"points\":[1]}",
        ] {
            assert!(matches!(told(alien), Err(Error::Alien { .. })), "{alien}");
        }
    }
}
