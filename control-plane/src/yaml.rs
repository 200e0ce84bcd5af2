//! Reads a configuration strictly, and gathers what is wrong with it.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Location, MessageFormatter, Spanned, UserMessageFormatter};

/// Why there is no configuration. Prints a line for each thing that is wrong, with its cure.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no YAML, has a key that does not exist, or a list where a text belongs. Comes alone.
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what is expected.
        problem: Problem,
    },
    /// Values are wrong: all of them are named.
    Values {
        /// The file.
        file: PathBuf,
        /// What is wrong, at least one.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, from 1; `None` where nothing is written.
    pub at: Option<(u64, u64)>,
    /// The key, what is wrong, and how it is put right.
    pub text: String,
}

/// Errors of value, gathered: all of them are reported, not the first alone.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one of the value at `key`, which stands at `at` if it is written.
    pub(crate) fn add(&mut self, at: Option<Location>, key: &str, what: impl fmt::Display) {
        self.0.push(Problem {
            at: at.and_then(place),
            text: format!("{key}: {what}"),
        });
    }

    /// The value, or the problem and nothing.
    pub(crate) fn check<T, E: fmt::Display>(
        &mut self,
        at: Location,
        key: &str,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|error| self.add(Some(at), key, error)).ok()
    }

    /// What `parse` makes of what is written; `None` if nothing is, or if it is wrong.
    pub(crate) fn parse<W, T, E: fmt::Display>(
        &mut self,
        key: &str,
        written: Option<&Spanned<W>>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Option<T> {
        let written = written?;
        self.check(written.referenced, key, parse(&written.value))
    }

    /// The value, if nothing is wrong.
    ///
    /// # Errors
    /// [`Error::Values`].
    pub(crate) fn done<T>(self, file: &Path, value: T) -> Result<T, Error> {
        match self.0 {
            none if none.is_empty() => Ok(value),
            problems => Err(Error::Values {
                file: file.into(),
                problems,
            }),
        }
    }
}

/// Reads `file`; an empty one is all defaults.
///
/// # Errors
/// [`Error::Read`] and [`Error::Syntax`].
pub(crate) fn read<T: DeserializeOwned + Default>(file: &Path) -> Result<T, Error> {
    let text = read_text(file).map_err(|source| Error::Read {
        file: file.into(),
        source,
    })?;
    if text.trim().is_empty() {
        return Ok(T::default());
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        // An excerpt could show a secret.
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| Error::Syntax {
        file: file.into(),
        problem: Problem {
            at: error.location().and_then(place),
            text: UserMessageFormatter
                .format_message(error.without_snippet())
                .replace("string scalar", "one value, not a list or a map"),
        },
    })
}

fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("longer than {MAX_FILE} bytes")));
    }
    Ok(text)
}

fn place(at: Location) -> Option<(u64, u64)> {
    (at.line() > 0).then(|| (at.line(), at.column()))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, problems) = match self {
            Self::Read { file, source } => return write!(f, "{}: {source}", file.display()),
            Self::Syntax { file, problem } => (file, std::slice::from_ref(problem)),
            Self::Values { file, problems } => (file, &problems[..]),
        };
        for (n, problem) in problems.iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}{}:", file.display())?;
            if let Some((line, column)) = problem.at {
                write!(f, "{line}:{column}:")?;
            }
            write!(f, " {}", problem.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Bytes of the longest file.
const MAX_FILE: u64 = 16 << 20;
