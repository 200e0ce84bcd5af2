//! Every metric.

use std::fmt::Write;

use axum::{
    extract::{Query as Asked, State as From},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{
    TextEncoder,
    proto::{LabelPair, Metric, MetricFamily, MetricType},
};
use serde_json::json;

use super::{Query, State, json};

/// `GET /stats/prometheus`.
pub(super) async fn prometheus(From(state): From<State>) -> Response {
    state.shards.refresh().await;
    match TextEncoder::new().encode_to_string(&state.registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// `GET /stats`: a line for each number, or JSON.
pub(super) async fn stats(From(state): From<State>, Asked(query): Asked<Query>) -> Response {
    state.shards.refresh().await;
    let families = state.registry.gather();
    let numbers = families.iter().flat_map(numbers).filter(|(name, value)| {
        name.contains(&query.filter) && (query.usedonly.is_none() || *value != 0.0)
    });
    if query.json() {
        let stats: Vec<_> = numbers
            .map(|(name, value)| json!({ "name": name, "value": value }))
            .collect();
        return json(&json!({ "stats": stats }));
    }
    let mut text = String::new();
    for (name, value) in numbers {
        let _ = writeln!(text, "{name}: {value}");
    }
    text.into_response()
}

/// The numbers of a family, each with its name and labels. Of a histogram: count and sum.
fn numbers(family: &MetricFamily) -> Vec<(String, f64)> {
    let each = family.get_metric().iter().flat_map(|metric| {
        let named = |end: &str, value| (named(family.name(), end, metric), value);
        match family.get_field_type() {
            MetricType::COUNTER => vec![named("", metric.get_counter().get_value())],
            MetricType::GAUGE => vec![named("", metric.get_gauge().get_value())],
            MetricType::HISTOGRAM => {
                let times = metric.get_histogram();
                vec![
                    named("_count", times.get_sample_count() as f64),
                    named("_sum", times.get_sample_sum()),
                ]
            }
            MetricType::SUMMARY | MetricType::UNTYPED => Vec::new(),
        }
    });
    each.collect()
}

fn named(name: &str, end: &str, metric: &Metric) -> String {
    let pair = |label: &LabelPair| format!("{}=\"{}\"", label.name(), label.value());
    let labels: Vec<_> = metric.get_label().iter().map(pair).collect();
    match labels.is_empty() {
        true => format!("{name}{end}"),
        false => format!("{name}{end}{{{}}}", labels.join(",")),
    }
}
