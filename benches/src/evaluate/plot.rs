//! Plots of an evaluation.

use super::evaluation::{Evaluation, Figures, Point, Times};
use crate::plot::{DIRECT, Error, MANY, MESH, PROXY, Series, by_name, by_number};

/// Time of a page against the rate, with the lines that it follows at first.
pub(super) fn times(evaluation: &Evaluation) -> Result<String, Error> {
    let rates = evaluation.rates();
    let mean = |of: fn(&Point) -> &Figures| -> Vec<_> {
        let points = rates.iter().map(|(x, point)| (*x, of(point).rt_ms.mean));
        points.collect()
    };
    let end = rates.last().map_or(0.0, |(x, _)| *x);
    let fitted = |way| {
        let bend = evaluation.rt_ms_by_rate.get(way);
        let line = bend.map(|bend| vec![(0.0, bend.line.at(0.0)), (end, bend.line.at(end))]);
        line.unwrap_or_default()
    };
    let series = [
        ("direct", DIRECT, false, mean(|point| &point.direct)),
        ("through the mesh", MESH, false, mean(|point| &point.mesh)),
        ("direct, line", DIRECT, true, fitted("direct")),
        ("mesh, line", MESH, true, fitted("mesh")),
    ];
    by_number(
        RATE,
        end,
        "mean time of a page, ms",
        &series.map(Series::from),
    )
}

/// CPU of each process against the rate.
pub(super) fn cpu(evaluation: &Evaluation) -> Result<String, Error> {
    let rates = evaluation.rates();
    let share = |of: fn(&Point) -> f64| -> Vec<_> {
        rates.iter().map(|(x, point)| (*x, of(point))).collect()
    };
    let end = rates.last().map_or(0.0, |(x, _)| *x);
    let series = [
        (
            "glue server, direct",
            DIRECT,
            false,
            share(|p| p.direct.cpu_percent.glue),
        ),
        (
            "glue server, mesh",
            MESH,
            false,
            share(|p| p.mesh.cpu_percent.glue),
        ),
        ("proxy", PROXY, false, share(|p| p.mesh.cpu_percent.proxy)),
        (
            "provider, direct",
            DIRECT,
            true,
            share(|p| p.direct.cpu_percent.provider),
        ),
        (
            "provider, mesh",
            MESH,
            true,
            share(|p| p.mesh.cpu_percent.provider),
        ),
    ];
    by_number(RATE, end, "CPU, % of a core", &series.map(Series::from))
}

/// Percentiles of the time of a page at one pace.
pub(super) fn percentiles(point: &Point) -> Result<String, Error> {
    let of = |times: &Times| {
        let all = [times.p50, times.p90, times.p99, times.p99_9, times.max];
        (0..).zip(all).collect::<Vec<_>>()
    };
    let mut series = vec![
        Series::from(("direct", DIRECT, false, of(&point.direct.rt_ms))),
        Series::from(("through the mesh", MESH, false, of(&point.mesh.rt_ms))),
    ];
    if let Some(many) = &point.many {
        let name = "direct, a connection for each call";
        series.push(Series::from((name, MANY, false, of(&many.rt_ms))));
    }
    by_name("percentile", &PERCENTILES, "time of a page, ms", &series)
}

/// What the first two are plotted against.
const RATE: &str = "pages a second";
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
