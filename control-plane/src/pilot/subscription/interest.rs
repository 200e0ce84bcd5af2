//! What a client asks for of one type, and how much of it it has.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::names::{self, Type};

use super::{MAX_IN_FLIGHT, Verdict};
use crate::pilot::resources::Version;

/// The names of one type.
#[derive(Debug)]
pub(super) struct Interest {
    /// `None`: a type that we have no resources of.
    kind: Option<Type>,
    url: String,
    /// Whether there was a request of this type before.
    pub(super) heard: bool,
    wildcard: bool,
    names: BTreeMap<String, Name>,
    /// What may differ from what the client has.
    due: BTreeSet<String>,
    /// What cannot be told yet.
    pending: BTreeSet<String>,
    /// What the client holds, never asked for on this stream, and has to let go.
    gone: BTreeSet<String>,
    /// An answer is owed even if there is nothing to say.
    owed: bool,
    /// Answers without ACK or NACK, oldest first.
    in_flight: VecDeque<Sent>,
    rejected: BTreeMap<String, Arc<Rejection>>,
    sent: u64,
    /// The nonce of the newest answer.
    newest: Option<String>,
    /// What the client of the state of the world had before this stream, until it was answered.
    pub(super) before: Option<Version>,
}

/// A name that is subscribed to.
#[derive(Debug)]
struct Name {
    /// What it stands for; `None`: nothing that there is.
    service: Option<ServiceKey>,
    by_name: bool,
    by_wildcard: bool,
    told: Told,
}

/// What the client has under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// We told nothing, and it has nothing from before.
    Nothing,
    /// It knows that there is none.
    Absent,
    /// It has this version; `None`: one that we do not know.
    Version(Option<Version>),
}

#[derive(Debug)]
struct Sent {
    nonce: String,
    names: Vec<(String, Told)>,
}

/// Why a client does not take what it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The resource.
    pub name: String,
    /// What the client said, at most [`Rejection::MAX_REASON`] bytes of it.
    pub reason: String,
    /// When it first said so of this version.
    pub since: SystemTime,
}

impl Rejection {
    /// Most bytes that are kept of a reason.
    pub const MAX_REASON: usize = 1024;
}

/// How it stands with a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The type URL.
    pub url: String,
    /// Whether it asks for all that its node depends on.
    pub wildcard: bool,
    /// Names it asks for.
    pub names: usize,
    /// Those of which it is not yet known whether they exist.
    pub pending: usize,
    /// Answers that it has neither taken nor rejected yet.
    pub unanswered: usize,
    /// Answers since the stream began.
    pub sent: u64,
    /// What it does not take.
    pub rejected: Vec<Arc<Rejection>>,
    /// Whether it has, or has rejected, all that it asks for.
    pub complete: bool,
}

impl Interest {
    pub(super) fn new(url: &str) -> Self {
        Self {
            kind: Type::from_url(url),
            url: url.into(),
            heard: false,
            wildcard: false,
            names: BTreeMap::new(),
            due: BTreeSet::new(),
            pending: BTreeSet::new(),
            gone: BTreeSet::new(),
            owed: false,
            in_flight: VecDeque::new(),
            rejected: BTreeMap::new(),
            sent: 0,
            newest: None,
            before: None,
        }
    }

    pub(super) const fn kind(&self) -> Option<Type> {
        self.kind
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Where it stands among the others: types of ours in the order of their use, then the rest.
    pub(super) fn order(&self) -> usize {
        let place = |kind| Type::ALL.iter().position(|known| *known == kind);
        self.kind.and_then(place).unwrap_or(Type::ALL.len())
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Whether a client asks for all of this type by asking for nothing of it: for clusters, and for
    /// what others have where we have nothing, as listeners.
    pub(super) const fn may_ask_for_all(&self) -> bool {
        matches!(self.kind, None | Some(Type::Cluster))
    }

    pub(super) const fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.names.values().filter_map(|name| name.service.as_ref())
    }

    pub(super) fn service(&self, name: &str) -> Option<&ServiceKey> {
        self.names.get(name)?.service.as_ref()
    }

    pub(super) fn told(&self, name: &str) -> Told {
        self.names.get(name).map_or(Told::Nothing, |name| name.told)
    }

    /// What the client has for certain of what it was told: it rejected none of it, nor has yet to
    /// say whether it does.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&str, Told)> {
        let open = self.in_flight.iter().flat_map(|sent| &sent.names);
        let open: HashSet<&str> = open.map(|(name, _)| &**name).collect();
        let taken = move |name: &str| !open.contains(name) && !self.rejected.contains_key(name);
        let names = self.names.iter();
        names
            .filter(move |(name, _)| taken(name))
            .map(|(name, known)| (name.as_str(), known.told))
    }

    /// Whether the client asked for it by its name, so that even its absence has to be said.
    pub(super) fn is_by_name(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|name| name.by_name)
    }

    /// Subscribes to a name, whose state is told even if it was before. The service, if that is one
    /// name more of it.
    pub(super) fn subscribe(&mut self, name: &str) -> Option<ServiceKey> {
        self.due.insert(name.into());
        if let Some(known) = self.names.get_mut(name) {
            known.by_name = true;
            known.told = Told::Nothing;
            return None;
        }
        let known = Name {
            service: self.service_of(name),
            by_name: true,
            by_wildcard: false,
            told: Told::Nothing,
        };
        let service = known.service.clone();
        self.names.insert(name.into(), known);
        service
    }

    /// Ends a subscription by name. The service, if that is one name less of it.
    pub(super) fn unsubscribe(&mut self, name: &str) -> Option<ServiceKey> {
        let known = self.names.get_mut(name)?;
        known.by_name = false;
        if known.by_wildcard {
            // The client may have let go of it, and has to hear that it is still subscribed to it.
            known.told = Told::Nothing;
            self.due.insert(name.into());
            return None;
        }
        self.forget(name)
    }

    /// Whether that changes anything.
    pub(super) const fn set_wildcard(&mut self, wanted: bool) -> bool {
        let changed = self.wildcard != wanted;
        self.wildcard = wanted;
        if changed && wanted {
            self.owed = true;
        }
        changed
    }

    /// Makes the wildcard, if there is one, stand for exactly these. The services that there is one
    /// name more of, and those that there is one name less of.
    pub(super) fn spread(
        &mut self,
        services: &BTreeSet<ServiceKey>,
    ) -> (Vec<ServiceKey>, Vec<ServiceKey>) {
        let name_of: fn(&ServiceKey) -> String = match self.kind {
            Some(Type::Policy) => names::policy,
            Some(Type::Cluster | Type::Endpoints) => names::cluster,
            // A table has the name that its reader gives it, and other types have nothing of ours.
            Some(Type::Routes) | None => return (Vec::new(), Vec::new()),
        };
        let meant: BTreeMap<String, &ServiceKey> = match self.wildcard {
            true => services.iter().map(|key| (name_of(key), key)).collect(),
            false => BTreeMap::new(),
        };
        let mut left = Vec::new();
        let stale: Vec<String> = self
            .names
            .iter()
            .filter(|(name, known)| known.by_wildcard && !meant.contains_key(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in stale {
            let known = self.names.get_mut(&name);
            let known = known.expect("a name that was just found");
            known.by_wildcard = false;
            if !known.by_name {
                let held = matches!(known.told, Told::Version(_));
                left.extend(self.forget(&name));
                if held && self.wildcard {
                    self.gone.insert(name);
                }
            }
        }
        let mut added = Vec::new();
        for (name, service) in meant {
            self.gone.remove(&name);
            if let Some(known) = self.names.get_mut(&name) {
                known.by_wildcard = true;
                continue;
            }
            self.due.insert(name.clone());
            let known = Name {
                service: Some(service.clone()),
                by_name: false,
                by_wildcard: true,
                told: Told::Nothing,
            };
            self.names.insert(name, known);
            added.push(service.clone());
        }
        (added, left)
    }

    /// The client has this version of `name` from before this stream.
    pub(super) fn held(&mut self, name: String, version: Option<Version>) {
        match self.names.get_mut(&name) {
            Some(known) => known.told = Told::Version(version),
            // It has to let go of what its wildcard does not mean.
            None if self.wildcard => {
                self.gone.insert(name);
            }
            None => {}
        }
    }

    /// The client may have something under each of its names from before this stream.
    pub(super) fn all_held(&mut self) {
        for known in self.names.values_mut() {
            known.told = Told::Version(None);
        }
    }

    pub(super) fn service_changed(&mut self, service: &ServiceKey) {
        let name = match self.kind {
            Some(Type::Policy) => names::policy(service),
            Some(Type::Cluster | Type::Endpoints) => names::cluster(service),
            Some(Type::Routes) | None => return,
        };
        if self.names.contains_key(&name) {
            self.pending.remove(&name);
            self.due.insert(name);
        }
    }

    pub(super) fn all_changed(&mut self) {
        self.pending.clear();
        self.due = self.names.keys().cloned().collect();
    }

    pub(super) fn is_due(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT
            && (!self.due.is_empty()
                || !self.gone.is_empty()
                || (self.owed && self.pending.is_empty()))
    }

    /// Takes out the next name that may have to be told.
    pub(super) fn next_due(&mut self) -> Option<String> {
        self.due.pop_first()
    }

    /// `name` is for a later answer: there was no room in this one.
    pub(super) fn put_off(&mut self, name: String) {
        self.due.insert(name);
    }

    /// Nothing can be said of `name` until it changes.
    pub(super) fn wait_for(&mut self, name: String) {
        self.pending.insert(name);
    }

    /// Whatever waits is looked up anew.
    pub(super) fn wait_no_longer(&mut self) {
        self.due.append(&mut self.pending);
    }

    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.pending.contains(name)
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().map(String::as_str)
    }

    /// Takes out what the client has to let go, at most `most` names.
    pub(super) fn take_gone(&mut self, most: usize) -> Vec<String> {
        let first = (0..most).map_while(|_| self.gone.pop_first());
        first.collect()
    }

    /// Forgets what the client has to let go, and says whether there was any.
    pub(super) fn let_go(&mut self) -> bool {
        !std::mem::take(&mut self.gone).is_empty()
    }

    /// An answer has to follow, even if there is nothing to say.
    pub(super) const fn owe(&mut self) {
        self.owed = true;
    }

    pub(super) const fn is_owed(&self) -> bool {
        self.owed
    }

    /// An answer leaves, which says this of these names.
    pub(super) fn sent(&mut self, nonce: String, names: Vec<(String, Told)>) {
        for (name, told) in &names {
            self.tell(name, *told);
        }
        self.owed = false;
        self.before = None;
        self.sent += 1;
        self.newest = Some(nonce.clone());
        self.in_flight.push_back(Sent { nonce, names });
    }

    /// The client has all of this from before the stream, so that there is nothing to send.
    pub(super) fn has_already(&mut self, names: Vec<(String, Told)>) {
        for (name, told) in &names {
            self.tell(name, *told);
        }
        self.owed = false;
        self.before = None;
    }

    fn tell(&mut self, name: &str, told: Told) {
        if let Some(known) = self.names.get_mut(name) {
            known.told = told;
        }
    }

    /// Whether `nonce` is of an answer that another one followed, or of none.
    pub(super) fn is_stale(&self, nonce: &str) -> bool {
        let newest = self.newest.as_ref();
        !nonce.is_empty() && newest.is_some_and(|newest| newest != nonce)
    }

    pub(super) const fn has_sent(&self) -> bool {
        self.newest.is_some()
    }

    /// The client takes or rejects an answer. Nothing happens where it is of another stream. Those
    /// before it were read before it, and are not waited for any longer.
    pub(super) fn judged(&mut self, verdict: &Verdict<'_>) {
        let Some(at) = self
            .in_flight
            .iter()
            .position(|sent| sent.nonce == verdict.nonce)
        else {
            return;
        };
        let judged = self.in_flight.drain(..=at).next_back();
        let judged = judged.expect("the one that was just found");
        let sent: HashSet<&str> = judged.names.iter().map(|(name, _)| &**name).collect();
        let words = verdict.error.into_iter().flat_map(words);
        let named: HashSet<&str> = words.filter(|word| sent.contains(word)).collect();
        for (name, told) in &judged.names {
            let current = self
                .names
                .get(name)
                .is_some_and(|known| known.told == *told);
            // Who names what it rejects has taken the rest; who names nothing may have taken none.
            let meant = named.is_empty() || named.contains(&**name);
            match verdict.error.filter(|_| meant) {
                Some(error) if current => self.reject(name.clone(), error, verdict.now),
                // A newer one of it is on its way.
                Some(_) => {}
                None => {
                    self.rejected.remove(name);
                }
            }
        }
    }

    fn reject(&mut self, name: String, reason: &str, now: SystemTime) {
        let rejection = Rejection {
            name: name.clone(),
            reason: reason[..reason.floor_char_boundary(Rejection::MAX_REASON)].into(),
            since: now,
        };
        self.rejected.insert(name, rejection.into());
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            url: self.url.clone(),
            wildcard: self.wildcard,
            names: self.names.len(),
            pending: self.pending.len(),
            unanswered: self.in_flight.len(),
            sent: self.sent,
            rejected: self.rejected.values().cloned().collect(),
            complete: self.due.is_empty()
                && self.gone.is_empty()
                && self.pending.is_empty()
                && self.in_flight.is_empty(),
        }
    }

    /// What a name stands for. A table of routes is of no service of its own.
    fn service_of(&self, name: &str) -> Option<ServiceKey> {
        match self.kind? {
            Type::Routes => None,
            kind => names::service(kind, name).ok(),
        }
    }

    fn forget(&mut self, name: &str) -> Option<ServiceKey> {
        self.due.remove(name);
        self.pending.remove(name);
        self.rejected.remove(name);
        self.names.remove(name)?.service
    }
}

/// Whatever in a text may be the name of a resource: without quotes, and without the stop or colon
/// that a sentence ends with.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`,;()[]{}".contains(c));
    words.flat_map(|word| [word, word.trim_end_matches(['.', ':'])])
}
