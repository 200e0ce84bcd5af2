//! What the processes of a container have said of themselves: a document of each, which is forgotten
//! with the process or when its lease runs out. Pure: told the time, and who lives.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// What a process says. The last one counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Document<S> {
    /// How the process calls itself: 1 to 255 bytes without control characters.
    pub client: String,
    /// Its id, as this container sees it.
    pub pid: u32,
    /// Seconds until it is forgotten unless it says it again; none: as long as the process lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// What it calls, or what it provides.
    pub services: Vec<S>,
}

impl<S> Document<S> {
    /// The same with other services, all of which can be had, or an error.
    pub(super) fn map<T, E>(
        self,
        service: impl FnMut(S) -> Result<T, E>,
    ) -> Result<Document<T>, E> {
        Ok(Document {
            services: self
                .services
                .into_iter()
                .map(service)
                .collect::<Result<_, _>>()?,
            client: self.client,
            pid: self.pid,
            ttl_s: self.ttl_s,
        })
    }
}

/// What is to be known of a document after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Kept<S> {
    #[serde(flatten)]
    pub(super) document: Document<S>,
    /// When its process was started, if it is one of here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) born: Option<u64>,
}

impl<S> Kept<S> {
    /// Whether its process is gone, as `birth` of its id says. Of one of elsewhere nobody knows.
    pub(super) fn is_orphaned(&self, birth: Option<u64>) -> bool {
        self.born.is_some_and(|born| birth != Some(born))
    }
}

/// Why a document is not taken. Prints the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no usable name.
    #[error("client: is no name; write 1 to {MAX_NAME} bytes without control characters")]
    Client,
    /// Its lease is out of range.
    #[error("ttl_s: {0} is out of range; write 1 to {MAX_TTL_S}")]
    Ttl(u64),
    /// It would never be forgotten.
    #[error("ttl_s: is missing, and there is no process {0} here; write how long it counts")]
    Endless(u32),
    /// There are too many.
    #[error("services: with these there were more than {MAX_SERVICES}")]
    Services,
    /// There are too many processes.
    #[error("client: more than {MAX_CLIENTS} processes")]
    Clients,
}

#[derive(Debug, Clone)]
struct Entry<S> {
    ttl_s: Option<u64>,
    services: Vec<S>,
    until: Option<Instant>,
    /// When its process was started, if it is one of here.
    birth: Option<u64>,
}

/// The documents, by client and process.
#[derive(Debug, Clone)]
pub(super) struct Ledger<S>(BTreeMap<(String, u32), Entry<S>>);

impl<S> Default for Ledger<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Clone + PartialEq> Ledger<S> {
    /// Takes a document; `birth` says when its process was started, if it is one of here. Says
    /// whether there is anything new in it.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changes then.
    pub(super) fn put(
        &mut self,
        now: Instant,
        document: Document<S>,
        birth: Option<u64>,
    ) -> Result<bool, Refusal> {
        let Document {
            client,
            pid,
            ttl_s,
            services,
        } = document;
        if client.is_empty() || client.len() > MAX_NAME || client.contains(char::is_control) {
            return Err(Refusal::Client);
        }
        match ttl_s {
            None if birth.is_none() => return Err(Refusal::Endless(pid)),
            Some(ttl) if !(1..=MAX_TTL_S).contains(&ttl) => return Err(Refusal::Ttl(ttl)),
            _ => {}
        }
        let who = (client, pid);
        let others = self.0.iter().filter(|(other, _)| **other != who);
        let (mut clients, mut count) = (1, services.len());
        for (_, entry) in others {
            (clients, count) = (clients + 1, count + entry.services.len());
        }
        if count > MAX_SERVICES {
            return Err(Refusal::Services);
        }
        if clients > MAX_CLIENTS {
            return Err(Refusal::Clients);
        }
        let until = ttl_s.map(|ttl| now + Duration::from_secs(ttl));
        let entry = Entry {
            ttl_s,
            services,
            until,
            birth,
        };
        let new = entry.services.clone();
        let old = self.0.insert(who, entry);
        Ok(old.is_none_or(|old| old.services != new))
    }

    /// Takes a document of before a restart. If its process is gone, as `birth` of its id says, its
    /// successor will say it again.
    pub(super) fn restore(&mut self, now: Instant, kept: Kept<S>, birth: Option<u64>) {
        let orphaned = kept.is_orphaned(birth);
        let Kept { mut document, born } = kept;
        if orphaned {
            document.ttl_s.get_or_insert(SUCCESSION_S);
        }
        if let Err(refusal) = self.put(now, document, born.filter(|_| !orphaned)) {
            tracing::warn!(%refusal, "a declaration of before is forgotten");
        }
    }

    /// Forgets whose lease is over and whose process is gone, as `birth` of its id says. Says
    /// whether there was any.
    pub(super) fn expire(&mut self, now: Instant, birth: impl Fn(u32) -> Option<u64>) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, pid), entry| {
            let leased = entry.until.is_none_or(|until| now < until);
            let lives = entry.birth.is_none_or(|born| birth(*pid) == Some(born));
            leased && lives
        });
        self.0.len() != before
    }

    /// Everything that was said.
    pub(super) fn documents(&self) -> impl Iterator<Item = Document<S>> {
        self.0.iter().map(|((client, pid), entry)| Document {
            client: client.clone(),
            pid: *pid,
            ttl_s: entry.ttl_s,
            services: entry.services.clone(),
        })
    }

    /// Everything that was said, for after a restart.
    pub(super) fn kept(&self) -> impl Iterator<Item = Kept<S>> {
        let births = self.0.values().map(|entry| entry.birth);
        let documents = self.documents().zip(births);
        documents.map(|(document, born)| Kept { document, born })
    }

    /// All services of all documents.
    pub(super) fn services(&self) -> impl Iterator<Item = &S> {
        self.0.values().flat_map(|entry| &entry.services)
    }
}

/// Bytes of the longest name.
const MAX_NAME: usize = 255;
/// Processes of one container.
const MAX_CLIENTS: usize = 256;
/// Services of all its processes, as many as the proxy takes.
pub(super) const MAX_SERVICES: usize = 10_000;
/// The longest lease, a day: a longer one is a mistake.
const MAX_TTL_S: u64 = 86_400;
/// How long the successor of a process that had no lease may take to say it again.
const SUCCESSION_S: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn document(client: &str, pid: u32, ttl_s: Option<u64>, services: &[&str]) -> Document<String> {
        Document {
            client: client.into(),
            pid,
            ttl_s,
            services: services.iter().map(ToString::to_string).collect(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "where virtual time begins")]
    fn start() -> Instant {
        Instant::now()
    }

    fn after(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_document_ends_with_its_lease_or_its_process() {
        let (mut ledger, t) = (Ledger::default(), start());
        let alive = |pid| (pid < 10).then_some(u64::from(pid) * 100);
        for (document, birth) in [
            (document("leased", 1, Some(5), &["a.A"]), Some(100)),
            (document("other container", 77, Some(60), &["b.B"]), None),
            (document("process", 3, None, &["c.C"]), Some(300)),
            (document("replaced", 4, None, &["d.D"]), Some(1)),
        ] {
            assert_eq!(ledger.put(t, document, birth), Ok(true));
        }
        let services = |ledger: &Ledger<String>| ledger.services().cloned().collect::<Vec<_>>();
        // Another process has the id of the fourth by now.
        assert!(ledger.expire(t + after(4), alive));
        assert_eq!(services(&ledger), ["a.A", "b.B", "c.C"]);
        let again = document("leased", 1, Some(5), &["a.A"]);
        assert_eq!(
            ledger.put(t + after(4), again, Some(100)),
            Ok(false),
            "nothing new"
        );
        assert!(!ledger.expire(t + after(8), alive));
        assert!(ledger.expire(t + after(9), alive));
        assert_eq!(services(&ledger), ["b.B", "c.C"]);
        assert!(ledger.expire(t + after(10), |_| None));
        assert_eq!(services(&ledger), ["b.B"]);
    }

    #[test]
    fn one_process_has_one_document_and_two_of_a_name_have_two() {
        let (mut ledger, t) = (Ledger::default(), start());
        for (pid, service) in [(1, "a.A"), (2, "b.B"), (1, "c.C")] {
            let put = ledger.put(t, document("shop", pid, None, &[service]), Some(1));
            assert_eq!(put, Ok(true));
        }
        let services: Vec<_> = ledger.services().cloned().collect();
        assert_eq!(services, ["c.C", "b.B"]);
    }

    #[test]
    fn what_is_restored_lives_as_long_as_its_process_or_until_the_next_one_speaks() {
        let (mut before, t) = (Ledger::default(), start());
        for (document, birth) in [
            (document("lives", 1, None, &["a.A"]), Some(100)),
            (document("is gone", 2, None, &["b.B"]), Some(200)),
            (document("other container", 3, Some(5), &["c.C"]), None),
        ] {
            assert_eq!(before.put(t, document, birth), Ok(true));
        }
        let births = |pid| [None, Some(100), Some(201)].get(pid as usize).copied()?;
        let mut ledger = Ledger::default();
        for kept in before.kept() {
            let birth = births(kept.document.pid);
            ledger.restore(t, kept, birth);
        }
        let services = |ledger: &Ledger<String>| ledger.services().cloned().collect::<Vec<_>>();
        assert!(ledger.expire(t + after(5), births));
        assert_eq!(services(&ledger), ["b.B", "a.A"]);
        assert!(!ledger.expire(t + after(SUCCESSION_S - 1), births));
        assert!(ledger.expire(t + after(SUCCESSION_S), births));
        assert_eq!(services(&ledger), ["a.A"]);
        assert!(ledger.expire(t + after(86_400), |_| None));
    }

    #[test]
    fn documents_are_bounded() {
        let (mut ledger, t) = (Ledger::default(), start());
        let many = vec!["a.A"; MAX_SERVICES];
        for (document, birth, refusal) in [
            (document("", 1, Some(1), &[]), None, Refusal::Client),
            (document("a\nb", 1, Some(1), &[]), None, Refusal::Client),
            (
                document(&"x".repeat(256), 1, Some(1), &[]),
                None,
                Refusal::Client,
            ),
            (document("a", 1, Some(0), &[]), None, Refusal::Ttl(0)),
            (
                document("a", 1, Some(u64::MAX), &[]),
                Some(1),
                Refusal::Ttl(u64::MAX),
            ),
            (document("a", 1, None, &[]), None, Refusal::Endless(1)),
        ] {
            assert_eq!(ledger.put(t, document, birth), Err(refusal));
        }
        assert_eq!(
            ledger.put(t, document("a", 1, Some(1), &many), None),
            Ok(true)
        );
        let more = ledger.put(t, document("b", 1, Some(1), &["a.A"]), None);
        assert_eq!(more, Err(Refusal::Services));
        assert_eq!(
            ledger.put(t, document("a", 1, Some(1), &[]), None),
            Ok(true)
        );
        for pid in 2..=u32::try_from(MAX_CLIENTS).expect("few") {
            assert_eq!(
                ledger.put(t, document("a", pid, Some(1), &[]), None),
                Ok(true)
            );
        }
        let more = ledger.put(t, document("b", 1, Some(1), &[]), None);
        assert_eq!(more, Err(Refusal::Clients));
    }
}
