//! Which services the applications of this container call: told by each process, written to the file
//! that the proxy follows.
//!
//! The file is `{"version":1,"services":[KEY],"clients":[DOCUMENT]}`. The proxy reads the services;
//! the documents are for bonder's next start, so that nothing is forgotten in between.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    ledger::{Document, Kept, Ledger, MAX_SERVICES, Refusal},
    process::birth,
    store,
};

/// Why a declaration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not as it should be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A service is none.
    #[error("services: {0}")]
    Key(#[from] dubbo_proto::key::Error),
    /// The proxy does not take as many.
    #[error(
        "services: with these there were more than {MAX_SERVICES} in all, those of the configuration \
         included, which is what the proxy takes by default (limits.declared_services)"
    )]
    Services,
    /// There is too much text.
    #[error("services: with these there were more than {MAX_BYTES} bytes of keys")]
    Bytes,
    /// It is known, but the proxy does not learn of it.
    #[error("{}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bonder is ending.
    #[error("bonder is ending")]
    Over,
}

/// What is declared now.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Declared {
    /// All services, in order, none twice.
    pub services: Vec<String>,
    /// Those of the configuration.
    pub configured: Vec<String>,
    /// What each process has said.
    pub clients: Vec<Document<String>>,
    /// Why the file is not as it should be, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The handle. Clones share what is declared.
#[derive(Debug, Clone)]
pub(super) struct Dependencies {
    requests: mpsc::Sender<Request>,
    declared: watch::Receiver<Declared>,
}

#[derive(Debug)]
struct Request {
    document: Document<ServiceKey>,
    answer: oneshot::Sender<Result<(), Error>>,
}

/// The file.
#[derive(Debug, Serialize)]
struct Stored {
    services: Vec<String>,
    #[serde(flatten)]
    stored: store::Stored<String>,
}

/// Who owns the file.
#[derive(Debug)]
struct Keeper {
    file: PathBuf,
    configured: BTreeSet<ServiceKey>,
    ledger: Ledger<ServiceKey>,
    /// Whether the file is behind.
    stale: bool,
    declared: watch::Sender<Declared>,
}

impl Dependencies {
    /// Takes up what `file` says of before, adds what is `configured`, and writes it. The future
    /// keeps the file until every handle is dropped.
    ///
    /// # Errors
    /// The file cannot be written. One that is broken is logged, and begun anew.
    pub(super) fn open(
        file: &Path,
        configured: &BTreeSet<ServiceKey>,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), Error> {
        let (requests, received) = mpsc::channel(QUEUE);
        let (declared, shown) = watch::channel(Declared::default());
        let mut keeper = Keeper {
            file: file.to_owned(),
            configured: configured.clone(),
            ledger: Ledger::default(),
            stale: true,
            declared,
        };
        for Kept { document, born } in store::read(file) {
            let birth = birth(document.pid);
            let document = parse(document).map_err(Error::from);
            match document.and_then(|document| keeper.fits(&document).map(|()| document)) {
                Ok(document) => {
                    let kept = Kept { document, born };
                    keeper
                        .ledger
                        .restore(Instant::now().into_std(), kept, birth);
                }
                Err(error) => tracing::warn!(%error, "a declaration of before is forgotten"),
            }
        }
        keeper.show();
        store::write(file, &keeper.stored()).map_err(|source| keeper.unwritten(source))?;
        keeper.stale = false;
        let handle = Self {
            requests,
            declared: shown,
        };
        Ok((handle, keeper.keep(received)))
    }

    /// Takes what a process declares; it stands in the file when this returns.
    ///
    /// # Errors
    /// [`Error`]; if the file could not be written, it is tried again later.
    ///
    /// Cancel safe: the declaration is taken all the same.
    pub(super) async fn put(&self, document: Document<String>) -> Result<(), Error> {
        let document = parse(document)?;
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(Request { document, answer }).await;
        sent.map_err(|_| Error::Over)?;
        answered.await.unwrap_or(Err(Error::Over))
    }

    /// What is declared now.
    #[must_use]
    pub(super) fn declared(&self) -> Declared {
        self.declared.borrow().clone()
    }
}

impl Keeper {
    async fn keep(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    None => return,
                    Some(Request { document, answer }) => {
                        let outcome = self.take(document);
                        let outcome = match outcome {
                            Ok(()) => self.flush().await,
                            refused => refused,
                        };
                        // Whoever asked may have left.
                        let _ = answer.send(outcome);
                    }
                },
                _ = tick.tick() => {
                    self.stale |= self.ledger.expire(Instant::now().into_std(), birth);
                    // The problem is shown; whoever declares something hears of it.
                    let _ = self.flush().await;
                }
            }
        }
    }

    /// Whether the proxy takes it with all the others.
    fn fits(&self, document: &Document<ServiceKey>) -> Result<(), Error> {
        let known = self.ledger.documents();
        let others =
            known.filter(|other| (&other.client, other.pid) != (&document.client, document.pid));
        let others = others.flat_map(|other| other.services);
        let told: Vec<_> = others.chain(document.services.iter().cloned()).collect();
        let all: BTreeSet<_> = told.iter().chain(&self.configured).collect();
        if all.len() > MAX_SERVICES {
            return Err(Error::Services);
        }
        let len = |key: &ServiceKey| key.to_string().len();
        if told.iter().map(len).sum::<usize>() > MAX_BYTES {
            return Err(Error::Bytes);
        }
        Ok(())
    }

    fn take(&mut self, document: Document<ServiceKey>) -> Result<(), Error> {
        self.fits(&document)?;
        let born = birth(document.pid);
        let (client, pid) = (document.client.clone(), document.pid);
        let count = document.services.len();
        if self.ledger.put(Instant::now().into_std(), document, born)? {
            tracing::info!(client, pid, services = count, "dependencies declared");
            self.stale = true;
        }
        Ok(())
    }

    /// Writes the file if it is behind.
    async fn flush(&mut self) -> Result<(), Error> {
        if !self.stale {
            return Ok(());
        }
        let (file, stored) = (self.file.clone(), self.stored());
        let written = tokio::task::spawn_blocking(move || store::write(&file, &stored)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.stale = written.is_err();
        self.show();
        written.map_err(|source| {
            let error = self.unwritten(source);
            let problem = error.to_string();
            tracing::warn!(
                problem,
                "dependencies: the proxy does not learn of them yet"
            );
            self.declared
                .send_modify(|shown| shown.problem = Some(problem));
            error
        })
    }

    fn unwritten(&self, source: io::Error) -> Error {
        let file = self.file.clone();
        Error::Write { file, source }
    }

    fn stored(&self) -> Stored {
        let kept = self.ledger.kept().map(|Kept { document, born }| Kept {
            document: print(document),
            born,
        });
        Stored {
            services: self.services(),
            stored: store::Stored::new(kept),
        }
    }

    /// All services, in order, none twice.
    fn services(&self) -> Vec<String> {
        let services: BTreeSet<_> = self.ledger.services().chain(&self.configured).collect();
        services.into_iter().map(ToString::to_string).collect()
    }

    fn show(&self) {
        self.declared.send_replace(Declared {
            services: self.services(),
            configured: self.configured.iter().map(ToString::to_string).collect(),
            clients: self.ledger.documents().map(print).collect(),
            problem: None,
        });
    }
}

fn parse(document: Document<String>) -> Result<Document<ServiceKey>, dubbo_proto::key::Error> {
    document.map(|text| text.parse())
}

fn print(document: Document<ServiceKey>) -> Document<String> {
    let Ok(printed) = document.map(|key| Ok::<_, Infallible>(key.to_string()));
    printed
}

/// Bytes of all keys together: twice of it, escaped, is less than the proxy reads.
const MAX_BYTES: usize = 1 << 20;
/// Declarations that wait while the file is written.
const QUEUE: usize = 16;
/// Between two looks at who is gone.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn key(text: &str) -> ServiceKey {
        text.parse().expect("a key")
    }

    fn document(client: &str, ttl_s: u64, services: &[&str]) -> Document<String> {
        Document {
            client: client.into(),
            // No process of here.
            pid: u32::MAX,
            ttl_s: Some(ttl_s),
            services: services.iter().map(ToString::to_string).collect(),
        }
    }

    fn services(file: &Path) -> Vec<String> {
        let stored = fs::read(file).expect("a file");
        let stored: serde_json::Value = serde_json::from_slice(&stored).expect("whole");
        let services = stored["services"].as_array().expect("a list").iter();
        services
            .map(|key| key.as_str().expect("text").into())
            .collect()
    }

    /// Opens the file, with its keeper running.
    fn open(file: &Path, configured: &[&str]) -> Dependencies {
        let configured = configured.iter().map(|text| key(text)).collect();
        let (dependencies, keep) = Dependencies::open(file, &configured).expect("written");
        tokio::spawn(keep);
        dependencies
    }

    #[tokio::test]
    async fn what_is_declared_is_merged_and_survives_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dependencies.json");
        let dependencies = open(&file, &["c.C"]);
        assert_eq!(services(&file), ["c.C"]);
        for (client, keys) in [("a", &["b.B:1.0.0", "g/a.A"][..]), ("b", &["b.B:1.0.0"])] {
            let put = dependencies.put(document(client, 60, keys)).await;
            put.expect("taken");
        }
        assert_eq!(services(&file), ["b.B:1.0.0", "c.C", "g/a.A"]);
        drop(dependencies);
        let again = open(&file, &[]);
        assert_eq!(again.declared().services, ["b.B:1.0.0", "g/a.A"]);
        assert_eq!(again.declared().clients.len(), 2);
        again.put(document("a", 60, &[])).await.expect("taken");
        assert_eq!(services(&file), ["b.B:1.0.0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dependencies.json");
        let dependencies = open(&file, &[]);
        let put = dependencies.put(document("a", 5, &["a.A"])).await;
        put.expect("taken");
        let mut declared = dependencies.declared.clone();
        let gone = declared.wait_for(|declared| declared.services.is_empty());
        drop(gone.await.expect("kept"));
        assert!(services(&file).is_empty());
    }

    #[tokio::test]
    async fn what_is_no_declaration_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dependencies.json");
        let dependencies = open(&file, &["c.C"]);
        let long = format!("a.{}", "x".repeat(MAX_BYTES));
        for (document, why) in [
            (
                document("a", 60, &["a.A", "a b"]),
                "services: service key \"a b\" is malformed",
            ),
            (
                document("a", 60, &[&long]),
                "services: with these there were more than 1048576",
            ),
            (document("", 60, &["a.A"]), "client: is no name"),
        ] {
            let refused = dependencies.put(document).await.expect_err("refused");
            assert!(refused.to_string().starts_with(why), "{refused}");
        }
        assert_eq!(services(&file), ["c.C"]);
    }

    /// The proxy refuses a file with more, whoever wanted them.
    #[tokio::test]
    async fn no_more_is_declared_in_all_than_the_proxy_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dependencies.json");
        let names = |prefix: &str, count: usize| -> Vec<String> {
            (0..count).map(|n| format!("{prefix}.A{n}")).collect()
        };
        let text =
            |names: &[String]| document("a", 60, &names.iter().map(|n| &**n).collect::<Vec<_>>());
        let configured = names("c", MAX_SERVICES - 2);
        let configured: Vec<_> = configured.iter().map(|name| &**name).collect();
        let dependencies = open(&file, &configured);
        // Those that are configured too count once.
        for (names, taken) in [
            (&names("c", 5), true),
            (&names("d", 2), true),
            (&names("d", 3), false),
        ] {
            let put = dependencies.put(text(names)).await;
            let refused = put.err().map(|error| error.to_string());
            let why = "services: with these there were more than 10000 in all";
            assert_eq!(refused.is_none(), taken);
            assert!(refused.is_none_or(|refused| refused.starts_with(why)));
        }
        assert_eq!(services(&file).len(), MAX_SERVICES);
        drop(dependencies);
        // More is configured since.
        let configured = names("e", MAX_SERVICES - 1);
        let configured: Vec<_> = configured.iter().map(|name| &**name).collect();
        assert_eq!(
            open(&file, &configured).declared().services.len(),
            MAX_SERVICES - 1
        );
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_told_and_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("state");
        fs::create_dir(&inner).expect("made");
        let file = inner.join("dependencies.json");
        let dependencies = open(&file, &[]);
        fs::remove_dir_all(&inner).expect("removed");
        let refused = dependencies.put(document("a", 60, &["a.A"])).await;
        assert!(matches!(refused, Err(Error::Write { .. })));
        assert!(dependencies.declared().problem.is_some());
        fs::create_dir(&inner).expect("made");
        let mut declared = dependencies.declared.clone();
        let written = declared.wait_for(|declared| declared.problem.is_none());
        drop(written.await.expect("kept"));
        assert_eq!(services(&file), ["a.A"]);
    }

    #[tokio::test]
    async fn a_broken_file_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dependencies.json");
        for text in ["", "{", "{\"version\":2,\"services\":[]}", "[]"] {
            fs::write(&file, text).expect("written");
            assert_eq!(
                open(&file, &["c.C"]).declared().services,
                ["c.C"],
                "{text:?}"
            );
        }
    }
}
