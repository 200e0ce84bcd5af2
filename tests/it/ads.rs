//! Both forms of the protocol over gRPC, and what stands beside them.

use std::collections::HashMap;
use std::time::Duration;

use control_plane::pilot::clients::{Client, Protocol};
use mesh_proto::{
    names::Type,
    token::Token,
    xds::discovery::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    xds::rpc,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Streaming, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use mesh_tests::pilot::{Pilot, Scripted};

const A: &str = "outbound|a";
const B: &str = "outbound|b";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn channel(pilot: &Pilot) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", pilot.address()));
    endpoint
        .expect("an address")
        .connect()
        .await
        .expect("a pilot")
}

async fn delta(pilot: &Pilot) -> Stream<DeltaDiscoveryRequest, DeltaDiscoveryResponse> {
    open(channel(pilot).await).await
}

async fn open(channel: Channel) -> Stream<DeltaDiscoveryRequest, DeltaDiscoveryResponse> {
    let (requests, sent) = mpsc::channel(8);
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let stream = client
        .delta_aggregated_resources(ReceiverStream::new(sent))
        .await;
    Stream {
        requests,
        answers: stream.expect("a stream").into_inner(),
    }
}

/// Until the state of the one client is as wanted.
async fn await_client(pilot: &Pilot, wanted: impl Fn(&Client) -> bool) {
    let seen = async {
        while !matches!(&pilot.clients().all()[..], [client] if wanted(client)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, seen)
        .await
        .expect("a client in this state");
}

struct Stream<Request, Response> {
    requests: mpsc::Sender<Request>,
    answers: Streaming<Response>,
}

impl<Request, Response> Stream<Request, Response> {
    async fn ask(&self, request: Request) {
        self.requests.send(request).await.expect("an open stream");
    }

    async fn answer(&mut self) -> Result<Option<Response>, tonic::Status> {
        timeout(PATIENCE, self.answers.message())
            .await
            .expect("an answer in time")
    }

    async fn told(&mut self) -> Response {
        self.answer().await.expect("no error").expect("an answer")
    }
}

fn subscribe(names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: Type::Endpoints.url().into(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn names(answer: &DeltaDiscoveryResponse) -> Vec<&str> {
    answer
        .resources
        .iter()
        .map(|resource| resource.name.as_str())
        .collect()
}

#[tokio::test]
async fn a_client_of_the_incremental_form_follows_its_services() {
    let pilot = Pilot::start(Scripted::default());
    pilot.registry.provide("a", 1);
    pilot.registry.absent("b");
    let mut client = delta(&pilot).await;
    client.ask(subscribe(&[A, B, "outbound|pending"])).await;
    let first = client.told().await;
    assert_eq!(names(&first), [A]);
    // What is absent comes with it, or after it.
    let absent = match first.removed_resources.is_empty() {
        true => client.told().await.removed_resources,
        false => first.removed_resources.clone(),
    };
    assert_eq!(absent, [B]);
    pilot.registry.provide("b", 2);
    let second = client.told().await;
    assert_eq!(names(&second), [B]);
    client
        .ask(DeltaDiscoveryRequest {
            type_url: second.type_url,
            response_nonce: second.nonce,
            error_detail: Some(rpc::Status {
                message: "no such port".into(),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await;
    await_client(&pilot, |client| {
        let [endpoints] = &client.types[..] else {
            return false;
        };
        let reasons = endpoints
            .rejected
            .iter()
            .map(|rejection| &*rejection.reason);
        client.protocol == Protocol::Delta && endpoints.pending == 1 && reasons.eq(["no such port"])
    })
    .await;
    // Gone, it is forgotten, and its services leave the registry.
    drop(client);
    let forgotten = async {
        while !pilot.clients().all().is_empty() || pilot.registry.wanted("a") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, forgotten).await.expect("nobody left");
}

#[tokio::test]
async fn a_client_of_the_state_of_the_world_follows_its_services() {
    let pilot = Pilot::start(Scripted::default());
    pilot.registry.provide("a", 1);
    let (requests, sent) = mpsc::channel(8);
    let mut client = AggregatedDiscoveryServiceClient::new(channel(&pilot).await);
    let stream = client
        .stream_aggregated_resources(ReceiverStream::new(sent))
        .await;
    let mut client: Stream<DiscoveryRequest, DiscoveryResponse> = Stream {
        requests,
        answers: stream.expect("a stream").into_inner(),
    };
    let request = DiscoveryRequest {
        type_url: Type::Endpoints.url().into(),
        resource_names: vec![A.into()],
        ..Default::default()
    };
    client.ask(request.clone()).await;
    let first = client.told().await;
    assert_eq!(first.resources.len(), 1);
    client
        .ask(DiscoveryRequest {
            version_info: first.version_info.clone(),
            response_nonce: first.nonce,
            ..request
        })
        .await;
    await_client(&pilot, Client::is_complete).await;
    pilot.registry.provide("a", 2);
    assert_ne!(client.told().await.version_info, first.version_info);
}

#[tokio::test]
async fn a_thousand_changes_while_a_client_does_not_answer_become_few_answers() {
    let pilot = Pilot::start(Scripted::default());
    pilot.registry.provide("a", 1);
    let mut client = delta(&pilot).await;
    client.ask(subscribe(&[A])).await;
    let mut newest = client.told().await;
    for port in 1..=1_000 {
        pilot.registry.provide("a", port);
        tokio::task::yield_now().await;
    }
    let mut other = delta(&pilot).await;
    let mut answers = 1;
    loop {
        other.ask(subscribe(&[A])).await;
        let expected = other.told().await.resources[0].version.clone();
        if newest.resources[0].version == expected && answers > 1 {
            break;
        }
        newest = client.told().await;
        answers += 1;
    }
    assert!(answers < 20, "{answers}");
}

#[tokio::test]
async fn streams_end_when_the_pilot_stops() {
    let mut pilot = Pilot::start(Scripted::default());
    pilot.registry.provide("a", 1);
    let mut client = delta(&pilot).await;
    client.ask(subscribe(&[A])).await;
    client.told().await;
    let stopped = tokio::task::spawn_blocking(move || {
        pilot.stop();
    });
    let end = client.answer().await.expect_err("the end");
    assert_eq!(end.code(), Code::Unavailable);
    drop(client);
    let stopped = timeout(PATIENCE, stopped).await;
    stopped.expect("an end in time").expect("no panic");
}

#[tokio::test]
async fn who_asks_for_too_much_is_told_so() {
    let pilot = Pilot::start(Scripted::default());
    let mut client = delta(&pilot).await;
    let long = "x".repeat(2_000);
    client.ask(subscribe(&[&long])).await;
    let end = client.answer().await.expect_err("the end");
    assert_eq!(end.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn health_and_reflection_answer() {
    let pilot = Pilot::start(Scripted::default());
    let service = "envoy.service.discovery.v3.AggregatedDiscoveryService";
    let mut health = HealthClient::new(channel(&pilot).await);
    let request = HealthCheckRequest {
        service: service.into(),
    };
    let health = health.check(request).await.expect("an answer").into_inner();
    assert_eq!(
        health.status(),
        tonic_health::pb::health_check_response::ServingStatus::Serving
    );

    let mut reflection = ServerReflectionClient::new(channel(&pilot).await);
    let ask = |request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let requests = [
        ask(MessageRequest::FileContainingSymbol(service.into())),
        ask(MessageRequest::FileContainingSymbol(
            "dubbo.mesh.v1.ServicePolicy".into(),
        )),
    ];
    let answers = reflection
        .server_reflection_info(tokio_stream::iter(requests))
        .await;
    let mut answers = answers.expect("a stream").into_inner();
    for _ in 0..2 {
        let answer = answers
            .message()
            .await
            .expect("no error")
            .expect("an answer");
        let file = answer.message_response;
        assert!(
            matches!(file, Some(MessageResponse::FileDescriptorResponse(_))),
            "{file:?}"
        );
    }
}

#[tokio::test]
async fn who_does_not_bear_the_token_is_told_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret").expect("written");
    let token = Token::read(&file).expect("a token");
    let pilot = Pilot::guarded(Scripted::default(), Some(token.clone()));
    pilot.registry.provide("a", 1);
    for (borne, taken) in [
        (None, false),
        (Some("Bearer s3cre"), false),
        (Some(&*token.bearer()), true),
    ] {
        let channel = channel(&pilot).await;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let mut request =
            tonic::Request::new(tokio_stream::once(subscribe(&[A])).chain(tokio_stream::pending()));
        if let Some(borne) = borne {
            let value = borne.parse().expect("a value");
            request.metadata_mut().insert("authorization", value);
        }
        let stream = client.delta_aggregated_resources(request).await;
        let code = stream.as_ref().err().map(tonic::Status::code);
        assert_eq!(code, (!taken).then_some(Code::Unauthenticated), "{borne:?}");
        if let Ok(stream) = stream {
            let answer = stream.into_inner().message().await;
            assert_eq!(names(&answer.expect("no error").expect("an answer")), [A]);
        }
    }
    // Whoever looks whether it is there needs none.
    let mut health = HealthClient::new(channel(&pilot).await);
    health
        .check(HealthCheckRequest::default())
        .await
        .expect("an answer");
    let mut reflection = ServerReflectionClient::new(channel(&pilot).await);
    let listed = reflection
        .server_reflection_info(tokio_stream::empty())
        .await;
    assert_eq!(listed.expect_err("no token").code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_thousand_clients_come_go_and_come_back() {
    let connections = connections();
    let services: Vec<_> = (0..50).map(|n| format!("com.foo.Shop{n}")).collect();
    let registry = Scripted::default();
    services
        .iter()
        .for_each(|service| registry.provide(service, 1));
    let pilot = Pilot::start(registry.clone());
    let wants = |n: usize| -> Vec<String> {
        let some = (0..3).map(|k| (n + 17 * k) % services.len());
        some.map(|at| format!("outbound|{}", services[at]))
            .collect()
    };
    let mut held = Vec::new();
    for mut client in crowd(&pilot, connections, &wants, &vec![HashMap::new(); CROWD]).await {
        // What is heard of first is told first.
        let mut versions = HashMap::new();
        while versions.len() < 3 {
            let resources = client.told().await.resources.into_iter();
            versions.extend(resources.map(|resource| (resource.name, resource.version)));
        }
        held.push(versions);
    }
    let left = async {
        while !pilot.clients().all().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, left).await.expect("nobody left");
    assert!(services.iter().all(|service| registry.wanted(service) == 0));

    // Another pilot, and one service that changed meanwhile: its clients are told of it, and of
    // nothing else; the others are told that nothing differs.
    drop(pilot);
    registry.provide(&services[0], 2);
    let pilot = Pilot::start(registry.clone());
    let mut clients = crowd(&pilot, connections, &wants, &held).await;
    let changed = format!("outbound|{}", services[0]);
    for (n, client) in clients.iter_mut().enumerate() {
        let news: Vec<_> = wants(n)
            .into_iter()
            .filter(|name| *name == changed)
            .collect();
        assert_eq!(names(&client.told().await), news);
    }
    let sent = async {
        loop {
            let clients = pilot.clients().all();
            let types: Vec<_> = clients.iter().flat_map(|client| &client.types).collect();
            if types.len() == CROWD && types.iter().all(|kind| kind.pending == 0) {
                break types.iter().map(|kind| kind.sent).sum::<u64>();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let sent = timeout(PATIENCE, sent).await.expect("that all is known");
    assert_eq!(sent, CROWD as u64, "one answer each");
}

const CROWD: usize = 1_000;

/// How many connections there may be here, once this process has as many files as it may.
fn connections() -> usize {
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, files, files).expect("as many as there may be");
    // Both ends are here, and other tests have some too.
    usize::try_from(files.saturating_sub(400) / 2).expect("a number")
}

/// A thousand clients that hold something, each with a connection of its own while there are some.
async fn crowd(
    pilot: &Pilot,
    connections: usize,
    wants: &impl Fn(usize) -> Vec<String>,
    held: &[HashMap<String, String>],
) -> Vec<Stream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>> {
    let mut channels: Vec<Channel> = Vec::with_capacity(held.len());
    for n in 0..held.len() {
        let channel = match n < connections {
            true => channel(pilot).await,
            false => channels[n % connections].clone(),
        };
        channels.push(channel);
    }
    let mut clients = Vec::with_capacity(held.len());
    for (n, (channel, held)) in channels.into_iter().zip(held).enumerate() {
        let client = open(channel).await;
        let request = DeltaDiscoveryRequest {
            type_url: Type::Endpoints.url().into(),
            resource_names_subscribe: wants(n),
            initial_resource_versions: held.clone(),
            ..Default::default()
        };
        client.ask(request).await;
        clients.push(client);
    }
    clients
}
