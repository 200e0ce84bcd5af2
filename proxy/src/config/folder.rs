//! Changes of a file, seen through its folder: a file that is replaced is another file, and volumes
//! of container platforms swap a link beside it.

use std::path::{Path, PathBuf};

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// The folder of a file, watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    watcher: notify::RecommendedWatcher,
    path: PathBuf,
}

impl Folder {
    /// Tells `changed` of whatever happens in the folder of `file`, but of mere reading.
    ///
    /// # Errors
    /// There is no such folder, or the system watches no more of them.
    pub(crate) fn watch(file: &Path, changed: mpsc::Sender<()>) -> notify::Result<Self> {
        let tell = move |event: notify::Result<notify::Event>| {
            if !event.is_ok_and(|event| event.kind.is_access()) {
                // Full: a change that is not yet looked at waits there already.
                let _ = changed.try_send(());
            }
        };
        let folder = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let mut folder = Self {
            watcher: notify::recommended_watcher(tell)?,
            path: folder.unwrap_or_else(|| Path::new(".")).to_owned(),
        };
        folder.again()?;
        Ok(folder)
    }

    /// Watches what stands at the path now: the folder itself may have been replaced. Nothing
    /// happens if it was not.
    ///
    /// # Errors
    /// As [`Self::watch`].
    pub(crate) fn again(&mut self) -> notify::Result<()> {
        self.watcher.watch(&self.path, RecursiveMode::NonRecursive)
    }
}
