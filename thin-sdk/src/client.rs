//! The client: what an application holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dubbo_proto::key::{self, ServiceKey};
use tokio::task::JoinSet;

use crate::builder::Builder;
use crate::call::Call;
use crate::declaration::Declarations;
use crate::failover::{Counts, Outage, Sidecar};
use crate::shared::Shared;

/// Calls services, by way of the sidecar while that is well. Clones are the same client; when the
/// last one is dropped, its connections close.
#[derive(Clone)]
pub struct Client {
    tasks: Arc<Tasks>,
}

/// What a client thinks of the world.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What it thinks of the sidecar.
    pub sidecar: Sidecar,
    /// Services that do not simply go by the sidecar, with the share of calls that does, 0 to 1.
    pub services: BTreeMap<String, f64>,
    /// Providers that it has a connection to, or could not reach lately.
    pub providers: usize,
    /// What happened so far.
    pub counts: Counts,
    /// The last time that the sidecar was lost, once a call was answered direct.
    pub outage: Option<Outage>,
}

struct Tasks {
    shared: Arc<Shared>,
    declarations: Declarations,
    deadline: Duration,
    /// Dropped with the client, which ends them.
    _running: JoinSet<()>,
}

impl Client {
    /// A client that `running` serves: how it keeps its links, learns and declares.
    pub(crate) fn new(
        shared: Arc<Shared>,
        declarations: Declarations,
        deadline: Duration,
        running: JoinSet<()>,
    ) -> Self {
        let tasks = Tasks {
            shared,
            declarations,
            deadline,
            _running: running,
        };
        Self {
            tasks: Arc::new(tasks),
        }
    }

    /// A client of the sidecar of this container, to be configured.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Says which services, as `group/interface:version`, this process is going to call, so that
    /// the first call finds them there. Adds to what was declared before, by this client or another
    /// of its name.
    ///
    /// Returns at once: bonder is told in the background, again and again until it has heard.
    ///
    /// # Errors
    /// A malformed key; then nothing is declared.
    pub fn declare<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<(), key::Error> {
        let keys: BTreeSet<String> = keys
            .into_iter()
            .map(|key| Ok(key.as_ref().parse::<ServiceKey>()?.to_string()))
            .collect::<Result<_, _>>()?;
        self.tasks.declarations.add(keys);
        Ok(())
    }

    /// A call of `method` of `service`, which is `group/interface:version`.
    pub fn call(&self, service: &str, method: &str) -> Call {
        let shared = Arc::clone(&self.tasks.shared);
        Call::new(shared, service, method, self.tasks.deadline)
    }

    /// What the client thinks of the world now.
    #[must_use]
    pub fn state(&self) -> State {
        self.tasks.shared.state()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.state())
            .finish()
    }
}
