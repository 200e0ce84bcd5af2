//! Files that a tool leaves where it was told to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", .path.display())]
pub struct Error {
    /// Where to.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `text` to the file, anew if it is there.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error {
        path: path.to_owned(),
        source,
    })
}
