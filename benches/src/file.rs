//! Files that a tool leaves where it was told to.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
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

/// Writes `text` at the end of the file, which is made if it is not there.
pub(crate) fn append(path: &Path, text: &str) -> Result<(), Error> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| Error {
        path: path.to_owned(),
        source,
    })
}
