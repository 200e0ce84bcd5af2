//! `/v1/watch`: a service as server-sent events.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::Query,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;

use super::{
    From, Refusal, State,
    instances::{Shown, Wanted},
    json,
};
use crate::registry::{Change, Discover, Inbox};

/// `GET`: an event `instances` with the whole list, now and after each change.
///
/// A watcher that reads slowly gets the newest list when it reads on, not those between.
pub(super) async fn watch(
    From(state): From<State>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let service = wanted.key()?;
    let limit = MAX_WATCHERS;
    let place = Arc::clone(&state.watchers).try_acquire_owned();
    let place = place.map_err(|_| Refusal::Watchers { limit })?;
    let inbox = Inbox::default();
    let subscription = state.registry.subscribe(&service, &inbox);
    let watching = (inbox, subscription, place);
    let events = stream::unfold(watching, async |watching| {
        let (_, change) = watching.0.next().await;
        Some((Ok::<_, Infallible>(event(&change)), watching))
    });
    // Who is gone is noticed when something is sent.
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response())
}

fn event(change: &Change) -> Event {
    let instances = match change {
        Change::Set(instances) => &instances[..],
        Change::Gone => &[],
    };
    let shown = instances.iter().map(|instance| Shown::new(instance, None));
    let list = json!({ "instances": shown.collect::<Vec<_>>() });
    Event::default().event("instances").data(list.to_string())
}

/// Most that may watch at a time; each holds a connection.
pub(super) const MAX_WATCHERS: usize = 64;
