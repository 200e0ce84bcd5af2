//! Handlers of one-way calls that wait: nobody hears of them, so they outlive their connection.

use dubbo_proto::mux::Config;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Answer;

/// Those of one server. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct OneWay {
    running: TaskTracker,
    abort: CancellationToken,
    limit: usize,
}

impl OneWay {
    /// None yet. They end with `abort` at the latest.
    pub(super) fn new(abort: CancellationToken) -> Self {
        Self {
            running: TaskTracker::new(),
            abort,
            // As many as one connection may have of the calls that are answered.
            limit: Config::default().max_calls as usize,
        }
    }

    /// Whether no other may run.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.limit
    }

    pub(super) fn spawn(&self, handler: Answer) {
        let abort = self.abort.clone();
        self.running.spawn(async move {
            tokio::select! {
                _ = handler => {}
                () = abort.cancelled() => {}
            }
        });
    }

    /// Waits until none runs. None may come any more.
    pub(super) async fn wait(&self) {
        self.running.close();
        self.running.wait().await;
    }
}
