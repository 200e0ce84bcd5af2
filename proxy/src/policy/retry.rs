//! Whether a failed attempt may be followed by another.

use crate::{
    call::{Again, Call, Failure},
    config::fixed,
};

/// Decides after a failed attempt, and counts the further try it grants.
///
/// `retries` counts further tries, as in Dubbo; a call that was certainly not sent does not spend
/// one. The deadline bounds both.
pub(crate) fn grant(call: &mut Call, failure: Failure) -> bool {
    match failure.facts().again {
        Again::Never => false,
        Again::Always => {
            call.moves += 1;
            call.moves <= fixed::MOVES
        }
        Again::IfIdempotent => {
            let granted = call.idempotent && call.retries > 0;
            call.retries -= u32::from(granted);
            granted
        }
    }
}
