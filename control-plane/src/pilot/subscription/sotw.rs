//! The state of the world: each request names all that is asked for of a type.
//!
//! An answer of endpoints or routes names what changed. One of clusters, or of any other type, names
//! all that there is: what is missing does not exist. So it never leaves out what is pending while
//! the client may have it, and the first one of a stream leaves out nothing that is pending. That a
//! service has no instances is said by an empty list of endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use mesh_proto::{
    digest::Digest,
    names::Type,
    xds::discovery::{DiscoveryRequest, DiscoveryResponse},
};

use super::{
    Error, Known, MAX_BYTES, Subscription, Verdict,
    delta::STAR,
    interest::{Interest, Told},
    look_up,
};
use crate::pilot::resources::{Found, Resource, Version, none};

impl Subscription {
    /// Takes over a request. What it asks for does not count where it answers another than the
    /// newest answer of its type: its client has yet to read that one, and says it anew then.
    ///
    /// # Errors
    /// It asks for more than one client may. The stream is to be ended.
    pub fn sotw_request(
        &mut self,
        now: SystemTime,
        request: DiscoveryRequest,
    ) -> Result<(), Error> {
        self.meet(request.node)?;
        let at = self.interest(&request.type_url)?;
        let interest = &mut self.interests[at];
        let first = !std::mem::replace(&mut interest.heard, true);
        let nonce = &request.response_nonce;
        if first {
            interest.before = request.version_info.parse().ok();
        } else {
            let error = request.error_detail.as_ref();
            interest.judged(&Verdict {
                nonce,
                error: error.map(|error| error.message.as_str()),
                now,
            });
            if interest.is_stale(nonce) {
                return Ok(());
            }
        }
        let named: BTreeSet<&str> = request.resource_names.iter().map(String::as_str).collect();
        // All is asked for by asking for none, until something was asked for by name.
        let all =
            named.is_empty() && interest.may_ask_for_all() && (first || interest.is_wildcard());
        self.wildcard(at, all || named.contains(STAR));
        self.name_exactly(at, &named)?;
        if first && !request.version_info.is_empty() {
            self.interests[at].all_held();
        }
        self.reroute();
        Ok(())
    }

    /// The next answer, if there is one: of one type. To be asked for when the client takes it, and
    /// again until there is none.
    pub fn sotw(&mut self, known: Known<'_>) -> Option<DiscoveryResponse> {
        for at in 0..self.interests.len() {
            let interest = &mut self.interests[at];
            if !interest.is_due() {
                continue;
            }
            let look_up =
                |interest: &Interest, name: &str| look_up(interest, name, &self.routed, known);
            let Some(mut answer) = Answer::of(interest, look_up) else {
                continue;
            };
            let is_held = |before| before == answer.version(interest);
            if interest.before.is_some_and(is_held) {
                // It comes back, and has all of it.
                interest.has_already(answer.told);
                continue;
            }
            for name in answer.shorten() {
                interest.put_off(name);
            }
            let version = answer.version(interest);
            let nonce = self.next_nonce();
            let interest = &mut self.interests[at];
            interest.sent(nonce.clone(), answer.told);
            let resources = answer.resources.iter().flatten();
            return Some(DiscoveryResponse {
                version_info: version.to_string(),
                resources: resources.map(|resource| resource.any.clone()).collect(),
                type_url: interest.url().into(),
                nonce,
                ..Default::default()
            });
        }
        None
    }

    /// Subscribes to these by name, and to no other.
    fn name_exactly(&mut self, at: usize, named: &BTreeSet<&str>) -> Result<(), Error> {
        let interest = &self.interests[at];
        let by_name = interest.names().filter(|name| interest.is_by_name(name));
        let by_name: BTreeSet<&str> = by_name.collect();
        let left: Vec<String> = by_name.difference(named).map(ToString::to_string).collect();
        let new: Vec<String> = named
            .difference(&by_name)
            .map(ToString::to_string)
            .collect();
        for name in left {
            self.unsubscribe(at, &name);
        }
        for name in new.iter().filter(|name| *name != STAR) {
            self.subscribe(at, name)?;
        }
        Ok(())
    }
}

struct Answer {
    /// What there is under each name that is told of.
    resources: Vec<Option<Arc<Resource>>>,
    told: Vec<(String, Told)>,
    /// Whether it names all that there is.
    whole: bool,
}

impl Answer {
    /// What the client does not know, or all if it has to be told all at once. None if there is
    /// nothing new, or nothing that can be said yet.
    fn of(interest: &mut Interest, look_up: impl Fn(&Interest, &str) -> Found) -> Option<Self> {
        let whole = !matches!(interest.kind(), Some(Type::Endpoints | Type::Routes));
        // What could not be told for the sake of others may be told now.
        interest.wait_no_longer();
        let mut news = Vec::new();
        while let Some(name) = interest.next_due() {
            match look_up(interest, &name) {
                Found::Pending => interest.wait_for(name),
                found if told(&found) == interest.told(&name) => {}
                found => news.push((name, found)),
            }
        }
        if interest.let_go() {
            // By leaving it out.
            interest.owe();
        }
        if news.is_empty() && !interest.is_owed() {
            return None;
        }
        if whole && interest.pending().next().is_some() {
            let first = !interest.has_sent();
            let may_have = |name: &str| matches!(interest.told(name), Told::Version(_));
            if first || interest.pending().any(may_have) {
                news.into_iter()
                    .for_each(|(name, _)| interest.wait_for(name));
                return None;
            }
        }
        let names = match whole {
            true => {
                let known = interest.names().filter(|name| !interest.is_pending(name));
                known
                    .map(|name| (name.to_owned(), look_up(interest, name)))
                    .collect()
            }
            false => news,
        };
        let told = names
            .iter()
            .map(|(name, found)| (name.clone(), told(found)));
        let told = told.collect();
        let resource = |(name, found): (String, Found)| match found {
            Found::Present(resource) => Some(resource),
            Found::Absent if !whole => Some(Arc::new(none(&name))),
            Found::Absent | Found::Pending => None,
        };
        Some(Self {
            resources: names.into_iter().map(resource).collect(),
            told,
            whole,
        })
    }

    /// Takes the names out that make it too long, unless it has to name all that there is. What is
    /// long by itself has an answer of its own.
    fn shorten(&mut self) -> Vec<String> {
        if self.whole {
            return Vec::new();
        }
        let mut bytes = 0;
        let fits = |resource: &&Option<Arc<Resource>>| {
            bytes += resource.as_ref().map_or(0, |one| one.any.value.len());
            bytes <= MAX_BYTES
        };
        let fit = self.resources.iter().take_while(fits).count().max(1);
        self.resources.truncate(fit);
        let rest = self.told.split_off(fit.min(self.told.len()));
        rest.into_iter().map(|(name, _)| name).collect()
    }

    /// Stands for all of the type that the client has with this answer. What it may have rejected
    /// does not count: whoever comes back with this version is told of it anew.
    fn version(&self, interest: &Interest) -> Version {
        let mut told: BTreeMap<&str, Told> = BTreeMap::new();
        if !self.whole {
            told.extend(interest.taken());
        }
        told.extend(self.told.iter().map(|(name, told)| (name.as_str(), *told)));
        let digest = told
            .into_iter()
            .fold(Digest::new(), |digest, (name, told)| {
                let digest = digest.text(name);
                match told {
                    Told::Nothing | Told::Version(None) => digest,
                    Told::Absent => digest.bytes(&[0]),
                    Told::Version(Some(version)) => digest.bytes(&version.digest().to_be_bytes()),
                }
            });
        Version::new(digest.finish())
    }
}

fn told(found: &Found) -> Told {
    match found {
        Found::Pending => Told::Nothing,
        Found::Absent => Told::Absent,
        Found::Present(resource) => Told::Version(Some(resource.version)),
    }
}
