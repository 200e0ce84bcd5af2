//! Which services the applications of this container declare, as a file says that somebody else
//! writes: `{"version":1,"services":["com.foo.Greeter:1.0.0"]}`.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::names::{self, NoKey};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use crate::config::{Folder, fixed};

/// What is declared now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// The services, in order.
    pub services: Arc<BTreeSet<ServiceKey>>,
    /// What is wrong with the file now, if anything is. The services are then those of before.
    pub problem: Option<Problem>,
}

/// Why a file declares nothing, or not all that it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no file: nobody has declared anything yet, or what was declared stays.
    #[error("is not there")]
    Missing,
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// It is not JSON of the right shape.
    #[error("is broken: {0}")]
    Broken(String),
    /// It is of a version that is not known here.
    #[error("has version {0}; 1 is known here")]
    Version(u64),
    /// It has more services than are taken.
    #[error("has {0} services; limits.declared_services takes {1}")]
    TooMany(usize, usize),
    /// This is no key of a service. The other ones of the file are declared all the same.
    #[error("has a service that is none: {0}")]
    Key(NoKey),
}

/// The file.
#[derive(Debug, Deserialize)]
struct Document {
    version: u64,
    #[serde(default)]
    services: Vec<String>,
}

impl Declared {
    /// What `file` declares at the start. One with more than `most` services is refused.
    #[must_use]
    pub fn read(file: &Path, most: usize) -> Self {
        let mut declared = Self::default();
        declared.take(file, read(file, most));
        declared
    }

    /// Takes over what was read of `file`. Says whether that changed anything.
    fn take(&mut self, file: &Path, content: Content) -> bool {
        let (services, problem) = match content {
            Ok((services, problem)) => (Some(services), problem),
            Err(problem) => (None, Some(problem)),
        };
        let changed = services.filter(|services| *services != *self.services);
        let news = problem != self.problem;
        let any = changed.is_some() || news;
        if let Some(services) = changed {
            tracing::info!(services = services.len(), "dependencies declared");
            self.services = Arc::new(services);
        }
        match &problem {
            // Whoever writes it may start after us.
            Some(Problem::Missing) if news && self.services.is_empty() => {
                tracing::info!(file = %file.display(), "no dependencies declared yet");
            }
            Some(problem) if news => {
                let file = file.display();
                tracing::warn!(%file, %problem, "dependencies: what was known before stays");
            }
            _ => {}
        }
        self.problem = problem;
        any
    }
}

/// Follows `file` until nobody receives any more what it declares: whenever something happens in its
/// folder, and now and then in any case. `declared` holds what was read at the start. A file with
/// more than `most` services is refused.
///
/// Cancel safe.
pub async fn follow(file: PathBuf, most: usize, declared: watch::Sender<Declared>) {
    let (changed, mut changes) = mpsc::channel(1);
    let mut folder = None;
    loop {
        // What the watch does not see: a folder that came or was replaced, or that nobody watches
        // for want of watches. Before reading, so that nothing is missed between the two.
        let watching = match &mut folder {
            None => Folder::watch(&file, changed.clone()).map(|new| folder = Some(new)),
            Some(folder) => folder.again(),
        };
        if let Err(error) = watching {
            tracing::debug!(%error, "the folder of the dependencies is not watched");
        }
        let path = file.clone();
        let outcome = tokio::task::spawn_blocking(move || read(&path, most)).await;
        let outcome = outcome.expect("reading does not panic, and is not aborted");
        declared.send_if_modified(|declared| declared.take(&file, outcome));
        tokio::select! {
            _ = changes.recv() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(LOOK) => {}
            () = declared.closed() => return,
        }
        while changes.try_recv().is_ok() {}
    }
}

/// Services with what is wrong with others, or what is wrong with all.
type Content = Result<(BTreeSet<ServiceKey>, Option<Problem>), Problem>;

fn read(file: &Path, most: usize) -> Content {
    let bytes = match read_bytes(file, most as u64 * fixed::DECLARED_SERVICE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Problem::Missing),
        Err(error) => return Err(Problem::Read(error.to_string())),
    };
    let document: Document =
        serde_json::from_slice(&bytes).map_err(|error| Problem::Broken(error.to_string()))?;
    if document.version != 1 {
        return Err(Problem::Version(document.version));
    }
    if document.services.len() > most {
        return Err(Problem::TooMany(document.services.len(), most));
    }
    let (mut services, mut problem) = (BTreeSet::new(), None);
    for text in document.services {
        // The mistake of one application must not undo what others declare.
        match names::key(&text) {
            Ok(key) => drop(services.insert(key)),
            Err(error) => problem = problem.or(Some(Problem::Key(error))),
        }
    }
    Ok((services, problem))
}

fn read_bytes(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(file)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!(
            "longer than {most} bytes, {} for each of limits.declared_services",
            fixed::DECLARED_SERVICE
        )));
    }
    Ok(bytes)
}

/// Time for whoever writes the file in place to finish.
const SETTLE: Duration = Duration::from_millis(50);
/// Time after which the file is looked at though no change was seen.
const LOOK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A file that is followed, in a folder of its own.
    struct Followed {
        _root: tempfile::TempDir,
        folder: PathBuf,
        declared: watch::Receiver<Declared>,
    }

    impl Followed {
        /// Follows `container/dependencies.json` after this preparation of `container`.
        async fn new(prepare: impl FnOnce(&Path)) -> Self {
            let root = tempfile::tempdir().expect("a folder");
            let folder = root.path().join("container");
            prepare(&folder);
            let file = folder.join(NAME);
            let (sender, declared) = watch::channel(Declared::read(&file, MOST));
            tokio::spawn(follow(file, MOST, sender));
            Self {
                _root: root,
                folder,
                declared,
            }
        }

        /// Writes beside the file and renames over it, as whoever writes it should.
        fn write(&self, text: &str) {
            write(&self.folder, "new", text);
            let path = |name| self.folder.join(name);
            fs::rename(path("new"), path(NAME)).expect("renamed");
        }

        /// Waits for these services, with a problem that begins so.
        async fn expect(&mut self, services: &[&str], problem: Option<&str>) {
            let is = |now: &Declared| {
                let shown = now.problem.as_ref().map(ToString::to_string);
                let same = now
                    .services
                    .iter()
                    .map(ToString::to_string)
                    .eq(services.iter().map(ToString::to_string));
                same && match (shown, problem) {
                    (Some(shown), Some(problem)) => shown.starts_with(problem),
                    (shown, problem) => shown.is_none() && problem.is_none(),
                }
            };
            let came = tokio::time::timeout(PATIENCE, self.declared.wait_for(is)).await;
            let came = came.map(drop);
            came.unwrap_or_else(|_| panic!("{problem:?}, not {:?}", self.declared.borrow()));
        }
    }

    const PATIENCE: Duration = Duration::from_secs(20);
    /// Services that may be declared.
    const MOST: usize = 10;
    const NAME: &str = "dependencies.json";

    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).expect("written");
    }

    fn services(keys: &str) -> String {
        format!("{{\"version\":1,\"services\":[{keys}],\"later\":true}}")
    }

    fn empty(folder: &Path) {
        fs::create_dir(folder).expect("made");
    }

    #[tokio::test]
    async fn a_replaced_file_is_read_and_a_broken_one_changes_nothing() {
        let mut followed = Followed::new(empty).await;
        followed.expect(&[], Some("is not there")).await;
        followed.write(&services("\"b.B\", \"g/a.A:1\", \"b.B:0.0.0\""));
        followed.expect(&["b.B", "g/a.A:1"], None).await;
        let (known, long) = (&["b.B", "g/a.A:1"], " ".repeat(10 << 10));
        let many = ["\"a.A\""; 11].join(",");
        for (text, problem) in [
            ("{\"version\":2}", "has version 2; 1 is known here"),
            (
                &services(&many),
                "has 11 services; limits.declared_services takes 10",
            ),
            (
                &services(&long),
                "cannot be read: longer than 10240 bytes, 1024 for each of limits.declared_services",
            ),
            ("{\"version\":1,\"serv", "is broken: EOF"),
        ] {
            followed.write(text);
            followed.expect(known, Some(problem)).await;
        }
        fs::remove_file(followed.folder.join(NAME)).expect("removed");
        followed.expect(known, Some("is not there")).await;
        followed.write(&services("\"c.C\", \"a/b/c\""));
        let wrong = "has a service that is none: service key \"a/b/c\" is malformed";
        followed.expect(&["c.C"], Some(wrong)).await;
        let long = format!("\"c.C\",\"{}\"", "a".repeat(513));
        followed.write(&services(&long));
        let wrong = "has a service that is none: a service's key has at most 512 bytes, not 513";
        followed.expect(&["c.C"], Some(wrong)).await;
        followed.write(&services(""));
        followed.expect(&[], None).await;
    }

    #[tokio::test]
    async fn a_swapped_volume_is_seen() {
        let mut followed = Followed::new(|folder| {
            empty(folder);
            for (version, key) in [("1", "\"a.A\""), ("2", "\"b.B\"")] {
                fs::create_dir(folder.join(version)).expect("made");
                write(&folder.join(version), NAME, &services(key));
            }
            symlink("1", folder.join("..data")).expect("linked");
            symlink("..data/dependencies.json", folder.join(NAME)).expect("linked");
        })
        .await;
        followed.expect(&["a.A"], None).await;
        let path = |name| followed.folder.join(name);
        symlink("2", path("..data_tmp")).expect("linked");
        fs::rename(path("..data_tmp"), path("..data")).expect("renamed");
        followed.expect(&["b.B"], None).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_comes_later_or_anew_is_found() {
        let mut followed = Followed::new(|_| {}).await;
        // It has looked, and watches nothing.
        tokio::time::sleep(LOOK / 2).await;
        followed.expect(&[], Some("is not there")).await;
        for key in ["a.A", "b.B"] {
            let beside = followed.folder.with_extension("new");
            empty(&beside);
            write(&beside, NAME, &services(&format!("\"{key}\"")));
            let _ = fs::remove_dir_all(&followed.folder);
            fs::rename(&beside, &followed.folder).expect("renamed");
            followed.expect(&[key], None).await;
        }
    }

    #[test]
    fn what_does_not_change_is_not_told_again() {
        let file = Path::new(NAME);
        let one = || BTreeSet::from(["a.A".parse().expect("a key")]);
        let mut declared = Declared::default();
        for (content, changes) in [
            (Ok((one(), None)), true),
            (Ok((one(), None)), false),
            (Err(Problem::Missing), true),
            (Err(Problem::Missing), false),
            (Err(Problem::Version(2)), true),
            (Ok((one(), None)), true),
            (Ok((BTreeSet::new(), None)), true),
        ] {
            assert_eq!(declared.take(file, content), changes, "{declared:?}");
        }
    }

    #[tokio::test]
    async fn it_ends_when_nobody_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, declared) = watch::channel(Declared::default());
        let task = tokio::spawn(follow(folder.path().join(NAME), MOST, sender));
        drop(declared);
        task.await.expect("an orderly end");
    }
}
