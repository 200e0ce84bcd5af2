//! The folder of the copy: a file for each service, and one that says when all of it was true last.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::digest::Digest;

use super::{Known, Learned, document};
use crate::config::fixed;

/// The folder, which anybody may read.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
}

/// The folder for the one who writes, until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Writer {
    folder: PathBuf,
    /// Locked while it is open.
    _lock: File,
}

impl Disk {
    /// The folder, made if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let disk = Self {
            folder: folder.to_owned(),
        };
        disk.make()?;
        Ok(disk)
    }

    fn make(&self) -> io::Result<()> {
        let mut make = fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.folder)
    }

    /// All that can be read, at most `most` services. What cannot is left alone, and reported.
    pub(super) fn load(&self, most: usize) -> io::Result<Known> {
        let mut known = Known::default();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| !is_ours(name)) else {
                continue;
            };
            let path = self.folder.join(name);
            if known.services.len() == most {
                tracing::warn!("more services in the copy than are taken; the rest is left out");
                break;
            }
            match load(&path) {
                Ok(learned) if name == file_name(&learned.service.key) => {
                    known.services.push(learned);
                }
                Ok(_) => tracing::warn!(path = %path.display(), "not the file of its service"),
                Err(error) => tracing::warn!(path = %path.display(), error, "no service, ignored"),
            }
        }
        let by_key = |one: &Learned, other: &Learned| one.service.key.cmp(&other.service.key);
        known.services.sort_by(by_key);
        known.confirmed = fs::read_to_string(self.folder.join(CONFIRMED))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        Ok(known)
    }

    /// The right to write; `None` while another process has it.
    pub(super) fn writer(&self) -> io::Result<Option<Writer>> {
        self.make()?;
        let lock = create(&self.folder.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        // What a process left that was killed while it wrote.
        let _ = fs::remove_file(self.folder.join(NEW));
        Ok(Some(Writer {
            folder: self.folder.clone(),
            _lock: lock,
        }))
    }
}

impl Writer {
    /// Writes the file of a service. One that would be too long to be read again is removed.
    pub(super) fn write(&self, learned: &Learned) -> io::Result<()> {
        let (key, bytes) = (&learned.service.key, document::write(learned));
        if bytes.len() as u64 > fixed::COPIED_SERVICE {
            tracing::warn!(service = %key, "too many providers for the copy on disk");
            return self.remove(key);
        }
        self.replace(&file_name(key), &bytes)
    }

    /// Removes the file of a service.
    pub(super) fn remove(&self, key: &ServiceKey) -> io::Result<()> {
        match fs::remove_file(self.folder.join(file_name(key))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Notes when all of it was true.
    pub(super) fn confirm(&self, at: SystemTime) -> io::Result<()> {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        let text = format!("{}\n", since.unwrap_or_default().as_millis());
        self.replace(CONFIRMED, text.as_bytes())
    }

    /// Has the names of the files on the disk, too.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// Replaces a file whole, or not at all.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(NEW);
        let mut file = create(&new)?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(new, self.folder.join(name))
    }
}

fn load(path: &Path) -> Result<Learned, String> {
    let mut bytes = Vec::new();
    // Opening a pipe would wait for whoever writes to it.
    let read = fs::symlink_metadata(path).and_then(|found| match found.is_file() {
        true => File::open(path)?
            .take(fixed::COPIED_SERVICE + 1)
            .read_to_end(&mut bytes),
        false => Err(io::Error::other("it is no file")),
    });
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > fixed::COPIED_SERVICE {
        return Err(format!("longer than {} bytes", fixed::COPIED_SERVICE));
    }
    document::read(&bytes).map_err(|error| error.to_string())
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false).mode(0o600);
    options.open(path)
}

/// A name that any key can have: keys hold slashes, and may be longer than a name.
fn file_name(key: &ServiceKey) -> String {
    format!(
        "{:016x}.json",
        Digest::new().text(&key.to_string()).finish()
    )
}

fn is_ours(name: &str) -> bool {
    [LOCK, NEW, CONFIRMED].contains(&name)
}

/// Held by the process that writes.
const LOCK: &str = "lock";
/// What is being written.
const NEW: &str = "new";
/// When all of the copy was true, in milliseconds since 1970.
const CONFIRMED: &str = "confirmed";
