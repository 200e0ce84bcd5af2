//! Every bound and every wait of the proxy, each with its default and its range.

use std::time::Duration;

use super::{problems::Problems, quantity, raw::Quantity};

/// Defines [`Limits`], its defaults and its keys under `limits:` from one table.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty as $kind:ident = $default:expr, in $range:expr;)+) => {
        /// Every bound and every wait of the proxy. Sizes are in bytes.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// The keys under `limits:` as written.
        #[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct RawLimits {
            $(pub(super) $name: Option<Quantity>,)+
        }

        impl RawLimits {
            /// The limits: defaults where nothing is written, and where what is written is wrong.
            pub(super) fn resolve(&self, problems: &mut Problems) -> Limits {
                let mut limits = Limits::default();
                $(if let Some(Quantity(text)) = &self.$name {
                    let path = concat!("limits.", stringify!($name));
                    match quantity::$kind::parse(text).and_then(|value| quantity::within(value, $range, quantity::$kind::print)) {
                        Ok(value) => limits.$name = value,
                        Err(cure) => problems.add(path, cure),
                    }
                })+
                limits
            }

            /// The keys with every value filled in.
            pub(super) fn of(limits: &Limits) -> Self {
                Self { $($name: Some(Quantity(quantity::$kind::print(limits.$name))),)+ }
            }
        }
    };
}

limits! {
    /// Longest body of a frame. Default 8 MiB, as Dubbo's `payload`.
    max_body: usize as bytes = 8 * MIB, in KIB..=GIB;
    /// Bytes of bodies above 64 KiB that the process holds at a time. Default 256 MiB.
    big_bodies: usize as bytes = 256 * MIB, in MIB..=64 * GIB;

    /// Connections taken at a time, both sides together. Default 10,000.
    max_sessions: usize as count = 10_000, in 1..=1_000_000;
    /// Connections that wait in the kernel to be accepted, per listener. Default 1,024.
    accept_backlog: usize as count = 1024, in 1..=65_535;
    /// Calls in flight at a time in one shard. Default 131,072.
    max_in_flight: usize as count = 131_072, in 1..=4_194_304;
    /// Calls in flight at a time of one connection. Default 65,536.
    max_in_flight_per_session: usize as count = 65_536, in 1..=4_194_304;

    /// Bytes that wait for a provider's socket before calls are refused. Default 16 MiB.
    host_queue: usize as bytes = 16 * MIB, in 64 * KIB..=4 * GIB;
    /// Bytes that wait for an application's socket before it is closed. Default 16 MiB.
    session_queue: usize as bytes = 16 * MIB, in 64 * KIB..=4 * GIB;
    /// Bytes that wait to cross from one shard to another. Default 16 MiB.
    handoff: usize as bytes = 16 * MIB, in 64 * KIB..=4 * GIB;

    /// Calls held at a time until their service is known or a provider is back, per shard.
    /// Default 10,000.
    held_calls: usize as count = 10_000, in 1..=1_000_000;
    /// Bytes of these calls, per shard. Default 64 MiB.
    held_bytes: usize as bytes = 64 * MIB, in 64 * KIB..=4 * GIB;

    /// Longest time a call is held until its service is known. Default 5 s.
    held_time: Duration as time = secs(5), in millis(1)..=secs(60);
    /// Services known at a time because a call asked for them, per shard. Default 1,000.
    learned_services: usize as count = 1000, in 1..=100_000;
    /// Time without a call after which such a service is forgotten. Default 10 min.
    learned_idle: Duration as time = secs(600), in secs(1)..=secs(86_400);

    /// Services taken of those that applications declare; a file with more is refused. Default 10,000.
    declared_services: usize as count = 10_000, in 1..=100_000;
    /// Services kept in the copy on disk, the first ones. Default 10,000.
    copied_services: usize as count = 10_000, in 1..=100_000;
    /// Providers of one service; a control plane that names more is refused. Default 100,000.
    service_endpoints: usize as count = 100_000, in 1..=1_000_000;
    /// Methods that one service names as idempotent. Default 10,000.
    service_methods: usize as count = 10_000, in 1..=100_000;
    /// Longest message of a control plane; a longer one ends the stream. Default 64 MiB.
    xds_message: usize as bytes = 64 * MIB, in 4 * MIB..=GIB;

    /// Time for a call where neither caller, service nor provider names one. Default 60 s.
    default_timeout: Duration as time = secs(60), in millis(1)..=secs(86_400);
    /// Longest time for a call, whatever its caller asks for. Default 1 h.
    max_timeout: Duration as time = secs(3600), in millis(1)..=secs(604_800);

    /// Silence of an application after which it is sent a heartbeat. Default 60 s, as Dubbo's.
    session_heartbeat: Duration as time = secs(60), in millis(100)..=secs(3600);
    /// Silence of an application after which its connection is closed. Default 180 s, as Dubbo's.
    session_timeout: Duration as time = secs(180), in millis(100)..=secs(86_400);
    /// Silence of a provider after which it is sent a heartbeat. Default 15 s.
    host_heartbeat: Duration as time = secs(15), in millis(100)..=secs(3600);
    /// Silence of a provider after which its connection counts as lost. Default 45 s.
    host_timeout: Duration as time = secs(45), in millis(100)..=secs(86_400);
    /// Time that sent bytes may stay unacknowledged by the peer's kernel. Default 30 s.
    unacknowledged: Duration as time = secs(30), in secs(1)..=secs(3600);

    /// Time to connect to a provider. Default 3 s, as Dubbo's.
    connect_timeout: Duration as time = secs(3), in millis(10)..=secs(60);
    /// Pause before the first new attempt to connect to a lost provider. Default 100 ms.
    reconnect_min: Duration as time = millis(100), in millis(1)..=secs(60);
    /// Longest pause between attempts to connect. Default 10 s.
    reconnect_max: Duration as time = secs(10), in millis(10)..=secs(3600);
    /// Longest time a call waits for a provider that is being connected. Default 3 s.
    reconnect_wait: Duration as time = secs(3), in millis(0)..=secs(60);
    /// Time between two resolutions of a provider's name. Default 30 s.
    resolve_interval: Duration as time = secs(30), in secs(1)..=secs(86_400);

    /// Longest time that calls in flight may take to finish when the proxy drains. Default 20 s.
    drain_time: Duration as time = secs(20), in millis(0)..=secs(3600);

    /// Deepest nesting of values in a body that is walked. Default 1,024.
    body_depth: usize as count = 1024, in 16..=2000;
    /// Values of a body that others may refer to. Default 1,000,000.
    body_references: usize as count = 1_000_000, in 1024..=8_388_608;
    /// Classes and type names that one body may define, each. Default 65,536.
    body_types: usize as count = 65_536, in 256..=1_048_576;
    /// Fields of one class that a body defines. Default 4,096.
    body_fields: usize as count = 4096, in 64..=65_536;
    /// Attachments of one call. Default 1,024.
    attachments: usize as count = 1024, in 16..=65_536;

    /// Bytes of frames kept that a shard failed on. Default 16 MiB; 0 keeps none.
    quarantine: usize as bytes = 16 * MIB, in 0..=GIB;

    /// Requests that the admin serves at a time; more are refused. Default 64.
    admin_requests: usize as count = 64, in 1..=10_000;
    /// Requests for `/failover` at a time, which may wait for a change; more are refused.
    /// Default 64.
    admin_waiters: usize as count = 64, in 1..=10_000;
    /// Time for one request to the admin. Default 10 s.
    admin_timeout: Duration as time = secs(10), in millis(100)..=secs(600);
    /// Time to wait for a shard's counters at a scrape. Default 1 s.
    scrape_timeout: Duration as time = secs(1), in millis(10)..=secs(60);
}

impl Limits {
    /// Adds what is wrong between limits, each of which is right by itself.
    pub(super) fn check(&self, problems: &mut Problems) {
        use quantity::{bytes, time};
        let body = self.max_body;
        let mut least = Least(problems);
        least.is(
            "host_queue",
            self.host_queue,
            "2 * limits.max_body",
            2 * body,
            bytes::print,
        );
        least.is(
            "session_queue",
            self.session_queue,
            "limits.max_body",
            body,
            bytes::print,
        );
        least.is(
            "held_bytes",
            self.held_bytes,
            "limits.max_body",
            body,
            bytes::print,
        );
        least.is(
            "big_bodies",
            self.big_bodies,
            "limits.max_body",
            body,
            bytes::print,
        );
        let (beat, name) = (self.session_heartbeat, "limits.session_heartbeat");
        least.is(
            "session_timeout",
            self.session_timeout,
            name,
            beat,
            time::print,
        );
        let (beat, name) = (self.host_heartbeat, "limits.host_heartbeat");
        least.is("host_timeout", self.host_timeout, name, beat, time::print);
        let (min, name) = (self.reconnect_min, "limits.reconnect_min");
        least.is("reconnect_max", self.reconnect_max, name, min, time::print);
        let (default, name) = (self.default_timeout, "limits.default_timeout");
        least.is("max_timeout", self.max_timeout, name, default, time::print);
    }
}

/// Limits that others are the least of.
struct Least<'a>(&'a mut Problems);

impl Least<'_> {
    fn is<T: PartialOrd>(
        &mut self,
        key: &str,
        value: T,
        bound: &str,
        least: T,
        print: fn(T) -> String,
    ) {
        if value < least {
            let cure = format!("is below {bound}; write at least {}", print(least));
            self.0.add(format!("limits.{key}"), cure);
        }
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
