//! Which content of a resource a client holds.

use std::{fmt, str::FromStr};

/// Stands for the content of a resource, or of all of a type that a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(u64);

/// The text is no version of ours: whoever sent it holds something of another control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a version of sixteen hexadecimal digits")]
pub struct Unknown;

impl Version {
    /// The version that this digest of a model stands for.
    #[must_use]
    pub const fn new(digest: u64) -> Self {
        Self(digest)
    }

    /// The digest.
    #[must_use]
    pub const fn digest(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Version {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(digest) if digits => Ok(Self(digest)),
            _ => Err(Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_print_and_no_other_text_is_one() {
        for digest in [0, 1, u64::MAX] {
            let version = Version::new(digest);
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in [
            "",
            "1",
            "+000000000000001",
            "00000000000000001",
            "g000000000000000",
        ] {
            assert_eq!(text.parse::<Version>(), Err(Unknown), "{text}");
        }
    }
}
