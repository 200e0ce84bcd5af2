//! An evaluation as one HTML page that needs nothing beside it.

use super::evaluation::{Evaluation, Point};
use super::{Error, plot, table};
use crate::load::plan::Pace;
use crate::page::{self, escaped, items, page, section};

/// The page.
pub(super) fn html(evaluation: &Evaluation) -> Result<String, Error> {
    let mut body = String::new();
    section(
        &mut body,
        "Time of a page",
        "Mean time of a page against the rate of pages; dashed, the line that it follows until it \
         bends.",
        &plot::times(evaluation)?,
    );
    section(
        &mut body,
        "CPU",
        "CPU time of each process against the rate of pages.",
        &plot::cpu(evaluation)?,
    );
    let highest = evaluation.rates().last().map(|(_, point)| *point);
    let closed = evaluation
        .points
        .iter()
        .filter(|p| matches!(p.load, Pace::Closed(_)));
    for point in highest.into_iter().chain(closed) {
        let caption = format!("Percentiles of the time of a page, with {}.", pace(point));
        section(
            &mut body,
            "Percentiles",
            &caption,
            &plot::percentiles(point)?,
        );
    }
    let machines = evaluation.machines.iter();
    let machines: String = machines
        .map(|(role, machine)| {
            format!(
                "<li>{}: {}</li>\n",
                escaped(role),
                escaped(&machine.to_string())
            )
        })
        .collect();
    let head = format!(
        "<p>{program}, {date}: {title}.</p>
<ul class=\"machines\">
{machines}</ul>
<div class=\"wide\">{table}</div>
<ul>
{sentences}</ul>
",
        program = escaped(&evaluation.program),
        date = escaped(&evaluation.date),
        title = escaped(&table::title(evaluation)),
        table = rows(evaluation),
        sentences = items(&table::sentences(evaluation)),
    );
    let json = format!("{:#}", serde_json::to_value(evaluation)?);
    Ok(page(
        "What a hop through the sidecar costs",
        &(head + &body),
        &json,
    ))
}

fn pace(point: &Point) -> String {
    match point.load {
        Pace::Open(rate) => format!("{rate} pages a second"),
        Pace::Closed(pages) => format!("{pages} pages at once"),
    }
}

fn rows(evaluation: &Evaluation) -> String {
    let rows: Vec<_> = evaluation.points.iter().map(table::row).collect();
    page::table(&table::head(evaluation), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluation::tests::evaluation;

    #[test]
    fn the_page_holds_everything_and_asks_nobody() {
        let html = html(&evaluation()).expect("a page");
        assert_eq!(
            html.matches("<svg").count(),
            4,
            "two by rate, two of percentiles"
        );
        for wanted in [
            "direct, a connection for each call",
            "pages a second",
            "p99.9",
            "100 at once",
        ] {
            assert!(html.contains(wanted), "no {wanted}");
        }
        // The name of SVG's language is no address that anybody asks.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "<script", "<link", "src=", "NaN"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_comes_from_outside_is_text() {
        let mut evaluation = evaluation();
        evaluation
            .failed_pages
            .insert("page 502 <script>x</script>".into(), 3);
        let html = html(&evaluation).expect("a page");
        assert!(!html.contains("<script") && html.contains("502 &lt;script&gt;"));
    }

    #[test]
    fn one_rate_is_enough_for_a_page() {
        let mut evaluation = evaluation();
        evaluation.points.truncate(1);
        evaluation.fit();
        assert!(html(&evaluation).expect("a page").contains("<svg"));
    }
}
