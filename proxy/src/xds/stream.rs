//! The stream to a control plane: connected again whenever it is lost, to the next server in turn,
//! after pauses that grow and differ, so that a fleet does not come back at once.

use std::{error::Error, net::SocketAddr, time::Duration};

use mesh_proto::xds::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
    aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{metadata::MetadataValue, transport::Endpoint};

use crate::config::{Xds, fixed};

/// What happens to the stream.
#[derive(Debug)]
pub(super) enum Event {
    /// A stream is asked for: messages for the server go there.
    Begun(mpsc::Sender<DeltaDiscoveryRequest>),
    /// The server took it.
    Open(SocketAddr),
    /// The server sent a message.
    Received(Box<DeltaDiscoveryResponse>),
    /// The stream ended, or there was none to be had.
    Down(SocketAddr, String),
}

/// Keeps a stream to one of the servers, until nobody receives what happens to it. A message of
/// more than `max_message` bytes ends the stream.
///
/// Cancel safe: the stream is closed.
pub(super) async fn keep(xds: Xds, max_message: usize, events: mpsc::Sender<Event>) {
    let mut pauses = Pauses::new();
    for server in xds.servers.iter().copied().cycle() {
        let begun = Instant::now();
        let cause = match serve(server, &xds, max_message, &events).await {
            Ok(()) => "the server ended the stream".into(),
            Err(cause) => cause,
        };
        if events.send(Event::Down(server, cause)).await.is_err() {
            return;
        }
        let pause = pauses.after(begun.elapsed(), fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = events.closed() => return,
        }
    }
}

/// Pauses that grow until a stream lives for as long as the longest of them. What it brings does not
/// count: a server may say nothing for long, and another the same again and again before it fails.
#[derive(Debug)]
struct Pauses {
    next: Duration,
}

impl Pauses {
    const fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    /// The pause after a stream that lived so long: half of it at least, the rest by chance, which is
    /// from 0 to 1.
    fn after(&mut self, lived: Duration, chance: f64) -> Duration {
        if lived >= LONGEST_PAUSE {
            self.next = FIRST_PAUSE;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause.mul_f64(0.5 + chance / 2.0)
    }
}

/// One stream, from its beginning to its end.
async fn serve(
    server: SocketAddr,
    xds: &Xds,
    max_message: usize,
    events: &mpsc::Sender<Event>,
) -> Result<(), String> {
    let endpoint = Endpoint::from_shared(format!("http://{server}"))
        .map_err(|error| causes(&error))?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(BEAT)
        .keep_alive_timeout(SILENCE)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect().await.map_err(|error| causes(&error))?;
    let mut client =
        AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(max_message);
    let (sender, requests) = mpsc::channel(fixed::REQUESTS);
    if events.send(Event::Begun(sender)).await.is_err() {
        return Ok(());
    }
    let mut stream = tonic::Request::new(ReceiverStream::new(requests));
    if let Some(token) = &xds.token {
        let bearer = MetadataValue::try_from(token.bearer()).map_err(|error| causes(&error))?;
        stream.metadata_mut().insert(AUTHORIZATION, bearer);
    }
    // Some servers say nothing before they have something to tell, which may be never: one that is
    // gone is found by the beats of the connection.
    let opened = client.delta_aggregated_resources(stream).await;
    let mut answers = opened.map_err(|status| said(&status))?.into_inner();
    if events.send(Event::Open(server)).await.is_err() {
        return Ok(());
    }
    loop {
        match answers.message().await {
            Ok(Some(message)) => {
                if events
                    .send(Event::Received(Box::new(message)))
                    .await
                    .is_err()
                {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(status) => return Err(said(&status)),
        }
    }
}

fn said(status: &tonic::Status) -> String {
    let text = match status.source() {
        // The message says that something broke; this says what.
        Some(source) => causes(source),
        None => status.message().to_owned(),
    };
    let text: String = text.chars().take(200).collect();
    format!("{:?}: {text}", status.code())
}

/// An error with all that it comes from.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The key that a token is borne under.
const AUTHORIZATION: &str = "authorization";
/// Time to connect.
const CONNECT: Duration = Duration::from_secs(3);
/// Time between two looks whether the server is there.
const BEAT: Duration = Duration::from_secs(10);
/// Time for it to answer them.
const SILENCE: Duration = Duration::from_secs(10);
/// Pause before the first new try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_stream_lives() {
        let mut pauses = Pauses::new();
        let mut after = |lived| pauses.after(lived, 1.0);
        let short = LONGEST_PAUSE - Duration::from_millis(1);
        let grown: Vec<_> = (0..8).map(|_| after(short).as_millis()).collect();
        assert_eq!(grown, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(after(LONGEST_PAUSE), FIRST_PAUSE);
        assert_eq!(after(short), FIRST_PAUSE * 2);
        assert_eq!(Pauses::new().after(short, 0.0), FIRST_PAUSE / 2);
    }
}
