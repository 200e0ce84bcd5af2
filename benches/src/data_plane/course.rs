//! The loads that everything is measured under.

use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

use dubbo_proto::key::ServiceKey;

use super::contender::{ENVOY, EVERYTHING, TEN_PROVIDERS, TWENTY_SERVICES, TWO_SHARDS};
use crate::load::plan::{Pace, Plan, payload};

/// What is measured at a time.
#[derive(Debug)]
pub(super) struct Course {
    /// As the command line and tables have it.
    pub(super) name: &'static str,
    pub(super) load: Load,
    /// What goes on beside it and is not measured.
    pub(super) beside: Option<Load>,
    /// Contenders that take some courses, of which this is one.
    pub(super) also: &'static [&'static str],
}

impl Course {
    /// Whether a contender takes it: one that no course names takes all.
    pub(super) fn is_for(&self, contender: &str) -> bool {
        let names = |course: &Self| course.also.contains(&contender);
        names(self) || !COURSES.iter().any(names)
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        let beside = self.beside.map(Load::describe);
        let beside = beside.map_or_else(String::new, |load| format!("; beside {load}"));
        format!("{}{beside}", self.load.describe())
    }
}

/// Calls that take a string along and bring it back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) connections: u32,
    /// Of calls, or of pages if there are any.
    pub(super) pace: Pace,
    /// Calls of a page.
    pub(super) serial: u32,
    /// Bytes of the string.
    pub(super) payload: usize,
}

impl Load {
    /// It for so long, against each of the services in turn, with a look at the processes.
    pub(super) fn plan(
        self,
        services: &[ServiceKey],
        duration: Duration,
        processes: Vec<u32>,
    ) -> Rc<Plan> {
        let body = |service| payload(service, self.payload, TIMEOUT);
        Rc::new(Plan {
            bodies: services.iter().map(body).collect(),
            timeout: TIMEOUT,
            connections: number(self.connections),
            pace: self.pace,
            serial: number(self.serial),
            duration,
            processes,
        })
    }

    fn describe(self) -> String {
        let what = match self.serial {
            1 => "calls".to_owned(),
            serial => format!("pages of {serial} serial calls"),
        };
        let pace = match self.pace {
            Pace::Closed(n) => format!("{n} {what} in flight"),
            Pace::Open(rate) => format!("{rate} {what} a second"),
        };
        let (payload, connections) = (self.payload, self.connections);
        format!("{pace}, {payload} bytes, connections: {connections}")
    }
}

const fn closed(in_flight: u32, connections: u32, payload: usize) -> Load {
    Load {
        connections,
        pace: Pace::Closed(number(in_flight)),
        serial: 1,
        payload,
    }
}

const fn open(rate: u64, payload: usize) -> Load {
    let rate = match NonZero::new(rate) {
        Some(rate) => rate,
        None => NonZero::<u64>::MIN,
    };
    Load {
        connections: 1,
        pace: Pace::Open(rate),
        serial: 1,
        payload,
    }
}

const fn alone(name: &'static str, load: Load) -> Course {
    Course {
        name,
        load,
        beside: None,
        also: &[],
    }
}

const fn number(n: u32) -> NonZero<u32> {
    match NonZero::new(n) {
        Some(n) => n,
        None => NonZero::<u32>::MIN,
    }
}

/// All of them.
pub(super) const COURSES: [Course; 11] = [
    Course {
        also: &[ENVOY],
        ..alone(SERIAL, closed(1, 1, SHORT))
    },
    Course {
        also: &[ENVOY, TEN_PROVIDERS, TWENTY_SERVICES, EVERYTHING],
        ..alone(HUNDRED, closed(100, 1, SHORT))
    },
    alone(THOUSAND, closed(1000, 1, SHORT)),
    Course {
        also: &[ENVOY, TWO_SHARDS],
        ..alone(SPREAD, closed(1000, 100, SHORT))
    },
    Course {
        also: &[ENVOY],
        ..alone(
            PAGES,
            Load {
                serial: 21,
                ..closed(100, 8, SHORT)
            },
        )
    },
    Course {
        also: &[ENVOY],
        ..alone(STEADY, open(20_000, SHORT))
    },
    alone(FAST, open(50_000, SHORT)),
    alone(LONG, closed(100, 1, 4 << 10)),
    alone(LONGER, closed(100, 1, 64 << 10)),
    alone(LONGEST, closed(10, 1, 1 << 20)),
    Course {
        beside: Some(open(50, 1 << 20)),
        ..alone(MIX, open(1000, SHORT))
    },
];

/// Names of courses.
pub(super) const SERIAL: &str = "1";
pub(super) const HUNDRED: &str = "100";
pub(super) const THOUSAND: &str = "1000";
pub(super) const SPREAD: &str = "1000/100";
pub(super) const PAGES: &str = "pages";
pub(super) const STEADY: &str = "20k/s";
pub(super) const FAST: &str = "50k/s";
pub(super) const LONG: &str = "4KiB";
pub(super) const LONGER: &str = "64KiB";
pub(super) const LONGEST: &str = "1MiB";
pub(super) const MIX: &str = "mix";
/// Bytes that most calls take along.
const SHORT: usize = 128;
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(10);
