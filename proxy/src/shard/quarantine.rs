//! Frames that a shard failed on: kept in a bounded file, and refused when they come again.

use std::{
    collections::VecDeque,
    fs::OpenOptions,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::config::fixed;

/// Shared by all shards: whichever meets a frame again refuses it.
#[derive(Debug, Clone)]
pub(crate) struct Quarantine {
    file: Arc<File>,
    /// What this shard refuses; [`Self::refresh`] takes over what others added.
    known: VecDeque<u64>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    most: u64,
    hasher: RandomState,
    known: Mutex<VecDeque<u64>>,
}

impl Quarantine {
    /// Keeps frames in the file at `path` while it is shorter than `most` bytes.
    pub(crate) fn new(path: PathBuf, most: u64) -> Self {
        let (hasher, known) = (RandomState::new(), Mutex::default());
        Self {
            file: Arc::new(File {
                path,
                most,
                hasher,
                known,
            }),
            known: VecDeque::new(),
        }
    }

    /// Whether nothing is refused.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a frame with this body is refused.
    pub(crate) fn holds(&self, body: &[u8]) -> bool {
        self.known.contains(&self.file.hasher.hash_one(body))
    }

    /// Refuses frames with this body from now on, and keeps the frame: its length in four bytes,
    /// big endian, then its bytes. Returns whether it was written.
    ///
    /// # Errors
    /// Of the file; the frame is refused all the same.
    pub(crate) fn keep(&mut self, frame: &[u8], body: &[u8]) -> io::Result<bool> {
        {
            let mut known = self.file.known.lock();
            known.push_back(self.file.hasher.hash_one(body));
            let excess = known.len().saturating_sub(fixed::QUARANTINED);
            known.drain(..excess);
        }
        self.refresh();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.file.path)?;
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        if file.metadata()?.len() + u64::from(len) + 4 > self.file.most {
            return Ok(false);
        }
        file.write_all(&[&len.to_be_bytes(), frame].concat())?;
        Ok(true)
    }

    /// Takes over what other shards added.
    pub(crate) fn refresh(&mut self) {
        self.known.clone_from(&self.file.known.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_frame_is_refused_by_every_shard_and_the_file_is_bounded() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("frames");
        let mut one = Quarantine::new(path.clone(), 20);
        let mut other = one.clone();
        assert!(!one.holds(b"bad"));
        assert!(one.keep(b"head+bad", b"bad").expect("written"));
        assert!(
            !one.keep(b"head+worse", b"worse").expect("full"),
            "over the bound"
        );
        other.refresh();
        assert!(other.holds(b"bad") && other.holds(b"worse") && !other.holds(b"good"));
        assert_eq!(
            std::fs::read(path).expect("the file"),
            b"\0\0\0\x08head+bad"
        );
    }
}
