//! How a service is named: `group/interface:version`.

use std::{fmt, str::FromStr};

/// The name of a service: interface, with group and version where there are any.
///
/// Prints as Dubbo prints it, `group/interface:version`, empty parts left out. The versions
/// `0.0.0` and `*` count as empty. Source: apache/dubbo, `GroupServiceKeyCache`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceKey {
    group: Box<str>,
    interface: Box<str>,
    version: Box<str>,
}

/// A key of borrowed parts, as they stand in a frame: hashes as the [`ServiceKey`] it equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    group: &'a [u8],
    interface: &'a [u8],
    version: &'a [u8],
}

/// Why a text is no service key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing stands where the interface should.
    #[error("service key {0:?} has no interface; write group/interface:version")]
    NoInterface(String),
    /// More separators than parts, blanks or control characters.
    #[error("service key {0:?} is malformed; write group/interface:version")]
    Malformed(String),
}

impl ServiceKey {
    /// A key of its parts; `None` or an empty text where there is none.
    #[must_use]
    pub fn new(group: &str, interface: &str, version: &str) -> Self {
        Self {
            group: group.into(),
            interface: interface.into(),
            version: if is_any(version.as_bytes()) {
                ""
            } else {
                version
            }
            .into(),
        }
    }

    /// The group, empty if none.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The version, empty if none.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The same key, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef {
            group: self.group.as_bytes(),
            interface: self.interface.as_bytes(),
            version: self.version.as_bytes(),
        }
    }
}

impl<'a> KeyRef<'a> {
    /// A key of its parts, as bytes of the wire.
    #[inline]
    #[must_use]
    pub fn new(group: &'a [u8], interface: &'a [u8], version: &'a [u8]) -> Self {
        Self {
            group,
            interface,
            version: if is_any(version) { b"" } else { version },
        }
    }

    /// The interface alone: the key without group and version.
    #[must_use]
    pub fn bare(self) -> Self {
        Self {
            group: b"",
            interface: self.interface,
            version: b"",
        }
    }
}

impl PartialEq<ServiceKey> for KeyRef<'_> {
    #[inline]
    fn eq(&self, other: &ServiceKey) -> bool {
        *self == other.as_ref()
    }
}

impl std::hash::Hash for ServiceKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl std::hash::Hash for KeyRef<'_> {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(self.interface);
        state.write(self.group);
        state.write(self.version);
        state.write_usize((self.group.len() << 16) ^ self.version.len());
    }
}

impl FromStr for ServiceKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (group, rest) = text.split_once('/').unwrap_or(("", text));
        let (interface, version) = rest.split_once(':').unwrap_or((rest, ""));
        if interface.is_empty() {
            return Err(Error::NoInterface(text.into()));
        }
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
        if group.contains(odd) || interface.contains(odd) || version.contains(odd) {
            return Err(Error::Malformed(text.into()));
        }
        Ok(Self::new(group, interface, version))
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Display for KeyRef<'_> {
    /// Bytes that are no UTF-8 print as replacement signs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", String::from_utf8_lossy(self.group))?;
        }
        write!(f, "{}", String::from_utf8_lossy(self.interface))?;
        if !self.version.is_empty() {
            write!(f, ":{}", String::from_utf8_lossy(self.version))?;
        }
        Ok(())
    }
}

/// Whether a version means "none".
fn is_any(version: &[u8]) -> bool {
    matches!(version, b"" | b"0.0.0" | b"*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_print_as_dubbo_prints_them() {
        for (text, printed) in [
            ("com.foo.Bar", "com.foo.Bar"),
            ("com.foo.Bar:1.0.0", "com.foo.Bar:1.0.0"),
            ("g/com.foo.Bar", "g/com.foo.Bar"),
            ("g/com.foo.Bar:1.0.0", "g/com.foo.Bar:1.0.0"),
            ("g/com.foo.Bar:0.0.0", "g/com.foo.Bar"),
            ("com.foo.Bar:*", "com.foo.Bar"),
        ] {
            assert_eq!(
                text.parse::<ServiceKey>().map(|k| k.to_string()),
                Ok(printed.into())
            );
        }
    }

    #[test]
    fn malformed_keys_are_refused() {
        for text in ["", "g/", ":1", "g/:1", "a/b/c", "a:b:c", "a b", "a\n"] {
            assert!(text.parse::<ServiceKey>().is_err(), "{text:?}");
        }
    }
}
