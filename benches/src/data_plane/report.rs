//! A measurement as one HTML page that needs nothing beside it.

use plotters::style::RGBColor;

use super::Error;
use super::contender::{DIRECT, ENVOY, HAPROXY, MESH, VARIANTS};
use super::course::{Course, STEADY};
use super::figures::Figures;
use super::record::Record;
use crate::page::{self, items, page, section};
use crate::plot::{self, MANY, OTHER, PROXY, Series, by_name};

/// The page.
pub(super) fn html(record: &Record) -> Result<String, Error> {
    let mut body = format!("<ul>\n{}</ul>\n", items(&record.circumstances()));
    for (title, table) in [
        ("What has to hold", record.verdicts()),
        ("All figures, per call", record.figures()),
    ] {
        let (head, rows) = table;
        let table = page::table(&head, &rows);
        body.push_str(&format!(
            "<h2>{title}</h2>\n<div class=\"wide\">{table}</div>\n"
        ));
    }
    let told = record.courses.iter();
    let told: Vec<_> = told
        .map(|course| format!("{}: {}", course.name, course.describe()))
        .collect();
    body.push_str(&format!("<ul>\n{}</ul>\n", items(&told)));
    section(
        &mut body,
        "CPU per call",
        "CPU time of a call in what stands between, as a multiple of HAProxy's, load by load. \
         Envoy is far above.",
        &cpu(record)?,
    );
    section(
        &mut body,
        "Time of a call",
        "Percentiles of the time of a call at 20,000 calls a second.",
        &percentiles(record)?,
    );
    Ok(page("What a hop costs", &body, &record.json()))
}

fn cpu(record: &Record) -> Result<String, plot::Error> {
    let cpu = |course: &Course, name: &str| record.results.of(course.name, name)?.cpu_us;
    let points = |name: &str| -> Vec<_> {
        let of =
            |(at, course): (i32, &&Course)| Some((at, cpu(course, name)? / cpu(course, HAPROXY)?));
        (0..).zip(&record.courses).filter_map(of).collect()
    };
    let names: Vec<_> = record.courses.iter().map(|course| course.name).collect();
    by_name(
        "load",
        &names,
        "CPU, as a multiple of HAProxy's",
        &lines(record, &[ENVOY], points),
    )
}

fn percentiles(record: &Record) -> Result<String, plot::Error> {
    let points = |name: &str| -> Vec<_> {
        let figures = record.results.of(STEADY, name).unwrap_or_default();
        let Figures {
            p50_us,
            p90_us,
            p99_us,
            p99_9_us,
            ..
        } = figures;
        let all = (0..).zip([p50_us, p90_us, p99_us, p99_9_us]);
        all.filter_map(|(at, us)| Some((at, us?))).collect()
    };
    let names = ["p50", "p90", "p99", "p99.9"];
    by_name(
        "percentile",
        &names,
        "time of a call, µs",
        &lines(record, &[], points),
    )
}

/// A line for each contender that takes every load, or some of them as it is; not for the variants
/// of ours.
fn lines(
    record: &Record,
    without: &[&str],
    points: impl Fn(&str) -> Vec<(i32, f64)>,
) -> Vec<Series<i32>> {
    let names = record.contenders.iter().map(|(name, _)| name.as_str());
    let shown = names.filter(|name| !VARIANTS.contains(name) && !without.contains(name));
    shown
        .map(|name| Series::from((name, color(name), false, points(name))))
        .collect()
}

fn color(name: &str) -> RGBColor {
    match name {
        DIRECT => plot::DIRECT,
        HAPROXY => PROXY,
        ENVOY => MANY,
        MESH => plot::MESH,
        _ => OTHER,
    }
}
