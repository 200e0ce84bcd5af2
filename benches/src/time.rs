//! The clock, and how a time is written on the command line.

use std::time::{Duration, Instant};

/// What the clock says.
#[expect(
    clippy::disallowed_methods,
    reason = "the drivers of this crate read the clock here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Reads a time such as `500us`, `2ms`, `1.5s` or `1m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(format!("`{text}` needs a unit: us, ms, s or m")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("`{digits}` is not a number"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|e| format!("`{text}`: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["10", "ms", "-1s", "1h", "infs", "1e400s", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
