//! Tells bonder which services this process calls, until it has heard, and again before it forgets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::chain;
use crate::http::Peer;
use crate::shared::Shared;

/// What bonder is told. One document per process: the last one counts.
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
    lease: Duration,
    mut services: watch::Receiver<BTreeSet<String>>,
) {
    let mut pause = PAUSE;
    loop {
        let declared = services.borrow_and_update().clone();
        if declared.is_empty() {
            if services.changed().await.is_err() {
                return;
            }
            continue;
        }
        let document = Document {
            client: &client,
            pid: std::process::id(),
            ttl_s: lease.as_secs(),
            services: &declared,
        };
        let document = serde_json::to_string(&document).unwrap_or_default();
        let answer = bonder.put("/v1/dependencies", document, PATIENCE).await;
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                pause = PAUSE;
                // Sooner if there is more to tell.
                let _ = timeout(shared.spread(lease / 4), services.changed()).await;
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

/// How long bonder may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before bonder is told again, doubled up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
