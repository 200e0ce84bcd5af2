//! Errors of value, gathered: all of them are reported, not the first alone.

use std::fmt;

/// Errors of value, each with the path of its key.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// One error of value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as `static.services[2].endpoints[0].weight`.
    pub path: String,
    /// What is wrong and how it is put right.
    pub cure: String,
    /// Line and column in the file, from 1; `None` where nothing of the key is written.
    pub at: Option<(u64, u64)>,
}

impl fmt::Display for Problem {
    /// Without the place, which stands with the file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.cure)
    }
}

impl Problems {
    /// Adds one.
    pub(super) fn add(&mut self, path: impl Into<String>, cure: impl Into<String>) {
        self.0.push(Problem {
            path: path.into(),
            cure: cure.into(),
            at: None,
        });
    }

    /// The value, or the problem at `path` and nothing.
    pub(super) fn check<T, E: ToString>(&mut self, path: &str, value: Result<T, E>) -> Option<T> {
        value
            .map_err(|error| self.add(path, error.to_string()))
            .ok()
    }

    /// All of them, in the order they were found.
    pub(super) fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}
