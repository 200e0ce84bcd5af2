//! Tells bonder which services this process calls, until it has heard, and again before it forgets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, timeout};

use crate::error::chain;
use crate::http::Peer;
use crate::shared::Shared;

/// What this process says that it calls. Its clients of one name share it, and each tells all of
/// it: bonder keeps one document of a name and a process, and the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Declarations(Arc<Sender<Declared>>);

/// The services, and how they are to be remembered.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    services: BTreeSet<String>,
    /// The longest that a client wants it remembered without hearing it again.
    lease: Duration,
}

impl Declarations {
    /// What clients of that name tell that bonder.
    pub(crate) fn of(bonder: SocketAddr, name: &str, lease: Duration) -> Self {
        let mut all = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, shared| shared.strong_count() > 0);
        let shared = all.entry((bonder, name.to_owned())).or_default();
        let this = Self(shared.upgrade().unwrap_or_default());
        *shared = Arc::downgrade(&this.0);
        this.0.send_if_modified(|declared| {
            let longer = lease > declared.lease;
            declared.lease = declared.lease.max(lease);
            longer
        });
        this
    }

    /// Adds to what was declared before.
    pub(crate) fn add(&self, keys: BTreeSet<String>) {
        self.0.send_if_modified(|declared| {
            let before = declared.services.len();
            declared.services.extend(keys);
            declared.services.len() > before
        });
    }

    /// Follows what is declared.
    pub(crate) fn follow(&self) -> Receiver<Declared> {
        self.0.subscribe()
    }
}

/// Which bonder is told, by clients of which name.
type Whom = (SocketAddr, String);

/// What bonder is told.
#[derive(Debug, Serialize)]
struct Document<'a> {
    client: &'a str,
    pid: u32,
    ttl_s: u64,
    services: &'a BTreeSet<String>,
}

/// Tells bonder at each change, and before its memory runs out. Never gives up.
pub(crate) async fn keep(
    shared: Arc<Shared>,
    bonder: Peer,
    client: String,
    mut declared: Receiver<Declared>,
) {
    let mut pause = PAUSE;
    loop {
        let (document, lease) = {
            let Declared { services, lease } = &*declared.borrow_and_update();
            let document = Document {
                client: &client,
                pid: std::process::id(),
                ttl_s: lease.as_secs(),
                services,
            };
            let document = serde_json::to_string(&document).unwrap_or_default();
            ((!services.is_empty()).then_some(document), *lease)
        };
        let Some(document) = document else {
            if declared.changed().await.is_err() {
                return;
            }
            continue;
        };
        let answer = bonder.put("/v1/dependencies", document, PATIENCE).await;
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                pause = PAUSE;
                // Sooner if there is more to tell.
                let _ = timeout(shared.spread(lease / 4), declared.changed()).await;
                continue;
            }
            Ok(answer) => {
                let text = String::from_utf8_lossy(&answer.body);
                tracing::warn!(status = answer.status, %text, "bonder refuses the declaration");
            }
            Err(error) => tracing::debug!(error = chain(&error), "bonder does not answer"),
        }
        sleep(shared.spread(pause)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// What the clients of this process declare, by bonder and name, as long as one of them lives.
static PROCESS: Mutex<BTreeMap<Whom, Weak<Sender<Declared>>>> = Mutex::new(BTreeMap::new());
/// How long bonder may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before bonder is told again, doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
