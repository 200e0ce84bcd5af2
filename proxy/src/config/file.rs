//! From a file to a configuration, and what is said when that fails.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_saphyr::{DuplicateKeyPolicy, MessageFormatter, Options, UserMessageFormatter};

use super::{
    Config, Problem, fixed,
    host::Host,
    places::Places,
    problems::Problems,
    raw::Raw,
    reload,
    resolve::{Surroundings, resolve},
};

/// Why there is no configuration. Prints a line for each thing that is wrong.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no YAML, has a key that does not exist, or a list where a text belongs.
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line and column, from 1.
        at: Option<(u64, u64)>,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// Values are wrong: all of them are named.
    Values {
        /// The file.
        file: PathBuf,
        /// What is wrong, at least one.
        problems: Vec<Problem>,
    },
}

impl Config {
    /// Reads `file`. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`Error`]; of values, all that are wrong are named at once.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Read {
            file: file.into(),
            source,
        };
        let text = read(file).map_err(unreadable)?;
        let file = std::path::absolute(file).map_err(unreadable)?;
        parse(&text, &file, &Host::read())
    }

    /// Reads `file` for a proxy that runs with this configuration.
    ///
    /// # Errors
    /// As [`Self::load`]; what is fixed when the proxy starts counts as an error of value.
    pub(super) fn reload(&self, file: &Path) -> Result<Self, Error> {
        let new = Self::load(file)?;
        let mut problems = Problems::default();
        reload::check(self, &new, &mut problems);
        match problems.into_vec() {
            fixed if fixed.is_empty() => Ok(new),
            fixed => {
                let text = read(file).unwrap_or_default();
                Err(values(file, &text, fixed))
            }
        }
    }
}

/// The configuration that `text` of `file` says.
pub(super) fn parse(text: &str, file: &Path, host: &Host) -> Result<Config, Error> {
    let raw = match text.trim().is_empty() {
        true => Raw::default(),
        false => serde_saphyr::from_str_with_options(text, options())
            .map_err(|error| syntax(file, &error))?,
    };
    let dir = file.parent().unwrap_or_else(|| Path::new(""));
    resolve(&raw, &Surroundings { dir, host }).map_err(|problems| values(file, text, problems))
}

/// How YAML is read: strictly, and without excerpts in errors, which could show a secret.
pub(super) fn options() -> Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_nodes = fixed::CONFIG_NODES;
    budget.max_events = 4 * fixed::CONFIG_NODES;
    budget.max_depth = 16;
    serde_saphyr::options! {
        budget: Some(budget),
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?
        .take(fixed::CONFIG_FILE + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > fixed::CONFIG_FILE {
        return Err(io::Error::other(format!(
            "longer than {} bytes",
            fixed::CONFIG_FILE
        )));
    }
    Ok(text)
}

fn syntax(file: &Path, error: &serde_saphyr::Error) -> Error {
    let at = error
        .location()
        .map(|at| (at.line(), at.column()))
        .filter(|at| at.0 > 0);
    // Without the position, which stands in front, as for every other error.
    let what = UserMessageFormatter
        .format_message(error.without_snippet())
        .replace("string scalar", "one value, not a list or a map");
    Error::Syntax {
        file: file.into(),
        at,
        what,
    }
}

/// The problems, each with the place of its key in `text`.
fn values(file: &Path, text: &str, mut problems: Vec<Problem>) -> Error {
    if let Some(places) = Places::of(text) {
        for problem in &mut problems {
            problem.at = places.place(&problem.path);
        }
    }
    Error::Values {
        file: file.into(),
        problems,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { file, source } => write!(f, "{}: {source}", file.display()),
            Self::Syntax {
                file,
                at: Some((line, column)),
                what,
            } => {
                write!(f, "{}:{line}:{column}: {what}", file.display())
            }
            Self::Syntax {
                file,
                at: None,
                what,
            } => write!(f, "{}: {what}", file.display()),
            Self::Values { file, problems } => {
                for (n, problem) in problems.iter().enumerate() {
                    let end = if n == 0 { "" } else { "\n" };
                    write!(f, "{end}{}:", file.display())?;
                    if let Some((line, column)) = problem.at {
                        write!(f, "{line}:{column}:")?;
                    }
                    write!(f, " {problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Error {}
