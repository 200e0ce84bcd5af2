//! Bounds that no key changes: of what waits inside the process, and of what is only remembered.

/// Defines the bounds, and their list for the documentation, from one table.
macro_rules! fixed {
    ($(#[doc = $doc:literal] $NAME:ident: $type:ty as $kind:ident = $value:expr;)+) => {
        $(#[doc = $doc] pub(crate) const $NAME: $type = $value;)+

        /// What each one bounds, and where, as `docs/config.md` says it.
        #[cfg(test)]
        pub(super) fn all() -> Vec<(String, String)> {
            use super::quantity::{bytes, count};
            vec![$(($doc.trim_matches([' ', '.']).to_owned(), $kind::print($value as usize))),+]
        }
    };
}

fixed! {
    /// Bytes of a configuration file.
    CONFIG_FILE: u64 as bytes = 64 << 20;
    /// Keys and values of a configuration file.
    CONFIG_NODES: usize as count = 8_000_000;
    /// Bytes of the dependencies' file for each of `limits.declared_services`.
    DECLARED_SERVICE: u64 as bytes = 1 << 10;
    /// Bytes of one service in the copy on disk.
    COPIED_SERVICE: u64 as bytes = 16 << 20;
    /// Services asked for by calls that the control plane's client has not looked at.
    ASKS: usize as count = 1024;
    /// Times one call goes on to another provider without having been sent.
    MOVES: u32 as count = 16;
    /// Bytes of the head of a request to the admin.
    ADMIN_HEAD: usize as bytes = 16 << 10;
    /// Accepted connections that wait for a shard.
    ACCEPTED: usize as count = 128;
    /// Batches of frames that wait to cross to a shard.
    BATCHES: usize as count = 64;
    /// Changes of routes and of sockets that wait for a shard.
    ORDERS: usize as count = 16;
    /// Questions for counters that wait for a shard.
    SCRAPES: usize as count = 4;
    /// Groups of services that became known and wait for the shards.
    NEWS: usize as count = 64;
    /// Messages of a control plane that wait to be looked at.
    EVENTS: usize as count = 16;
    /// Messages for a control plane that wait to be sent.
    REQUESTS: usize as count = 16;
    /// Methods whose calls are remembered to be read faster, per shard.
    METHODS: usize as count = 1024;
    /// Bytes of the names of such a method, and of its attachments.
    METHOD: usize as bytes = 1024;
    /// Frames that a shard failed on and that are refused when they come again.
    QUARANTINED: usize as count = 1024;
    /// Causes that are logged while a control plane is not to be had, per server.
    TROUBLES: usize as count = 8;
    /// Reasons that a control plane is told of one refused message.
    REASONS: usize as count = 10;
    /// Resources without a reason that it is told the names of.
    REFUSED: usize as count = 1000;
}
