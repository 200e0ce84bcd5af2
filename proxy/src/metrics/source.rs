//! Where snapshots come from: each shard is asked, and answers between two batches.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{Gathered, Snapshot};

/// What a shard receives when it is asked: where to send its snapshot.
pub type Request = oneshot::Sender<Answer>;
/// What a shard sends back.
pub type Answer = Box<Snapshot>;

/// The shards, as those see them who want to know their counters.
#[derive(Debug, Clone)]
pub struct Source {
    shards: Vec<mpsc::Sender<Request>>,
    patience: Duration,
    last: Arc<Mutex<Vec<Shown>>>,
}

/// What one shard showed last.
#[derive(Debug, Default)]
struct Shown {
    snapshot: Arc<Snapshot>,
    missed: u64,
}

impl Source {
    /// The shards, one sender each, and the longest time to wait for one.
    #[must_use]
    pub fn new(shards: Vec<mpsc::Sender<Request>>, patience: Duration) -> Self {
        let last = Arc::new(Mutex::new(
            shards.iter().map(|_| Shown::default()).collect(),
        ));
        Self {
            shards,
            patience,
            last,
        }
    }

    /// Asks all shards at once.
    ///
    /// Cancel safe: what was answered meanwhile is lost, and asked for again next time.
    pub async fn gather(&self) -> Gathered {
        let asked: Vec<_> = self.shards.iter().map(ask).collect();
        let until = tokio::time::Instant::now() + self.patience;
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.push(match answer {
                Some(answer) => tokio::time::timeout_at(until, answer)
                    .await
                    .ok()
                    .and_then(Result::ok),
                None => None,
            });
        }
        self.remember(answers)
    }

    /// Replaces what the shards showed last by what they answered, where they did.
    fn remember(&self, answers: Vec<Option<Answer>>) -> Gathered {
        let mut gathered = Gathered::default();
        for (shown, answer) in self.last.lock().iter_mut().zip(answers) {
            match answer {
                Some(snapshot) => shown.snapshot = snapshot.into(),
                None => {
                    shown.missed += 1;
                    gathered.stale += 1;
                }
            }
            gathered.stale_total += shown.missed;
            gathered.shards.push(Arc::clone(&shown.snapshot));
        }
        gathered
    }
}

/// Asks one shard; `None` if it has not yet seen earlier requests, or is no more.
fn ask(shard: &mpsc::Sender<Request>) -> Option<oneshot::Receiver<Answer>> {
    let (request, answer) = oneshot::channel();
    shard.try_send(request).ok().map(|()| answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that answers with the number of its answers so far.
    fn shard(mut requests: mpsc::Receiver<Request>, answers: u64) {
        tokio::spawn(async move {
            for in_flight in 0..answers {
                let Some(request) = requests.recv().await else {
                    return;
                };
                let _ = request.send(Box::new(Snapshot {
                    in_flight,
                    ..Snapshot::default()
                }));
            }
            std::future::pending::<()>().await;
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_that_does_not_answer_is_shown_as_it_was() {
        let (lively, requests) = mpsc::channel(1);
        shard(requests, 100);
        let (stuck, requests) = mpsc::channel(1);
        shard(requests, 1);
        let source = Source::new(vec![lively, stuck], Duration::from_secs(1));
        for (turn, stale, stale_total) in [(0, 0, 0), (1, 1, 1), (2, 1, 2), (3, 1, 3)] {
            let gathered = source.gather().await;
            let seen: Vec<_> = gathered.shards.iter().map(|s| s.in_flight).collect();
            assert_eq!(seen, [turn, 0]);
            assert_eq!((gathered.stale, gathered.stale_total), (stale, stale_total));
        }
    }
}
