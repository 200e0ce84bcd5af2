//! What follows an attempt that brought no answer of a method.

use super::Route;
use crate::error::{Code, Executed};

/// How an attempt ended that brought no answer of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was not sent.
    Unsent,
    /// Its connection was lost when it may have run.
    Broken,
    /// It did not run: who got it lacks the service or has no room.
    Declined,
    /// The mesh answered.
    Code(Code),
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask for a route again.
    Route,
    /// Ask for a route again, and after a pause go to the providers that it has been to.
    Again,
    /// By the sidecar once more.
    Sidecar,
    /// To a provider that this call has not tried.
    Direct,
    /// Nothing: the call has failed.
    Fail,
}

/// What a call has been through: attempts that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tries {
    /// Attempts by the sidecar.
    pub sidecar: u32,
    /// Attempts direct.
    pub direct: u32,
}

impl Ending {
    /// Whether the method may have run.
    #[must_use]
    pub fn may_have_run(self) -> bool {
        match self {
            Self::Unsent | Self::Declined => false,
            Self::Broken => true,
            Self::Code(code) => code.executed() != Executed::No,
        }
    }

    /// What follows, after an attempt that went `by`. `known`: whether the call has providers left
    /// that it did not try.
    #[must_use]
    pub fn next(self, by: Route, tries: Tries, idempotent: bool, known: bool) -> Next {
        if self.may_have_run() && !idempotent || tries.sidecar + tries.direct >= MAX_TRIES {
            return Next::Fail;
        }
        let direct = if known { Next::Direct } else { Next::Fail };
        // Those that it has been to may be back.
        let again = if known { Next::Direct } else { Next::Again };
        let by_sidecar = by != Route::Direct;
        match self {
            // Whoever keeps the link has been told, and knows where else.
            Self::Unsent | Self::Broken if by_sidecar => Next::Route,
            Self::Unsent | Self::Broken => again,
            Self::Declined if by_sidecar => Next::Fail,
            Self::Declined => direct,
            Self::Code(code) => match code {
                // A provider's own sidecar says what we would see without it.
                Code::Unreachable | Code::ConnectionLost if !by_sidecar => again,
                Code::NoRoute | Code::NoHealthyUpstream | Code::Unreachable => direct,
                Code::ConnectionLost | Code::BadAnswer if by_sidecar && tries.sidecar < 2 => {
                    Next::Sidecar
                }
                Code::ConnectionLost | Code::BadAnswer => direct,
                // The mesh protects the providers of a service, and one provider itself.
                Code::Overflow if by_sidecar => Next::Fail,
                Code::Overflow => direct,
                Code::BadCall => Next::Fail,
            },
        }
    }
}

/// Most attempts of one call that are sent: to the ten providers that are known, and a few more.
const MAX_TRIES: u32 = 16;
