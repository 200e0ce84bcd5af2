//! Plots as SVG that needs no font of its own.

use std::io;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;

/// Why there is no picture.
pub(crate) type Error = DrawingAreaErrorKind<io::Error>;

/// A line of a plot.
pub(crate) struct Series<X> {
    name: String,
    color: RGBColor,
    dashed: bool,
    points: Vec<(X, f64)>,
}

/// What a plot shows its values against.
struct Axis<'a, X, V> {
    range: X,
    name: &'static str,
    labels: usize,
    label: &'a dyn Fn(&V) -> String,
}

/// A plot against a number that begins at 0, such as a rate or a time.
pub(crate) fn by_number(
    x: &'static str,
    end: f64,
    y: &str,
    series: &[Series<f64>],
) -> Result<String, Error> {
    let axis = Axis {
        range: 0.0..end * 1.03 + 1.0,
        name: x,
        labels: 10,
        label: &|x| short(*x),
    };
    plot(axis, y, series)
}

/// A plot against names, of which the first is 0.
pub(crate) fn by_name(
    x: &'static str,
    names: &[&str],
    y: &str,
    series: &[Series<i32>],
) -> Result<String, Error> {
    let label = |at: &i32| {
        let name = usize::try_from(*at).ok().and_then(|at| names.get(at));
        name.map_or_else(String::new, |&name| name.to_owned())
    };
    let last = names.len().saturating_sub(1).max(1);
    let axis = Axis {
        range: 0..i32::try_from(last).unwrap_or(i32::MAX),
        name: x,
        labels: names.len(),
        label: &label,
    };
    plot(axis, y, series)
}

/// A plot of `what`.
fn plot<X, V>(axis: Axis<'_, X, V>, what: &str, series: &[Series<V>]) -> Result<String, Error>
where
    X: AsRangedCoord<Value = V>,
    X::CoordDescType: ValueFormatter<V>,
    V: Clone + 'static,
{
    let points = series.iter().flat_map(|one| &one.points);
    let highest = points.map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(axis.range, 0.0..highest * HEADROOM)?;
        chart
            .configure_mesh()
            .x_labels(axis.labels)
            .x_label_formatter(axis.label)
            .y_label_formatter(&|y| short(*y))
            .x_desc(axis.name)
            .y_desc(what)
            .label_style(TEXT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        draw(&mut chart, series)?;
        root.present()?;
    }
    Ok(svg)
}

fn draw<'a, 'b: 'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    series: &[Series<X::ValueType>],
) -> Result<(), Error>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    X::ValueType: Clone + 'static,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    for one in series.iter().filter(|one| !one.points.is_empty()) {
        let (style, points) = (one.color.stroke_width(2), one.points.iter().cloned());
        let drawn = if one.dashed {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?
        } else {
            let line = LineSeries::new(points, style);
            chart.draw_series(line.point_size(3))?
        };
        let (color, dashed) = (one.color, one.dashed);
        drawn.label(one.name.as_str()).legend(move |(x, y)| {
            // The sample of a dashed line is two of its dashes.
            let middle = if dashed {
                (x + 7, x + 11)
            } else {
                (x + 9, x + 9)
            };
            let halves = [
                vec![(x, y), (middle.0, y)],
                vec![(middle.1, y), (x + 18, y)],
            ];
            let [first, second] = halves.map(|ends| PathElement::new(ends, color.stroke_width(2)));
            EmptyElement::at((0, 0)) + first + second
        });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(TEXT)
        .draw()
}

/// As few digits as tell it.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.995 => format!("{value:.2}"),
        ..9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl<X> From<(&str, RGBColor, bool, Vec<(X, f64)>)> for Series<X> {
    fn from((name, color, dashed, points): (&str, RGBColor, bool, Vec<(X, f64)>)) -> Self {
        Self {
            name: name.to_owned(),
            color,
            dashed,
            points,
        }
    }
}

/// Pixels.
const SIZE: (u32, u32) = (760, 400);
/// Where the axis of values ends, of the highest one: above it is room for the legend.
const HEADROOM: f64 = 1.4;
const TEXT: (&str, i32) = ("sans-serif", 13);
// Colours that stay apart for those who see fewer of them (Okabe and Ito).
pub(crate) const DIRECT: RGBColor = RGBColor(0, 114, 178);
pub(crate) const MESH: RGBColor = RGBColor(213, 94, 0);
pub(crate) const PROXY: RGBColor = RGBColor(0, 158, 115);
pub(crate) const MANY: RGBColor = RGBColor(204, 121, 167);
pub(crate) const OTHER: RGBColor = RGBColor(110, 110, 110);
