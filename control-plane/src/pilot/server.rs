//! xDS over gRPC: one task for each stream, which moves messages between its client and its
//! [`Subscription`].
//!
//! An answer is made only when the client takes it: the channel to it has room for one. So a client
//! that does not read costs the marks of what changed, and nothing else.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use dubbo_proto::key::ServiceKey;
use futures_util::Stream;
use mesh_proto::{
    token::Token,
    xds::discovery::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{
            AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
        },
    },
};
use tokio::{
    net::TcpListener,
    sync::{broadcast::error::RecvError, mpsc},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status, Streaming,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Server,
};

use super::{
    Discovery,
    clients::{Client, Clients, Place, Protocol},
    incoming::{Incoming, places},
    resources::Resources,
    subscription::{Error, Known, Need, Subscription},
};

/// What all streams share. Clones share it too.
#[derive(Debug, Clone)]
pub struct Ads {
    discovery: Discovery,
    resources: Arc<Resources>,
    clients: Clients,
    stop: CancellationToken,
}

impl Ads {
    /// Answers from `discovery`, until `stop`: then every stream ends, so that its client turns to
    /// another pilot.
    #[must_use]
    pub fn new(discovery: Discovery, stop: CancellationToken) -> Self {
        Self {
            discovery,
            resources: Arc::default(),
            clients: Clients::default(),
            stop,
        }
    }

    /// Who is connected.
    #[must_use]
    pub const fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Serves until it is stopped: xDS and reflection, to those who bear `token` if there is one, and
    /// health, to all. Not cancel safe: streams run on for a moment.
    ///
    /// # Errors
    /// The listener fails for good.
    pub async fn serve(
        self,
        listener: TcpListener,
        token: Option<Token>,
    ) -> Result<(), tonic::transport::Error> {
        let (health, health_service) = tonic_health::server::health_reporter();
        health
            .set_serving::<AggregatedDiscoveryServiceServer<Self>>()
            .await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(mesh_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("descriptors that a test reads");
        let stop = self.stop.clone();
        let admit = Admit(token);
        let ads =
            AggregatedDiscoveryServiceServer::new(self).max_decoding_message_size(MAX_REQUEST);
        let incoming = Incoming::new(listener, places());
        Server::builder()
            // A client whose host is gone says nothing: its stream ends when it does not answer.
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .max_concurrent_streams(MAX_STREAMS)
            .add_service(InterceptedService::new(ads, admit.clone()))
            .add_service(health_service)
            .add_service(InterceptedService::new(reflection, admit))
            .serve_with_incoming_shutdown(incoming.stream(), stop.cancelled_owned())
            .await
    }

    fn stream<F: Form>(
        &self,
        request: Request<Streaming<F::Request>>,
    ) -> Result<Response<Answers<F::Response>>, Status> {
        let client = Client {
            node: Arc::default(),
            peer: request.remote_addr(),
            protocol: F::PROTOCOL,
            since: SystemTime::now(),
            types: Vec::new(),
        };
        let place = self.clients.enter(client, MAX_CLIENTS).ok_or_else(|| {
            Status::resource_exhausted(format!("{MAX_CLIENTS} clients are connected already"))
        })?;
        let (answers, taken) = mpsc::channel(1);
        let driver = Driver::<F> {
            ads: self.clone(),
            place,
            subscription: Subscription::default(),
            wants: HashMap::new(),
            requests: request.into_inner(),
            answers,
        };
        tokio::spawn(driver.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(taken))))
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        self.stream::<StateOfTheWorld>(request)
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        self.stream::<Delta>(request)
    }
}

/// Lets a request through that bears the token, or any if there is none.
#[derive(Debug, Clone)]
struct Admit(Option<Token>);

impl Interceptor for Admit {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let borne = request.metadata().get("authorization");
        let admitted = self
            .0
            .as_ref()
            .is_none_or(|token| borne.is_some_and(|value| token.is_borne_by(value.as_bytes())));
        if admitted {
            return Ok(request);
        }
        let hint = "send the token of xds.token_file as authorization: Bearer TOKEN";
        Err(Status::unauthenticated(hint))
    }
}

/// A form of the protocol: how the machine reads and writes it.
trait Form: Send + 'static {
    const PROTOCOL: Protocol;
    type Request: Send + 'static;
    type Response: Send + 'static;

    fn request(
        subscription: &mut Subscription,
        now: SystemTime,
        request: Self::Request,
    ) -> Result<(), Error>;

    fn answer(subscription: &mut Subscription, known: Known<'_>) -> Option<Self::Response>;
}

struct Delta;

impl Form for Delta {
    const PROTOCOL: Protocol = Protocol::Delta;
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn request(
        subscription: &mut Subscription,
        now: SystemTime,
        request: Self::Request,
    ) -> Result<(), Error> {
        subscription.delta_request(now, request)
    }

    fn answer(subscription: &mut Subscription, known: Known<'_>) -> Option<Self::Response> {
        subscription.delta(known)
    }
}

struct StateOfTheWorld;

impl Form for StateOfTheWorld {
    const PROTOCOL: Protocol = Protocol::StateOfTheWorld;
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn request(
        subscription: &mut Subscription,
        now: SystemTime,
        request: Self::Request,
    ) -> Result<(), Error> {
        subscription.sotw_request(now, request)
    }

    fn answer(subscription: &mut Subscription, known: Known<'_>) -> Option<Self::Response> {
        subscription.sotw(known)
    }
}

/// The task of one stream.
struct Driver<F: Form> {
    ads: Ads,
    place: Place,
    subscription: Subscription,
    wants: HashMap<ServiceKey, super::discovery::Want>,
    requests: Streaming<F::Request>,
    answers: mpsc::Sender<Result<F::Response, Status>>,
}

impl<F: Form> Driver<F> {
    async fn run(mut self) {
        // Before the catalog is read for the first time, so that no change falls between.
        let mut changes = self.ads.discovery.changes();
        let stop = self.ads.stop.clone();
        let answers = self.answers.clone();
        let end = loop {
            let due = self.subscription.is_due();
            tokio::select! {
                () = stop.cancelled() => break Status::unavailable("this pilot is stopping"),
                () = answers.closed() => return,
                request = self.requests.message() => match request {
                    Ok(Some(request)) => {
                        if let Err(error) = self.take(request) {
                            break Status::resource_exhausted(error.to_string());
                        }
                    }
                    // The client has gone, in whatever way.
                    Ok(None) | Err(_) => return,
                },
                changed = changes.recv() => match changed {
                    // Most changes are of services that others ask for.
                    Ok(services) if !self.subscription.changed(&services) => continue,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.subscription.all_changed(),
                    Err(RecvError::Closed) => break Status::unavailable("this pilot is stopping"),
                },
                permit = answers.reserve(), if due => {
                    let Ok(permit) = permit else { return };
                    let catalog = self.ads.discovery.catalog();
                    let known = Known { catalog: &catalog, resources: &self.ads.resources };
                    if let Some(answer) = F::answer(&mut self.subscription, known) {
                        permit.send(Ok(answer));
                    }
                }
            }
            self.place
                .show(self.subscription.node(), self.subscription.summary());
        };
        // For a client that does not read it will be the end of its connection.
        let _ = tokio::time::timeout(LAST_WORD, answers.send(Err(end))).await;
    }

    fn take(&mut self, request: F::Request) -> Result<(), Error> {
        F::request(&mut self.subscription, SystemTime::now(), request)?;
        while let Some(need) = self.subscription.poll_need() {
            match need {
                Need::Want(service) => {
                    let want = self.ads.discovery.want(&service);
                    self.wants.insert(service, want);
                }
                Need::Leave(service) => drop(self.wants.remove(&service)),
            }
        }
        Ok(())
    }
}

/// Most streams at a time.
pub const MAX_CLIENTS: usize = 20_000;
/// Most streams of one connection: a proxy needs one.
const MAX_STREAMS: u32 = 100;
/// Longest request: names of every service that one client may ask for.
const MAX_REQUEST: usize = 32 << 20;
/// How long a client may take to be told why its stream ends.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Silence after which a client is asked whether it is there, and how long it may take to say so.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
