//! Where the providers are, should the sidecar be gone: learned while it lives, kept on disk.
//!
//! The sidecar's `GET /failover` names up to ten addresses of each service, and waits with the
//! answer until there is news. What is missing there is kept: a sidecar that has lost sight of a
//! service is just when the last known addresses are wanted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dubbo_proto::key::ServiceKey;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::error::chain;
use crate::http::Peer;
use crate::shared::Shared;

/// Addresses by service.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    services: HashMap<ServiceKey, Arc<[SocketAddr]>>,
}

/// The roster as the sidecar tells it, and as it stands on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    services: HashMap<String, Vec<String>>,
}

/// Why there is no roster on disk.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot be read or written")]
    File(#[from] io::Error),
    #[error("is no roster")]
    Json(#[from] serde_json::Error),
}

impl Roster {
    /// The roster that was saved, empty if there is none or it is broken.
    pub(crate) fn load(path: &Path) -> Self {
        let mut roster = Self::default();
        match read(path) {
            Ok(document) => {
                roster.learn(&document);
            }
            Err(Error::File(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), error = chain(&error), "no roster");
            }
        }
        roster
    }

    /// The last known addresses of a service.
    pub(crate) fn providers(&self, key: &ServiceKey) -> Option<&Arc<[SocketAddr]>> {
        self.services.get(key)
    }

    /// Whether a service has addresses besides those.
    pub(crate) fn has_other(&self, key: &ServiceKey, than: &[SocketAddr]) -> bool {
        let providers = self.services.get(key);
        providers.is_some_and(|all| all.iter().any(|address| !than.contains(address)))
    }

    /// Sets the addresses of a service.
    pub(crate) fn set(&mut self, key: ServiceKey, addresses: Vec<SocketAddr>) {
        self.services.insert(key, addresses.into());
    }

    /// Takes over what a document says; whether that changes anything. Malformed keys and
    /// addresses are left out, and so are services without an address.
    fn learn(&mut self, document: &Document) -> bool {
        let mut changed = false;
        for (key, addresses) in &document.services {
            let addresses = addresses.iter().filter_map(|a| a.parse().ok());
            let addresses: Arc<[SocketAddr]> = addresses.take(MAX_ADDRESSES).collect();
            let Ok(key) = key.parse::<ServiceKey>() else {
                continue;
            };
            let known = self.services.get(&key);
            let room = known.is_some() || self.services.len() < MAX_SERVICES;
            if room && !addresses.is_empty() && known != Some(&addresses) {
                self.services.insert(key, addresses);
                changed = true;
            }
        }
        changed
    }

    fn document(&self) -> Document {
        let services = self.services.iter().map(|(key, addresses)| {
            let addresses = addresses.iter().map(SocketAddr::to_string);
            (key.to_string(), addresses.collect())
        });
        Document {
            services: services.collect(),
        }
    }
}

/// Asks the sidecar's admin for ever, and saves what is new.
pub(crate) async fn follow(shared: Arc<Shared>, admin: Peer, file: Option<PathBuf>) {
    let mut etag: Option<String> = None;
    let mut pause = PAUSE;
    loop {
        let path = format!("/failover?limit={MAX_ADDRESSES}&wait={}s", WAIT.as_secs());
        let answer = admin.get(&path, etag.as_deref(), WAIT + PATIENCE).await;
        match answer {
            Ok(answer) if answer.status == 200 => {
                match serde_json::from_slice::<Document>(&answer.body) {
                    Ok(document) => {
                        etag = answer.etag;
                        let changed = shared.learn(|roster| {
                            let changed = roster.learn(&document);
                            changed.then(|| roster.document())
                        });
                        if let (Some(document), Some(file)) = (changed, &file) {
                            save(file.clone(), document).await;
                        }
                        pause = PAUSE;
                    }
                    Err(error) => tracing::debug!(%error, "the sidecar's answer is no roster"),
                }
            }
            Ok(answer) if answer.status == 304 => {
                pause = PAUSE;
            }
            Ok(answer) => {
                etag = None;
                tracing::debug!(status = answer.status, "the sidecar tells no addresses");
            }
            Err(error) => {
                etag = None;
                tracing::debug!(error = chain(&error), "the sidecar tells no addresses");
            }
        }
        // Also between answers: one that does not wait must not be asked without end.
        sleep(shared.spread(pause)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

fn read(path: &Path) -> Result<Document, Error> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

async fn save(path: PathBuf, document: Document) {
    let shown = path.display().to_string();
    let written = tokio::task::spawn_blocking(move || write(&path, &document)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(path = shown, error = chain(&error), "roster not saved");
    }
}

/// Replaces the file as a whole, so that a reader never sees half of it, nor what two clients of a
/// process wrote at once.
fn write(path: &Path, document: &Document) -> Result<(), Error> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let mut temporary = path.as_os_str().to_owned();
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{number}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let text = serde_json::to_vec(document)?;
    let done = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&temporary, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(done?)
}

/// Addresses of one service that are kept, and asked for.
const MAX_ADDRESSES: usize = 10;
/// Services that are kept.
const MAX_SERVICES: usize = 10_000;
/// How long the sidecar may wait for news.
const WAIT: Duration = Duration::from_secs(30);
/// How much later than that it is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between two questions to a sidecar that does not answer.
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        serde_json::from_str(text).expect("a document")
    }

    #[test]
    fn what_is_missing_or_empty_is_kept() {
        let mut roster = Roster::default();
        let first = r#"{"version":"1","services":{"a.B":["127.0.0.1:1"],"a.C":["127.0.0.1:2"]}}"#;
        assert!(roster.learn(&document(first)));
        assert!(!roster.learn(&document(first)), "nothing new");
        let sick = r#"{"services":{"a.B":[],"bad key":["127.0.0.1:3"],"a.D":["what"]}}"#;
        assert!(!roster.learn(&document(sick)));
        let a_b = roster.providers(&"a.B".parse().expect("a key"));
        assert_eq!(
            a_b.map(|a| a.to_vec()),
            Some(vec![([127, 0, 0, 1], 1).into()])
        );
        assert_eq!(roster.services.len(), 2);
    }

    #[test]
    fn only_so_many_addresses_are_kept() {
        let many: Vec<_> = (1..30)
            .map(|port| format!("\"127.0.0.1:{port}\""))
            .collect();
        let text = format!(r#"{{"services":{{"a.B":[{}]}}}}"#, many.join(","));
        let mut roster = Roster::default();
        roster.learn(&document(&text));
        let a_b = roster.providers(&"a.B".parse().expect("a key"));
        assert_eq!(a_b.map(|a| a.len()), Some(MAX_ADDRESSES));
    }

    #[test]
    fn what_is_saved_is_loaded_and_what_is_broken_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("roster.json");
        assert!(Roster::load(&path).services.is_empty());
        let mut roster = Roster::default();
        roster.learn(&document(r#"{"services":{"g/a.B:1":["[::1]:7"]}}"#));
        write(&path, &roster.document()).expect("written");
        assert_eq!(Roster::load(&path).services, roster.services);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 1);
        std::fs::write(&path, b"{\"services\"").expect("written");
        assert!(Roster::load(&path).services.is_empty());
    }

    #[test]
    fn clients_that_save_to_one_file_never_mix_what_they_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("roster.json");
        let short = document(r#"{"services":{"a.B":["127.0.0.1:1"]}}"#);
        let addresses = ["\"127.0.0.1:1\""; 4096].join(",");
        let long = document(&format!(r#"{{"services":{{"a.C":[{addresses}]}}}}"#));
        std::thread::scope(|scope| {
            for document in [&short, &long] {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write(path, document).expect("written");
                        assert_eq!(Roster::load(path).services.len(), 1, "it is whole");
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 1);
    }
}
