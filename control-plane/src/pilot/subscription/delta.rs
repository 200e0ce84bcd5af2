//! The incremental form: requests say what changes in what is asked for, answers what changed.

use std::time::SystemTime;

use mesh_proto::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};

use super::{
    Error, Known, MAX_BYTES, Subscription, Verdict,
    interest::{Interest, Told},
    look_up,
};
use crate::pilot::resources::Found;

impl Subscription {
    /// Takes over a request.
    ///
    /// What it says of an answer and what it asks for are apart: a rejection, and even one of an
    /// answer long past, subscribes and unsubscribes all the same.
    ///
    /// # Errors
    /// It asks for more than one client may. The stream is to be ended.
    pub fn delta_request(
        &mut self,
        now: SystemTime,
        request: DeltaDiscoveryRequest,
    ) -> Result<(), Error> {
        self.meet(request.node)?;
        let at = self.interest(&request.type_url)?;
        let interest = &mut self.interests[at];
        let first = !std::mem::replace(&mut interest.heard, true);
        if !first {
            interest.judged(&Verdict {
                nonce: &request.response_nonce,
                error: request
                    .error_detail
                    .as_ref()
                    .map(|error| error.message.as_str()),
                now,
            });
        }
        let named = &request.resource_names_subscribe;
        // Clients older than the star ask for all by asking for none.
        let all = first && named.is_empty() && interest.may_ask_for_all();
        if all || named.iter().any(|name| name == STAR) {
            self.wildcard(at, true);
        }
        for name in named.iter().filter(|name| *name != STAR) {
            self.subscribe(at, name)?;
        }
        for name in &request.resource_names_unsubscribe {
            match name.as_str() {
                STAR => self.wildcard(at, false),
                name => self.unsubscribe(at, name),
            }
        }
        if first && !request.initial_resource_versions.is_empty() {
            // It wants to know whether that is so still, even where it is.
            self.interests[at].owe();
            for (name, version) in request.initial_resource_versions {
                self.interests[at].held(name, version.parse().ok());
            }
        }
        self.reroute();
        Ok(())
    }

    /// The next answer, if there is one: of one type, and of bounded size. To be asked for when the
    /// client takes it, and again until there is none.
    pub fn delta(&mut self, known: Known<'_>) -> Option<DeltaDiscoveryResponse> {
        for at in 0..self.interests.len() {
            let interest = &mut self.interests[at];
            if !interest.is_due() {
                continue;
            }
            let mut answer = Answer::default();
            while answer.has_room()
                && let Some(name) = interest.next_due()
            {
                let found = look_up(interest, &name, &self.routed, known);
                if !answer.takes(&found) {
                    interest.put_off(name);
                    break;
                }
                answer.add(interest, name, found);
            }
            answer.removed.extend(interest.take_gone(MAX_RESOURCES));
            let owed = interest.is_owed() && interest.pending().next().is_none();
            if answer.is_empty() && !owed {
                continue;
            }
            let nonce = self.next_nonce();
            let interest = &mut self.interests[at];
            interest.sent(nonce.clone(), answer.told);
            return Some(DeltaDiscoveryResponse {
                resources: answer.resources,
                removed_resources: answer.removed,
                type_url: interest.url().into(),
                nonce,
                ..Default::default()
            });
        }
        None
    }
}

#[derive(Debug, Default)]
struct Answer {
    resources: Vec<Resource>,
    removed: Vec<String>,
    told: Vec<(String, Told)>,
    bytes: usize,
}

impl Answer {
    fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES && self.told.len() < MAX_RESOURCES
    }

    /// Whether it does not become too long. What is long by itself has an answer of its own.
    fn takes(&self, found: &Found) -> bool {
        self.told.is_empty() || self.bytes + found.bytes() <= MAX_BYTES
    }

    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }

    /// Says what `name` is, if the client does not know it.
    fn add(&mut self, interest: &mut Interest, name: String, found: Found) {
        let told = interest.told(&name);
        match found {
            Found::Pending => interest.wait_for(name),
            Found::Absent => {
                // A wildcard means what there is: only what was there has to go.
                let news = match told {
                    Told::Nothing => interest.is_by_name(&name),
                    Told::Version(_) => true,
                    Told::Absent => false,
                };
                if news {
                    self.bytes += name.len();
                    self.removed.push(name.clone());
                    self.told.push((name, Told::Absent));
                }
            }
            Found::Present(resource) => {
                let version = Told::Version(Some(resource.version));
                if told != version {
                    self.bytes += name.len() + resource.any.value.len();
                    self.resources.push(Resource {
                        name: name.clone(),
                        version: resource.version.to_string(),
                        resource: Some(resource.any.clone()),
                        ..Default::default()
                    });
                    self.told.push((name, version));
                }
            }
        }
    }
}

/// Stands for everything that the client's node depends on.
pub(super) const STAR: &str = "*";

/// Resources after which an answer is long enough.
const MAX_RESOURCES: usize = 1000;
