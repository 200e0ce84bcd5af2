//! The families of the shards: name, help, labels and where the numbers come from, all in one place.

use super::{
    Counts, Gathered, HostState, HostStats, Io, Label, Outcome, PerSide, ServiceStats, Sessions,
    Shard,
    collector::{Page, Samples},
};
use crate::model::Side;

/// Writes every family of what the shards showed, all shards together.
pub(super) fn write(gathered: &Gathered, page: &mut Page) {
    let total = gathered.total();
    calls(&total, page);
    calls_now(gathered, page);
    sessions(&total, gathered, page);
    upstream(&total, page);
    services(&gathered.named(), page);
    hosts(&gathered.hosts(), page);
    shards(&total, gathered, page);
}

fn calls(total: &Shard, page: &mut Page) {
    let calls = &total.calls;
    page.counter(
        "mesh_call_finished_total",
        "Calls that ended.",
        &["side", "outcome"],
        |to| {
            each_side(calls, |side, calls| labelled(to, side, &calls.finished));
        },
    );
    page.counter(
        "mesh_call_one_way_total",
        "Calls that nobody waited for.",
        &["side"],
        |to| {
            each_side(calls, |side, calls| to.count(&[side], calls.one_way));
        },
    );
    let help = "Further tries, by the outcome of the try before.";
    page.counter(
        "mesh_call_retries_total",
        help,
        &["side", "outcome"],
        |to| {
            each_side(calls, |side, calls| labelled(to, side, &calls.retries));
        },
    );
    let help = "Calls answered by a provider with a status other than 20.";
    page.counter(
        "mesh_call_provider_errors_total",
        help,
        &["side", "status"],
        |to| {
            each_side(calls, |side, calls| {
                labelled(to, side, &calls.provider_errors)
            });
        },
    );
    let help = "Times from the last byte of a two-way call to its answer.";
    page.histogram("mesh_call_duration_seconds", help, &["side"], |to| {
        each_side(calls, |side, calls| to.times(&[side], &calls.duration));
    });
    let help = "Calls that were held until their service was known.";
    page.counter("mesh_call_held_total", help, &[], |to| {
        to.count(&[], total.held)
    });
}

fn calls_now(gathered: &Gathered, page: &mut Page) {
    let help = "Calls in flight.";
    level(
        page,
        "mesh_call_in_flight",
        help,
        gathered.sum(|s| s.in_flight),
    );
    let help = "Calls held until their service is known.";
    level(page, "mesh_call_held", help, gathered.sum(|s| s.held_calls));
    let help = "Bytes of the calls held until their service is known.";
    level(
        page,
        "mesh_call_held_bytes",
        help,
        gathered.sum(|s| s.held_bytes),
    );
}

fn sessions(total: &Shard, gathered: &Gathered, page: &mut Page) {
    let sessions = &total.sessions;
    let counters: [Row<Sessions>; 10] = [
        ("accepted", "Connections taken.", |s| s.accepted),
        ("read_bytes", "Bytes read.", |s| s.io.bytes_in),
        ("written_bytes", "Bytes written.", |s| s.io.bytes_out),
        ("read_frames", "Frames read.", |s| s.io.frames_in),
        ("written_frames", "Frames written.", |s| s.io.frames_out),
        ("reads", "Reads that brought bytes.", |s| s.io.reads),
        ("writes", "Writes that took bytes.", |s| s.io.writes),
        (
            "heartbeats_received",
            "Heartbeats received and answered.",
            |s| s.heartbeats_received,
        ),
        ("heartbeats_sent", "Heartbeats sent.", |s| s.heartbeats_sent),
        ("read_only_sent", "READONLY events sent.", |s| {
            s.read_only_sent
        }),
    ];
    for (what, help, value) in counters {
        page.counter(
            &format!("mesh_session_{what}_total"),
            help,
            &["side"],
            |to| {
                each_side(sessions, |side, sessions| {
                    to.count(&[side], value(sessions))
                });
            },
        );
    }
    let help = "Connections that ended.";
    page.counter(
        "mesh_session_closed_total",
        help,
        &["side", "reason"],
        |to| {
            each_side(sessions, |side, sessions| {
                labelled(to, side, &sessions.closed)
            });
        },
    );
    page.gauge("mesh_session_open", "Connections open.", &["side"], |to| {
        for side in SIDES {
            to.level(&[side.as_str()], gathered.sum(|s| s.sessions[side]));
        }
    });
}

fn upstream(total: &Shard, page: &mut Page) {
    let upstream = &total.upstream;
    let Io {
        bytes_in,
        bytes_out,
        frames_in,
        frames_out,
        reads,
        writes,
    } = upstream.io;
    for (name, help, value) in [
        (
            "connected_total",
            "Connections that came up.",
            upstream.connected,
        ),
        (
            "connect_failures_total",
            "Attempts to connect that failed.",
            upstream.connect_failures,
        ),
        ("read_bytes_total", "Bytes read.", bytes_in),
        ("written_bytes_total", "Bytes written.", bytes_out),
        ("read_frames_total", "Frames read.", frames_in),
        ("written_frames_total", "Frames written.", frames_out),
        ("reads_total", "Reads that brought bytes.", reads),
        ("writes_total", "Writes that took bytes.", writes),
        (
            "heartbeats_received_total",
            "Heartbeats received and answered.",
            upstream.heartbeats_received,
        ),
        (
            "heartbeats_sent_total",
            "Heartbeats sent.",
            upstream.heartbeats_sent,
        ),
        (
            "read_only_received_total",
            "READONLY and other signs of a provider that it drains.",
            upstream.read_only_received,
        ),
        (
            "requests_refused_total",
            "Requests of providers, which nobody here serves.",
            upstream.requests_refused,
        ),
    ] {
        page.counter(&format!("mesh_upstream_{name}"), help, &[], |to| {
            to.count(&[], value)
        });
    }
    page.counter(
        "mesh_upstream_lost_total",
        "Connections that ended.",
        &["reason"],
        |to| {
            upstream
                .lost
                .iter()
                .for_each(|(reason, n)| to.count(&[reason.as_str()], n));
        },
    );
    let help = "Answers that found no call, and were dropped.";
    page.counter("mesh_upstream_stray_replies_total", help, &["kind"], |to| {
        upstream
            .stray
            .iter()
            .for_each(|(kind, n)| to.count(&[kind.as_str()], n));
    });
}

fn services(services: &[ServiceStats], page: &mut Page) {
    let help = "Calls of a service that ended. Outcomes that never came are left out.";
    page.counter(
        "mesh_service_finished_total",
        help,
        &["service", "outcome"],
        |to| {
            for service in services {
                some(to, &service.key.to_string(), &service.finished);
            }
        },
    );
    let help = "Providers of a service.";
    page.gauge("mesh_service_hosts", help, &["service"], |to| {
        for service in services {
            to.level(&[&service.key.to_string()], service.hosts.len() as u64);
        }
    });
}

fn hosts(hosts: &[HostStats], page: &mut Page) {
    let help = "Tries at a provider that ended. Outcomes that never came are left out.";
    page.counter(
        "mesh_host_finished_total",
        help,
        &["host", "outcome"],
        |to| {
            hosts
                .iter()
                .for_each(|host| some(to, &host.address.to_string(), &host.finished));
        },
    );
    let each =
        |to: &mut Samples, add: fn(&mut Samples, &[&str], u64), value: fn(&HostStats) -> u64| {
            hosts
                .iter()
                .for_each(|host| add(to, &[&host.address.to_string()], value(host)));
        };
    page.counter(
        "mesh_host_connected_total",
        "Connections that came up.",
        &["host"],
        |to| {
            each(to, Samples::count, |host| host.connected);
        },
    );
    let help = "Attempts to connect that failed.";
    page.counter("mesh_host_connect_failures_total", help, &["host"], |to| {
        each(to, Samples::count, |host| host.connect_failures);
    });
    page.gauge(
        "mesh_host_in_flight",
        "Calls in flight at a provider.",
        &["host"],
        |to| {
            each(to, Samples::level, |host| host.in_flight);
        },
    );
    let help = "Bytes that wait for a provider's socket.";
    page.gauge("mesh_host_queued_bytes", help, &["host"], |to| {
        each(to, Samples::level, |host| host.queued_bytes);
    });
    page.gauge(
        "mesh_host_count",
        "Providers, by how it stands with them.",
        &["state"],
        |to| {
            for &state in HostState::ALL {
                let count = hosts.iter().filter(|host| host.state == state).count();
                to.level(&[state.as_str()], count as u64);
            }
        },
    );
}

fn shards(total: &Shard, gathered: &Gathered, page: &mut Page) {
    for (name, help, value) in [
        (
            "handoff_batches_total",
            "Batches handed over between shards.",
            total.handoff_batches,
        ),
        (
            "handoff_calls_total",
            "Calls handed over between shards.",
            total.handoff_calls,
        ),
        (
            "panics_total",
            "Times that a shard failed and started anew.",
            total.panics,
        ),
        (
            "quarantine_refused_total",
            "Frames refused because a shard had failed on them.",
            total.quarantine_refused,
        ),
        (
            "stale_total",
            "Times that a shard did not show its counters in time.",
            gathered.stale_total,
        ),
    ] {
        page.counter(&format!("mesh_shard_{name}"), help, &[], |to| {
            to.count(&[], value)
        });
    }
    level(
        page,
        "mesh_shard_count",
        "Shards.",
        gathered.shards.len() as u64,
    );
    let help = "Shards that did not show their counters in time, and are shown as they were.";
    level(page, "mesh_shard_stale", help, gathered.stale as u64);
    let help = "Bytes of all buffers, in use or pooled.";
    level(
        page,
        "mesh_shard_buffer_bytes",
        help,
        gathered.sum(|s| s.buffer_bytes),
    );
}

fn level(page: &mut Page, name: &str, help: &str, value: u64) {
    page.gauge(name, help, &[], |to| to.level(&[], value));
}

/// Every value of a label, for one side.
fn labelled<L: Label>(to: &mut Samples, side: &str, counts: &Counts<L>) {
    counts
        .iter()
        .for_each(|(label, count)| to.count(&[side, label.as_str()], count));
}

/// The outcomes that came, for one of many: there may be thousands.
fn some(to: &mut Samples, name: &str, counts: &Counts<Outcome>) {
    let came = counts.iter().filter(|(_, count)| *count > 0);
    came.for_each(|(outcome, count)| to.count(&[name, outcome.as_str()], count));
}

fn each_side<T>(values: &PerSide<T>, mut each: impl FnMut(&str, &T)) {
    SIDES
        .into_iter()
        .for_each(|side| each(side.as_str(), &values[side]));
}

/// What a counter counts, what that is, and where it stands.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const SIDES: [Side; 2] = [Side::Outbound, Side::Inbound];
