//! What can be wrong with the bytes of a body, in whatever serialization.

/// A flaw, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{flaw} at byte {offset}")]
pub struct Error {
    /// What is wrong.
    pub flaw: Flaw,
    /// Bytes of the body before the flaw.
    pub offset: usize,
}

/// What is wrong. A peer that sends it is broken or hostile; nothing after it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The body ends inside a value.
    #[error("truncated")]
    Truncated,
    /// No value of the serialization starts with this byte.
    #[error("reserved tag {0:#04x}")]
    Tag(u8),
    /// A value stands here, but not of the kind that must.
    #[error("not a {0}")]
    Not(&'static str),
    /// A length below zero.
    #[error("negative length")]
    Negative,
    /// A length that the bytes left cannot hold.
    #[error("length exceeds the bytes left")]
    TooLong,
    /// Bytes that are no characters.
    #[error("bad text")]
    Text,
    /// A key without its value.
    #[error("odd map")]
    OddMap,
    /// No class, type or symbol has this number.
    #[error("{0} out of range")]
    Index(&'static str),
    /// A reference to what has not started yet.
    #[error("reference out of range")]
    Reference,
    /// More than a limit allows; it is named.
    #[error("too many {0}")]
    Limit(&'static str),
    /// A type descriptor that does not follow the JVM's grammar.
    #[error("bad descriptor")]
    Descriptor,
    /// An item is longer than the value in it.
    #[error("bytes after the value")]
    Trailing,
}

impl Flaw {
    /// The flaw, found `offset` bytes into the body.
    #[must_use]
    pub const fn at(self, offset: usize) -> Error {
        Error { flaw: self, offset }
    }
}
