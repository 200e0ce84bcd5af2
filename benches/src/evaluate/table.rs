//! The figures of an evaluation for people: a table, and sentences.

use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Evaluation;
use super::evaluation::{Figures, Point};
use crate::load::plan::Pace;
use crate::statistics::Bend;

/// An evaluation as text.
#[derive(Debug)]
pub(super) struct Text<'e>(pub(super) &'e Evaluation);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(head(self.0));
        for point in &self.0.points {
            table.add_row(row(point));
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}\n{table}", title(self.0))?;
        sentences(self.0)
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// What was measured.
pub(super) fn title(evaluation: &Evaluation) -> String {
    let shape = &evaluation.shape;
    let how = if shape.concurrent {
        "at once"
    } else {
        "one after another"
    };
    let (calls, payload, rounds, s) = (shape.calls, shape.payload, shape.rounds, shape.duration_s);
    format!(
        "pages of {calls} calls {how}, {payload} bytes each way; \
         d: direct, m: through the mesh; medians of {rounds} rounds of {s} s"
    )
}

/// Names of the columns.
pub(super) fn head(evaluation: &Evaluation) -> Vec<String> {
    let calls = match evaluation.shape.concurrent {
        true => "a page".to_owned(),
        false => format!("{} hops", evaluation.shape.calls),
    };
    vec![
        "pages/s".to_owned(),
        "proxy\ncalls/s".to_owned(),
        "RT d\nms".to_owned(),
        "RT m\nms".to_owned(),
        format!("+ {calls}\nms"),
        "+ 1 hop\nµs".to_owned(),
        "glue d\nCPU %".to_owned(),
        "glue m\nCPU %".to_owned(),
        "proxy\nCPU %".to_owned(),
        "prov. d\nCPU %".to_owned(),
        "prov. m\nCPU %".to_owned(),
        "prov.\nconn.".to_owned(),
        "all d\nCPU %".to_owned(),
        "all m\nCPU %".to_owned(),
        "CPU\n+ %".to_owned(),
    ]
}

/// The cells of one pace.
pub(super) fn row(point: &Point) -> Vec<String> {
    let (direct, mesh, more) = (&point.direct, &point.mesh, &point.increase);
    let pages = match point.load {
        Pace::Open(rate) => rate.to_string(),
        // As many as each way manages.
        Pace::Closed(pages) => format!(
            "{:.0} d, {:.0} m\n({pages} at once)",
            direct.pages_per_s, mesh.pages_per_s
        ),
    };
    let (d, m) = (&direct.cpu_percent, &mesh.cpu_percent);
    vec![
        pages,
        format!("{:.0}", mesh.calls_per_s),
        format!("{:.2}", direct.rt_ms.mean),
        format!("{:.2}", mesh.rt_ms.mean),
        format!("{:.2}", more.rt_ms),
        format!("{:.0}", more.rt_us_per_call),
        format!("{:.1}", d.glue),
        format!("{:.1}", m.glue),
        format!("{:.1}", m.proxy),
        format!("{:.1}", d.provider),
        format!("{:.1}", m.provider),
        format!("{:.0}", mesh.provider_connections),
        format!("{:.1}", d.whole()),
        format!("{:.1}", m.whole()),
        more.cpu_percent
            .map_or_else(|| "-".to_owned(), |more| format!("{more:.0}")),
    ]
}

/// What the table does not say.
pub(super) fn sentences(evaluation: &Evaluation) -> Vec<String> {
    let mut said = Vec::new();
    for (way, bend) in &evaluation.rt_ms_by_rate {
        said.push(growth(way, bend));
    }
    for point in &evaluation.points {
        if let Some(many) = &point.many {
            said.push(contrast(&point.direct, &point.mesh, many));
        }
    }
    if !evaluation.left_out.is_empty() {
        let rates: Vec<_> = evaluation.left_out.iter().map(u64::to_string).collect();
        said.push(format!(
            "Not measured, as the rate before was too much for this machine: {} pages a second.",
            rates.join(", ")
        ));
    }
    for (failure, pages) in &evaluation.failed_pages {
        said.push(format!("{pages} pages failed: {failure}"));
    }
    said.push(
        "RT is the mean, from the time a page was due. CPU is in percent of one core; the loader's \
         own is left out."
            .to_owned(),
    );
    said
}

fn growth(way: &str, bend: &Bend) -> String {
    let (line, until) = (&bend.line, bend.until);
    let held = format!(
        "RT {way}: {:.2} ms {} {:.2} ms for each 100 pages a second",
        line.intercept,
        if line.slope < 0.0 { "less" } else { "and" },
        line.slope.abs() * 100.0
    );
    match bend.from {
        Some(from) => format!("{held}, up to {until:.0}; from {from:.0} on it leaves that line."),
        None => format!("{held}; a straight line up to {until:.0}, the highest rate."),
    }
}

fn contrast(direct: &Figures, mesh: &Figures, many: &Figures) -> String {
    let cost = |figures: &Figures| {
        format!(
            "{:.1} µs of the provider's CPU a call over {:.0} connection{}",
            figures.cpu_us_per_call().provider,
            figures.provider_connections,
            if figures.provider_connections > 1.0 {
                "s"
            } else {
                ""
            }
        )
    };
    format!(
        "A connection for each call in flight: {}; direct over a shared one: {}; mesh: {}.",
        cost(many),
        cost(direct),
        cost(mesh)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluation::tests::evaluation;

    #[test]
    fn the_table_has_every_pace_and_the_sentences_what_follows() {
        let evaluation = evaluation();
        let text = Text(&evaluation).to_string();
        for wanted in [
            "21 calls one after another",
            " 20 ┆    2100 ┆  1.00 ┆  3.10 ┆      2.10 ┆     100 ┆",
            " 160 ┆    2100 ┆  4.00 ┆",
            "(100 at once)",
            "RT direct: 0.95 ms and 0.32 ms for each 100 pages a second, up to 80; from 160 on",
            "RT mesh: ",
            "Not measured, as the rate before was too much for this machine: 320 pages a second.",
            "A connection for each call in flight: 47.6 µs",
        ] {
            assert!(text.contains(wanted), "no {wanted}\n{text}");
        }
        for point in &evaluation.points {
            assert_eq!(row(point).len(), head(&evaluation).len());
        }
    }
}
