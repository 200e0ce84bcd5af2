//! What follows from numbers that were measured: medians, lines, and where a line ends.

use serde::{Deserialize, Serialize};

/// The middle one of `values`, between the two middle ones if their number is even; `None` of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(match values.len() % 2 {
        _ if values.is_empty() => return None,
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    })
}

/// The smallest of `values` that at least such a share of them does not exceed; `None` of none.
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let below = |at: &usize| count(*at + 1) >= share * count(values.len());
    let at = (0..sorted.len()).find(below)?;
    sorted.get(at).copied()
}

/// `y` at `x`, straight between the two `points` around it; the first or last one's beyond them.
/// `points` ascend by x. `None` of none.
pub(crate) fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.iter().position(|(at, _)| *at >= x);
    match after {
        None => points.last().map(|(_, y)| *y),
        Some(0) => points.first().map(|(_, y)| *y),
        Some(after) => {
            let ((x0, y0), (x1, y1)) = (points[after - 1], points[after]);
            Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        }
    }
}

/// A straight line through points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// y where x is 0.
    pub(crate) intercept: f64,
    /// y per x.
    pub(crate) slope: f64,
    /// The residuals' standard deviation, in the unit of y.
    pub(crate) residual: f64,
}

impl Line {
    /// The line of least squares; `None` of points with less than two different x.
    pub(crate) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = count(points.len());
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|(x, _)| (x - mx).powi(2)).sum();
        if points.is_empty() || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum::<f64>() / spread;
        let intercept = my - slope * mx;
        let squares: f64 = points
            .iter()
            .map(|(x, y)| (y - intercept - slope * x).powi(2))
            .sum();
        // Two points are spent on the line itself.
        let residual = (squares / (n - 2.0).max(1.0)).sqrt();
        Some(Self {
            intercept,
            slope,
            residual,
        })
    }

    /// y at `x`.
    pub(crate) fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// A line through the first of some points, as far as it holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bend {
    /// Through the points before the bend.
    pub(crate) line: Line,
    /// x of the last point that it holds for.
    pub(crate) until: f64,
    /// x of the first point that lies above it with all that follow, if there is one.
    pub(crate) from: Option<f64>,
}

impl Bend {
    /// Where the points, ascending by x, leave the line of those before upwards and stay away.
    ///
    /// A single high point between others is noise and no bend. A point is high if it lies above
    /// the line by more than a fifth of it, and by more than the points that made the line scatter.
    /// `None` of less than three points, which make no line that another could leave.
    pub(crate) fn of(points: &[(f64, f64)]) -> Option<Self> {
        for first in FEWEST..points.len() {
            let line = Line::through(&points[..first])?;
            let high = |(x, y): &(f64, f64)| {
                let expected = line.at(*x);
                y - expected > (expected.abs() * TOLERANCE).max(SIGMAS * line.residual)
            };
            if points[first..].iter().all(high) {
                return Some(Self {
                    line,
                    until: points[first - 1].0,
                    from: Some(points[first].0),
                });
            }
        }
        let last = points.get(FEWEST - 1..)?.last()?;
        Some(Self {
            line: Line::through(points)?,
            until: last.0,
            from: None,
        })
    }
}

/// A count as a number to work with.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub(crate) fn count(n: impl TryInto<u64>) -> f64 {
    n.try_into().unwrap_or(u64::MAX) as f64
}

/// Points that make a line.
const FEWEST: usize = 3;
/// What a point may lie above a line, as a share of it.
const TOLERANCE: f64 = 0.2;
/// What it may lie above it, in standard deviations of the points that made the line.
const SIGMAS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<_> = (1..=100).rev().map(f64::from).collect();
        for (share, value) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            assert_eq!(percentile(&hundred, share), Some(value));
        }
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn between_points_it_is_straight_and_beyond_them_level() {
        let points = [(10.0, 1.0), (20.0, 3.0)];
        for (x, y) in [
            (0.0, 1.0),
            (10.0, 1.0),
            (15.0, 2.0),
            (20.0, 3.0),
            (99.0, 3.0),
        ] {
            assert_eq!(between(&points, x), Some(y), "{x}");
        }
        assert_eq!(between(&[], 1.0), None);
    }

    #[test]
    fn a_line_of_least_squares() {
        let exact = Line::through(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]).expect("a line");
        assert!((exact.intercept - 3.0).abs() < 1e-9 && (exact.slope - 2.0).abs() < 1e-9);
        assert!(exact.residual < 1e-9);
        // By hand: means 2 and 3; 1/2 per x; residuals 1/2, -1, 1/2, so sqrt(1.5 / 1).
        let rough = Line::through(&[(1.0, 3.0), (2.0, 2.0), (3.0, 4.0)]).expect("a line");
        assert!((rough.at(2.0) - 3.0).abs() < 1e-9 && (rough.slope - 0.5).abs() < 1e-9);
        assert!((rough.residual - 1.5f64.sqrt()).abs() < 1e-9);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[]), None);
    }

    fn points(ys: &[f64]) -> Vec<(f64, f64)> {
        ys.iter()
            .enumerate()
            .map(|(i, y)| (count(10 * (i + 1)), *y))
            .collect()
    }

    #[test]
    fn a_bend_is_where_points_leave_the_line_for_good() {
        let cases: &[(&[f64], f64, Option<f64>)] = &[
            (&[1.0, 1.1, 1.2, 1.3, 1.4], 50.0, None),
            (&[1.0, 1.1, 1.2, 1.3, 2.5, 9.0], 40.0, Some(50.0)),
            // one high point is noise
            (&[1.0, 1.1, 1.2, 3.0, 1.4, 1.5], 60.0, None),
            // low ones are no saturation
            (&[2.0, 2.0, 2.0, 1.0, 1.0], 50.0, None),
            // within what the first points scatter
            (&[1.0, 2.0, 1.0, 2.2], 40.0, None),
            (&[1.0, 1.0, 1.0, 1.3], 30.0, Some(40.0)),
            (&[1.0, 1.0, 1.0, 1.15], 40.0, None),
        ];
        for (ys, until, from) in cases {
            let bend = Bend::of(&points(ys)).expect("a line");
            assert_eq!((bend.until, bend.from), (*until, *from), "{ys:?}");
        }
        assert_eq!(Bend::of(&points(&[1.0, 2.0])), None);
    }

    #[test]
    fn the_line_of_a_bend_is_of_what_comes_before() {
        let bend = Bend::of(&points(&[1.0, 2.0, 3.0, 4.0, 40.0])).expect("a line");
        assert!((bend.line.slope - 0.1).abs() < 1e-9, "{bend:?}");
    }
}
