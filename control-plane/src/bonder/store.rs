//! The files of what processes have said, `{"version":1,"clients":[DOCUMENT]}`, by which bonder knows
//! it again after a restart.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::ledger::Kept;

/// What is read of a file; there may be more in it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stored<S> {
    version: u64,
    #[serde(default = "Vec::new")]
    clients: Vec<Kept<S>>,
}

impl<S> Stored<S> {
    /// What is to be written.
    pub(super) fn new(clients: impl Iterator<Item = Kept<S>>) -> Self {
        Self {
            version: VERSION,
            clients: clients.collect(),
        }
    }
}

/// What was said before the restart. A broken file is logged, and nothing was said then.
pub(super) fn read<S: DeserializeOwned>(file: &Path) -> Vec<Kept<S>> {
    let read = || -> io::Result<Stored<S>> {
        let mut bytes = Vec::new();
        File::open(file)?.take(MAX_FILE).read_to_end(&mut bytes)?;
        let stored: Stored<S> = serde_json::from_slice(&bytes)?;
        match stored.version {
            VERSION => Ok(stored),
            version => Err(io::Error::other(format!("has version {version}"))),
        }
    };
    match read() {
        Ok(stored) => stored.clients,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let file = file.display();
            tracing::warn!(%file, %error, "what was declared before is not known any more");
            Vec::new()
        }
    }
}

/// Replaces the file: who reads it, even after a crash, finds the old or the new one whole.
pub(super) fn write(file: &Path, stored: &impl Serialize) -> io::Result<()> {
    let beside = file.with_extension("json.new");
    let mut new = File::create(&beside)?;
    serde_json::to_writer(&mut new, stored)?;
    new.write_all(b"\n")?;
    new.sync_all()?;
    fs::rename(&beside, file)?;
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Of the files.
const VERSION: u64 = 1;
/// Bytes of the longest file: more than is ever written.
const MAX_FILE: u64 = 64 << 20;
