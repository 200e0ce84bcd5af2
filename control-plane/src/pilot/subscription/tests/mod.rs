//! A machine, a catalog and requests as clients write them.

mod delta;
mod sotw;

use std::{collections::HashMap, time::SystemTime};

use mesh_proto::xds::{
    discovery::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    },
    protobuf::{ListValue, Struct, Value, value::Kind},
    rpc,
};

use super::*;
use crate::registry::{Change, Instance};

/// One client, and all that there is.
#[derive(Default)]
struct Client {
    machine: Subscription,
    catalog: Catalog,
    resources: Resources,
}

impl Client {
    /// With services that are known to have no instance.
    fn with(absent: &[&str]) -> Self {
        let mut client = Self::default();
        absent.iter().for_each(|key| client.absent(key));
        client
    }

    /// The service has one instance now, at this port.
    fn provide(&mut self, service: &str, port: u16) {
        self.provide_with(service, port, &[]);
    }

    fn provide_with(&mut self, service: &str, port: u16, metadata: &[(&str, &str)]) {
        let service = key(service);
        let instance = Instance {
            service: service.clone(),
            address: ([127, 0, 0, 1], port).into(),
            weight: Instance::WEIGHT,
            metadata: metadata
                .iter()
                .map(|(name, text)| ((*name).into(), (*text).into()))
                .collect(),
        };
        self.catalog.add(&service);
        self.catalog.apply(&service, Change::Set([instance].into()));
        let _ = self.machine.changed(&[service]);
    }

    /// The services have instances now of which all together so many bytes are known.
    fn provide_much(&mut self, services: &[(&str, usize)]) {
        for (service, bytes) in services {
            let service = key(service);
            let of_one = 16 << 10;
            let instance = |n: usize| Instance {
                service: service.clone(),
                address: ([127, 0, 0, 1], n as u16 + 1).into(),
                weight: Instance::WEIGHT,
                metadata: [("zone".into(), "z".repeat(of_one))].into(),
            };
            let instances = (0..bytes.div_ceil(of_one)).map(instance).collect();
            self.catalog.add(&service);
            self.catalog.apply(&service, Change::Set(instances));
            let _ = self.machine.changed(&[service]);
        }
    }

    /// The service has no instance now.
    fn absent(&mut self, service: &str) {
        let service = key(service);
        self.catalog.add(&service);
        self.catalog.apply(&service, Change::Gone);
        let _ = self.machine.changed(&[service]);
    }

    /// What has to be done, as the driver does it.
    fn needs(&mut self) -> Vec<Need> {
        let needs: Vec<_> = std::iter::from_fn(|| self.machine.poll_need()).collect();
        for need in &needs {
            match need {
                Need::Want(service) => self.catalog.add(service),
                Need::Leave(service) => self.catalog.remove(service),
            }
        }
        needs
    }

    fn ask(&mut self, request: DeltaDiscoveryRequest) {
        self.machine
            .delta_request(SystemTime::UNIX_EPOCH, request)
            .expect("within every bound");
        self.needs();
    }

    fn answer(&mut self) -> Option<DeltaDiscoveryResponse> {
        let known = Known {
            catalog: &self.catalog,
            resources: &self.resources,
        };
        let answer = self.machine.delta(known);
        assert!(
            answer.is_some() || !self.machine.is_due(),
            "a driver would run in circles"
        );
        answer
    }

    /// What the next answer says: names of resources, and of those that are gone.
    fn told(&mut self) -> Option<(Vec<String>, Vec<String>)> {
        self.answer().map(|answer| said(&answer))
    }

    fn ask_sotw(&mut self, request: DiscoveryRequest) {
        self.machine
            .sotw_request(SystemTime::UNIX_EPOCH, request)
            .expect("within every bound");
        self.needs();
    }

    fn answer_sotw(&mut self) -> Option<DiscoveryResponse> {
        let known = Known {
            catalog: &self.catalog,
            resources: &self.resources,
        };
        let answer = self.machine.sotw(known);
        assert!(
            answer.is_some() || !self.machine.is_due(),
            "a driver would run in circles"
        );
        answer
    }
}

fn key(text: &str) -> ServiceKey {
    text.parse().expect("a key")
}

fn said(answer: &DeltaDiscoveryResponse) -> (Vec<String>, Vec<String>) {
    let names = answer
        .resources
        .iter()
        .map(|resource| resource.name.clone());
    (names.collect(), answer.removed_resources.clone())
}

fn subscribe(kind: Type, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.url().into(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn holding(
    request: DeltaDiscoveryRequest,
    versions: &HashMap<String, String>,
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        initial_resource_versions: versions.clone(),
        ..request
    }
}

/// A node that depends on these services.
fn node(services: &[&str]) -> core::Node {
    let key = |key: &&str| Value {
        kind: Some(Kind::StringValue((*key).into())),
    };
    let list = ListValue {
        values: services.iter().map(key).collect(),
    };
    let list = Value {
        kind: Some(Kind::ListValue(list)),
    };
    core::Node {
        id: "sidecar-1".into(),
        metadata: Some(Struct {
            fields: [(names::NODE_SERVICES.into(), list)].into(),
        }),
        ..Default::default()
    }
}

fn error(message: &str) -> rpc::Status {
    rpc::Status {
        code: 3,
        message: message.into(),
        ..Default::default()
    }
}

/// Services of which more is known than an answer takes: all together, and one of them alone.
const MUCH: [(&str, usize); 5] = [
    ("a", 800 << 10),
    ("b", 100 << 10),
    ("c", 2_900 << 10),
    ("d", 20 << 20),
    ("e", 900 << 10),
];
/// The longest message that a client of gRPC takes by itself.
const LONGEST: usize = 4 << 20;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
