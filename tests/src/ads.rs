//! A scripted control plane: delta ADS over gRPC, with services that a test sets.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use dubbo_proto::key::ServiceKey;
use mesh_proto::{
    names::{self, Type},
    xds::{
        cluster::{Cluster, cluster},
        core::{self, address, socket_address::PortSpecifier},
        discovery::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            Resource,
            aggregated_discovery_service_server::{
                AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
            },
        },
        endpoint::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint},
        protobuf::Any,
    },
};
use prost::Message;
use tokio::{
    runtime::Runtime,
    sync::{mpsc, watch},
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use crate::wait::until;

/// A control plane that serves until it is dropped.
#[derive(Debug)]
pub struct Ads {
    /// Where it listens.
    pub address: SocketAddr,
    services: watch::Sender<Services>,
    heard: Arc<Mutex<Vec<DeltaDiscoveryRequest>>>,
    sent: Arc<Mutex<Vec<String>>>,
    runtime: Option<Runtime>,
}

/// What there is of each service: `None` is not known yet, and so nothing is said of it.
type Services = BTreeMap<String, Option<Offer>>;

/// One service.
#[derive(Debug, Clone)]
struct Offer {
    version: u64,
    addresses: Vec<SocketAddr>,
    /// What is sent is no resource.
    broken: bool,
}

impl Ads {
    /// A control plane on a port of its own.
    ///
    /// # Panics
    /// If there is no port to be had.
    #[must_use]
    pub fn start() -> Self {
        Self::at(([127, 0, 0, 1], 0).into())
    }

    /// One that says nothing, not even that it took a stream, before it has something to tell.
    ///
    /// # Panics
    /// If there is no port to be had.
    #[must_use]
    pub fn reticent() -> Self {
        Self::begin(([127, 0, 0, 1], 0).into(), true)
    }

    /// A control plane at this address.
    ///
    /// # Panics
    /// If it is taken.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self::begin(address, false)
    }

    fn begin(address: SocketAddr, reticent: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (services, _) = watch::channel(Services::new());
        let (heard, sent) = (Arc::default(), Arc::default());
        let listener = until("a port", Duration::from_secs(10), || {
            runtime
                .block_on(tokio::net::TcpListener::bind(address))
                .ok()
        });
        let address = listener.local_addr().expect("an address");
        let service = Service {
            services: services.clone(),
            heard: Arc::clone(&heard),
            sent: Arc::clone(&sent),
            reticent,
        };
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = Server::builder().add_service(AggregatedDiscoveryServiceServer::new(service));
        runtime.spawn(server.serve_with_incoming(incoming));
        Self {
            address,
            services,
            heard,
            sent,
            runtime: Some(runtime),
        }
    }

    /// A service is provided at these addresses from now on, in this version.
    pub fn set(&self, key: &str, version: u64, addresses: &[SocketAddr]) {
        let offer = Offer {
            version,
            addresses: addresses.to_vec(),
            broken: false,
        };
        self.services
            .send_modify(|services| drop(services.insert(key.into(), Some(offer))));
    }

    /// What is sent of a service from now on is no resource.
    pub fn break_it(&self, key: &str, version: u64) {
        let offer = Offer {
            version,
            addresses: vec![],
            broken: true,
        };
        self.services
            .send_modify(|services| drop(services.insert(key.into(), Some(offer))));
    }

    /// Nothing is said of a service until something is known.
    pub fn silent(&self, key: &str) {
        self.services
            .send_modify(|services| drop(services.insert(key.into(), None)));
    }

    /// Every message that was received.
    ///
    /// # Panics
    /// If a stream failed.
    #[must_use]
    pub fn heard(&self) -> Vec<DeltaDiscoveryRequest> {
        self.heard.lock().expect("no stream failed").clone()
    }

    /// The names of all resources that were sent, in order.
    ///
    /// # Panics
    /// If a stream failed.
    #[must_use]
    pub fn sent(&self) -> Vec<String> {
        self.sent.lock().expect("no stream failed").clone()
    }
}

impl Drop for Ads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug)]
struct Service {
    services: watch::Sender<Services>,
    heard: Arc<Mutex<Vec<DeltaDiscoveryRequest>>>,
    sent: Arc<Mutex<Vec<String>>>,
    reticent: bool,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta only"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let mut requests = request.into_inner();
        let (answer, answers) = mpsc::channel(16);
        let mut services = self.services.subscribe();
        let (heard, sent) = (Arc::clone(&self.heard), Arc::clone(&self.sent));
        tokio::spawn(async move {
            // What the client has of each resource it wants: a version, or nothing.
            let mut wanted: HashMap<(Type, String), Option<String>> = HashMap::new();
            loop {
                tokio::select! {
                    request = requests.message() => {
                        let Ok(Some(request)) = request else { return };
                        let Some(kind) = Type::from_url(&request.type_url) else { return };
                        let known = &request.initial_resource_versions;
                        for name in &request.resource_names_subscribe {
                            let has = known.get(name).cloned();
                            wanted.insert((kind, name.clone()), has);
                        }
                        for name in &request.resource_names_unsubscribe {
                            wanted.remove(&(kind, name.clone()));
                        }
                        heard.lock().expect("no stream failed").push(request);
                    }
                    Ok(()) = services.changed() => {}
                }
                let now = services.borrow_and_update().clone();
                for response in news(&now, &mut wanted) {
                    let names = response.resources.iter().map(|r| r.name.clone());
                    sent.lock().expect("no stream failed").extend(names);
                    if answer.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        });
        let mut answers = ReceiverStream::new(answers).peekable();
        if self.reticent {
            answers.peek().await;
        }
        Ok(Response::new(Box::pin(answers)))
    }
}

/// What is to be told of what is wanted.
fn news(
    services: &Services,
    wanted: &mut HashMap<(Type, String), Option<String>>,
) -> Vec<DeltaDiscoveryResponse> {
    let mut responses = Vec::new();
    for kind in [Type::Policy, Type::Cluster, Type::Endpoints] {
        let mut response = DeltaDiscoveryResponse {
            type_url: kind.url().into(),
            nonce: "nonce".into(),
            ..DeltaDiscoveryResponse::default()
        };
        for ((_, name), has) in wanted.iter_mut().filter(|((k, _), _)| *k == kind) {
            let key = names::service(kind, name).expect("a name of a service");
            let version = match services.get(&key.to_string()) {
                Some(None) => continue,
                Some(Some(_)) if kind == Type::Policy => ABSENT.to_owned(),
                Some(Some(offer)) => offer.version.to_string(),
                None => ABSENT.to_owned(),
            };
            if has.as_ref() == Some(&version) {
                continue;
            }
            match services.get(&key.to_string()) {
                Some(Some(offer)) if kind != Type::Policy => response.resources.push(Resource {
                    name: name.clone(),
                    version: version.clone(),
                    resource: Some(resource(kind, &key, offer)),
                    ..Resource::default()
                }),
                _ => response.removed_resources.push(name.clone()),
            }
            *has = Some(version);
        }
        if !(response.resources.is_empty() && response.removed_resources.is_empty()) {
            responses.push(response);
        }
    }
    responses
}

fn resource(kind: Type, key: &ServiceKey, offer: &Offer) -> Any {
    let value = match kind {
        _ if offer.broken => vec![0xff],
        Type::Cluster => {
            let eds = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
            let cluster = Cluster {
                name: names::cluster(key),
                cluster_discovery_type: Some(eds),
                ..Cluster::default()
            };
            cluster.encode_to_vec()
        }
        _ => load(key, &offer.addresses).encode_to_vec(),
    };
    Any {
        type_url: kind.url().into(),
        value,
    }
}

fn load(key: &ServiceKey, addresses: &[SocketAddr]) -> ClusterLoadAssignment {
    let one = |address: &SocketAddr| {
        let socket = core::SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
            ..core::SocketAddress::default()
        };
        let endpoint = Endpoint {
            address: Some(core::Address {
                address: Some(address::Address::SocketAddress(socket)),
            }),
            ..Endpoint::default()
        };
        LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
            ..LbEndpoint::default()
        }
    };
    ClusterLoadAssignment {
        cluster_name: names::cluster(key),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: addresses.iter().map(one).collect(),
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    }
}

/// The version of what is not there.
const ABSENT: &str = "absent";
