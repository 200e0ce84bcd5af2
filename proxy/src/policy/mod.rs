//! Decisions, pure: they are told facts and answer an index or an enum; they never see a socket.

pub(crate) mod balance;
pub(crate) mod preference;
pub(crate) mod retry;
pub(crate) mod timeout;
