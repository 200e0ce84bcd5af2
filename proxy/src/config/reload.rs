//! A configuration that changes while the proxy runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{Config, Error, Folder, problems::Problems};

/// What a reload led to: a new configuration, or what is wrong with the file.
pub type Reload = Result<Arc<Config>, Error>;

/// Reads `file` again on `SIGHUP` and when it changes, and sends what it says where that differs
/// from `current`, or on `SIGHUP`; until the receiver is dropped.
///
/// A file that is wrong is logged, and sent as an error; the configuration before stays what the
/// next one is compared with. Cancel safe.
pub async fn watch(file: PathBuf, mut current: Arc<Config>, updates: mpsc::Sender<Reload>) {
    let (changed, mut changes) = mpsc::channel(1);
    let unheard = "changes of the configuration cannot be seen; send SIGHUP instead";
    let _folder = Folder::watch(&file, changed.clone())
        .inspect_err(|error| tracing::warn!(%error, "{unheard}"))
        .ok();
    let mut hangups = signal(SignalKind::hangup())
        .inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be heard"))
        .ok();
    let mut last_error = String::new();
    loop {
        let asked = tokio::select! {
            _ = changes.recv() => false,
            Some(_) = async { hangups.as_mut()?.recv().await } => true,
            () = updates.closed() => return,
        };
        if !asked {
            tokio::time::sleep(SETTLE).await;
        }
        while changes.try_recv().is_ok() {}
        let reload = match load(&file, &current).await {
            Ok(config) => {
                last_error.clear();
                if config == *current && !asked {
                    continue;
                }
                tracing::info!(services = config.services.len(), "configuration read again");
                current = Arc::new(config);
                Ok(Arc::clone(&current))
            }
            Err(error) => {
                let text = error.to_string();
                if text == last_error && !asked {
                    continue;
                }
                tracing::warn!(error = text, "configuration is wrong; the one before stays");
                last_error = text;
                Err(error)
            }
        };
        if updates.send(reload).await.is_err() {
            return;
        }
    }
}

/// Adds what differs between the two and is fixed when the proxy starts.
pub(super) fn check(old: &Config, new: &Config, problems: &mut Problems) {
    let (old, new) = (old.to_json(), new.to_json());
    for path in FIXED {
        let pointer = format!("/{}", path.replace('.', "/"));
        let values = (old.pointer(&pointer), new.pointer(&pointer));
        let mut add = |path: String| problems.add(path, FIXED_CURE);
        match values {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let changed = old
                    .iter()
                    .filter(|(key, value)| new.get(*key) != Some(value));
                changed.for_each(|(key, _)| add(format!("{path}.{key}")));
            }
            (old, new) if old != new => add(path.to_owned()),
            _ => {}
        }
    }
}

/// Reads the file where that holds nobody up.
async fn load(file: &Path, current: &Arc<Config>) -> Result<Config, Error> {
    let (file, current) = (file.to_owned(), Arc::clone(current));
    let read = tokio::task::spawn_blocking(move || current.reload(&file)).await;
    read.expect("reading a configuration does not panic, and is not aborted")
}

/// Time for whoever writes a file to finish.
const SETTLE: Duration = Duration::from_millis(200);

/// What threads, sockets and tables are built from when the proxy starts.
const FIXED: [&str; 11] = [
    "node",
    "outbound.listen",
    "outbound.own_addresses",
    "inbound.listen",
    "admin.listen",
    "logging.format",
    "workers",
    "quarantine",
    "xds",
    "dependencies",
    "limits",
];

const FIXED_CURE: &str = "is fixed when the proxy starts; write it as it was, or restart the proxy";

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A folder with a configuration of so many workers, watched.
    struct Watched {
        folder: tempfile::TempDir,
        updates: mpsc::Receiver<Reload>,
        last: Arc<Config>,
    }

    impl Watched {
        async fn new(prepare: impl FnOnce(&Path)) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            prepare(folder.path());
            let file = folder.path().join("proxy.yaml");
            let config = Arc::new(Config::load(&file).expect("a configuration"));
            let (sender, updates) = mpsc::channel(1);
            tokio::spawn(watch(file, Arc::clone(&config), sender));
            // The task runs up to where it waits, with everything set up.
            tokio::task::yield_now().await;
            Self {
                folder,
                updates,
                last: config,
            }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).expect("written");
        }

        /// The next change. The hangup of another test is heard too, and changes nothing.
        async fn next(&mut self) -> Reload {
            loop {
                match self.updates.recv().await.expect("watched") {
                    Ok(config) if config == self.last => {}
                    Ok(config) => {
                        self.last = Arc::clone(&config);
                        return Ok(config);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn default_key(reload: Reload) -> Option<String> {
        let config = reload.expect("a configuration");
        let outbound = config.outbound.as_ref().expect("outbound");
        outbound.default.as_ref().map(ToString::to_string)
    }

    #[tokio::test]
    async fn a_replaced_file_is_read_and_a_broken_one_is_reported() {
        let start = |folder: &Path| fs::write(folder.join("proxy.yaml"), "").expect("written");
        let mut watched = Watched::new(start).await;
        for key in ["a.A", "b.B"] {
            // Written beside and renamed over it, as editors do.
            watched.write("new", &format!("outbound: {{ default: {key} }}"));
            let path = |name| watched.folder.path().join(name);
            fs::rename(path("new"), path("proxy.yaml")).expect("renamed");
            assert_eq!(default_key(watched.next().await).as_deref(), Some(key));
        }
        watched.write("proxy.yaml", "outbound: {");
        assert!(matches!(watched.next().await, Err(Error::Syntax { .. })));
        watched.write("proxy.yaml", "outbound: { default: c.C }\nworkers: 2\n");
        let refused = watched.next().await.expect_err("fixed").to_string();
        assert!(
            refused.ends_with(&format!("2:1: workers: {FIXED_CURE}")),
            "{refused}"
        );
        watched.write("proxy.yaml", "outbound: { default: c.C }");
        assert_eq!(default_key(watched.next().await).as_deref(), Some("c.C"));
    }

    #[tokio::test]
    async fn a_swapped_volume_is_seen() {
        let mut watched = Watched::new(|folder| {
            for (version, key) in [("1", "a.A"), ("2", "b.B")] {
                fs::create_dir(folder.join(version)).expect("made");
                let text = format!("outbound: {{ default: {key} }}");
                fs::write(folder.join(version).join("proxy.yaml"), text).expect("written");
            }
            symlink("1", folder.join("..data")).expect("linked");
            symlink("..data/proxy.yaml", folder.join("proxy.yaml")).expect("linked");
        })
        .await;
        let path = |name| watched.folder.path().join(name);
        symlink("2", path("..data_tmp")).expect("linked");
        fs::rename(path("..data_tmp"), path("..data")).expect("renamed");
        assert_eq!(default_key(watched.next().await).as_deref(), Some("b.B"));
    }

    #[tokio::test]
    async fn a_hangup_is_answered_even_if_nothing_changed() {
        let start = |folder: &Path| {
            fs::write(folder.join("proxy.yaml"), "outbound: { default: a.A }").expect("written");
        };
        let mut watched = Watched::new(start).await;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).expect("raised");
        let reload = watched.updates.recv().await.expect("watched");
        assert_eq!(default_key(reload).as_deref(), Some("a.A"));
    }

    #[test]
    fn what_is_fixed_is_named() {
        let parse = |text: &str| {
            let file = Path::new("/etc/mesh/proxy.yaml");
            super::super::file::parse(text, file, &Default::default()).expect(text)
        };
        let old = parse("node: { id: a }");
        for (text, expected) in [
            ("node: { id: a }", ""),
            (
                "node: { id: a }\noutbound: { default: x }\nlogging: { level: debug }",
                "",
            ),
            (
                "node: { id: a }\ninbound: { provider: 127.0.0.1:1 }",
                "inbound.listen",
            ),
            (
                "node: { id: a }\noutbound: { listen: [] }",
                "outbound.listen outbound.own_addresses",
            ),
            (
                "node: { id: b }\nlimits: { max_sessions: 1 }",
                "node.id limits.max_sessions",
            ),
            (
                "node: { id: a }\nadmin: { listen: 127.0.0.1:1 }\nworkers: 3",
                "admin.listen workers",
            ),
        ] {
            let mut problems = Problems::default();
            check(&old, &parse(text), &mut problems);
            let paths: Vec<_> = problems.into_vec().into_iter().map(|p| p.path).collect();
            assert_eq!(paths.join(" "), expected, "{text}");
        }
    }
}
