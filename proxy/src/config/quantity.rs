//! How sizes, counts and times are written.

use std::ops::RangeInclusive;

/// Sizes: `8MiB`, `64KiB`, `1GiB`, or bytes as a plain number.
pub(super) mod bytes {
    /// Bytes, or what is wrong with the text.
    pub(in crate::config) fn parse(text: &str) -> Result<usize, String> {
        let (number, unit) = super::split(text);
        let unit = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(format!("{text:?} is no size; write 8MiB, 64KiB or bytes")),
        };
        let number: Option<usize> = number.parse().ok();
        number
            .and_then(|n| n.checked_mul(unit))
            .ok_or_else(|| format!("{text:?} is no size; write 8MiB, 64KiB or bytes"))
    }

    /// With the largest unit that leaves a whole number.
    pub(in crate::config) fn print(bytes: usize) -> String {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if bytes != 0 && bytes.trailing_zeros() >= shift {
                return format!("{}{unit}", bytes >> shift);
            }
        }
        bytes.to_string()
    }
}

/// Counts: plain numbers.
pub(super) mod count {
    /// A number, or what is wrong with the text.
    pub(in crate::config) fn parse(text: &str) -> Result<usize, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is no whole number"))
    }

    /// In digits.
    pub(in crate::config) fn print(count: usize) -> String {
        count.to_string()
    }
}

/// Times: `500ms`, `1s`, `5m`, `1h`; a unit is required, because nobody remembers which it would be.
pub(super) mod time {
    use std::time::Duration;

    /// A time, or what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Duration, String> {
        let (number, unit) = super::split(text);
        let number: Option<u64> = number.parse().ok();
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "" => return Err(format!("{text:?} has no unit; write {text}s or {text}ms")),
            _ => return Err(format!("{text:?} is no time; write 500ms, 1s, 5m or 1h")),
        };
        number
            .and_then(|n| n.checked_mul(millis))
            .map(Duration::from_millis)
            .ok_or_else(|| format!("{text:?} is no time; write 500ms, 1s, 5m or 1h"))
    }

    /// With the largest unit that leaves a whole number.
    pub(in crate::config) fn print(time: Duration) -> String {
        let millis = time.as_millis();
        for (factor, unit) in [(3_600_000, "h"), (60_000, "m"), (1000, "s")] {
            if millis != 0 && millis.is_multiple_of(factor) {
                return format!("{}{unit}", millis / factor);
            }
        }
        format!("{millis}ms")
    }
}

/// `value` if the range holds it, else what the range is.
pub(super) fn within<T: PartialOrd + Copy>(
    value: T,
    range: RangeInclusive<T>,
    print: impl Fn(T) -> String,
) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (print(*range.start()), print(*range.end()));
    Err(format!(
        "{} is out of range; write {least} to {most}",
        print(value)
    ))
}

/// Leading digits, and the rest.
fn split(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sizes_read_as_they_print() {
        for (text, value) in [
            ("0", 0),
            ("1000", 1000),
            ("8MiB", 8 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(bytes::parse(text), Ok(value));
            assert_eq!(bytes::print(value), text);
        }
        assert_eq!(bytes::parse("10B"), Ok(10));
        for text in [
            "",
            "8MB",
            "-1",
            "8 MiB",
            "1.5MiB",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(bytes::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_read_as_they_print() {
        for (text, millis) in [
            ("0ms", 0),
            ("1500ms", 1500),
            ("61s", 61_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(time::parse(text), Ok(Duration::from_millis(millis)));
            assert_eq!(time::print(Duration::from_millis(millis)), text);
        }
        for text in [
            "",
            "s",
            "1",
            "1 s",
            "-1s",
            "1.5s",
            "1d",
            "18446744073709551615h",
        ] {
            assert!(time::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            time::parse("5"),
            Err("\"5\" has no unit; write 5s or 5ms".into())
        );
    }

    #[test]
    fn a_range_holds_its_ends() {
        assert_eq!(within(1, 1..=3, count::print), Ok(1));
        assert_eq!(within(3, 1..=3, count::print), Ok(3));
        assert_eq!(
            within(4, 1..=3, count::print),
            Err("4 is out of range; write 1 to 3".into())
        );
    }
}
