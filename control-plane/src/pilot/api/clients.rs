//! Who is connected, and how it stands with each: from copies, so that nobody who looks is in the
//! way of those who are served.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::Query;
use serde::Deserialize;

use super::{From, Json, State, Value, json};
use crate::pilot::{
    clients::Client,
    subscription::{Rejection, Summary},
};

/// Which clients are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Asked {
    /// The one node, if given.
    node: Option<String>,
    /// The most that are listed.
    limit: usize,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            node: None,
            limit: LISTED,
        }
    }
}

pub(super) async fn list(From(state): From<State>, Query(asked): Query<Asked>) -> Json<Value> {
    let clients = state.clients.all();
    let wanted = |client: &Client| {
        asked
            .node
            .as_ref()
            .is_none_or(|node| *node == client.node.id)
    };
    let wanted = clients.iter().filter(|client| wanted(client));
    let listed: Vec<_> = wanted
        .take(asked.limit)
        .map(|client| show(client))
        .collect();
    Json(json!({ "connected": clients.len(), "clients": listed }))
}

/// How many there are, and what they do not take, the first of it in full.
pub(super) fn summary(state: &State) -> Value {
    let clients = state.clients.all();
    let complete = clients.iter().filter(|client| client.is_complete()).count();
    let rejected = || {
        clients.iter().flat_map(|client| {
            client.types.iter().flat_map(move |summary| {
                let of_type = summary.rejected.iter();
                of_type.map(move |rejection| (client, summary, rejection))
            })
        })
    };
    let first = rejected().take(SHOWN).map(|(client, summary, rejection)| {
        let mut shown = refused(rejection);
        shown["node"] = json!(client.node.id);
        shown["type"] = json!(summary.url);
        shown
    });
    json!({
        "connected": clients.len(),
        "complete": complete,
        "rejections": rejected().count(),
        "rejected": first.collect::<Vec<_>>(),
    })
}

fn show(client: &Client) -> Value {
    json!({
        "node": client.node.id,
        "cluster": client.node.cluster,
        "peer": client.peer,
        "protocol": client.protocol.as_str(),
        "since": seconds(client.since),
        "services": client.node.services.len(),
        "complete": client.is_complete(),
        "types": client.types.iter().map(standing).collect::<Vec<_>>(),
    })
}

fn standing(summary: &Summary) -> Value {
    json!({
        "type": summary.url,
        "wildcard": summary.wildcard,
        "names": summary.names,
        "pending": summary.pending,
        "unanswered": summary.unanswered,
        "sent": summary.sent,
        "complete": summary.complete,
        "rejected": summary.rejected.iter().map(|rejection| refused(rejection)).collect::<Vec<_>>(),
    })
}

fn refused(rejection: &Rejection) -> Value {
    json!({
        "name": rejection.name,
        "reason": rejection.reason,
        "since": seconds(rejection.since),
    })
}

/// Of the Unix epoch.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Clients that are listed where nobody says how many.
const LISTED: usize = 1000;
/// Rejections that the status shows in full.
const SHOWN: usize = 100;
