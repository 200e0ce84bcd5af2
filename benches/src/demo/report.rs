//! The demo as one HTML page.

use super::figures::Outcome;
use super::plan::STEP_MS;
use crate::page::{escaped, items, page, section};
use crate::plot::{DIRECT, Error, MESH, Series, by_number};
use crate::statistics::count;

/// The page.
pub(super) fn html(outcome: &Outcome, acts: &[(f64, String)]) -> Result<String, Error> {
    let told = outcome.to_string();
    let acts: Vec<_> = acts
        .iter()
        .map(|(at, what)| format!("{at:.1} s: {what}"))
        .collect();
    let mut body = format!(
        "<ul>\n{}</ul>\n<pre>{}</pre>\n",
        items(&acts),
        escaped(&told)
    );
    section(
        &mut body,
        "Calls by way",
        "Calls a second that the SDK sent by the sidecar and direct, from the start of the application \
         on; the turns that were direct from the first are left out.",
        &course(outcome)?,
    );
    Ok(page(
        "The mesh under load, while its parts are killed",
        &body,
        &outcome.json(),
    ))
}

fn course(outcome: &Outcome) -> Result<String, Error> {
    let steps = &outcome.course;
    let first = steps.first().map_or(0.0, |step| step.at);
    let end = steps.last().map_or(0.0, |step| step.at - first);
    let per_s = |calls: u64| count(calls) * 1000.0 / count(STEP_MS);
    let series = [
        (
            "by the sidecar",
            MESH,
            steps
                .iter()
                .map(|step| (step.at - first, per_s(step.by_sidecar)))
                .collect(),
        ),
        (
            "direct",
            DIRECT,
            steps
                .iter()
                .map(|step| (step.at - first, per_s(step.direct)))
                .collect(),
        ),
    ];
    let series = series.map(|(name, color, points)| Series::from((name, color, false, points)));
    by_number("seconds", end, "calls a second", &series)
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::outcome;
    use super::*;

    #[test]
    fn the_page_holds_everything_and_asks_nobody() {
        let acts = [(1.25, "the <sidecar> is killed".to_owned())];
        let html = html(&outcome(), &acts).expect("a page");
        assert_eq!(html.matches("<svg").count(), 1);
        for wanted in [
            "1.2 s: the &lt;sidecar&gt; is killed",
            "switch_ms",
            "calls a second",
        ] {
            assert!(html.contains(wanted), "no {wanted} in {html}");
        }
        // The name of SVG's language is no address that anybody asks.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "<script", "<link", "src=", "NaN"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
