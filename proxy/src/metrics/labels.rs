//! The values that labels take: closed enums, so that no series can appear by accident.

use std::ops::{Index, IndexMut};

use crate::call::Failure;

/// The values of one label.
pub trait Label: Copy + 'static {
    /// One counter per value.
    type Counters: AsRef<[u64]> + AsMut<[u64]> + Default + Clone + std::fmt::Debug + PartialEq;
    /// The label's name.
    const NAME: &'static str;
    /// Every value, in the order of [`Self::index`].
    const ALL: &'static [Self];
    /// The value as text.
    fn as_str(self) -> &'static str;
    /// Where the value stands in [`Self::ALL`].
    fn index(self) -> usize;
}

/// One counter per value of a label.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts<L: Label>(L::Counters);

impl<L: Label> Counts<L> {
    /// Each value with its counter.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> + '_ {
        L::ALL.iter().copied().zip(self.0.as_ref().iter().copied())
    }

    /// All counters together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.as_ref().iter().sum()
    }

    /// Adds the counters of another.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.as_mut().iter_mut().zip(other.0.as_ref()) {
            *mine += theirs;
        }
    }
}

impl<L: Label> Default for Counts<L> {
    fn default() -> Self {
        Self(L::Counters::default())
    }
}

impl<L: Label> Index<L> for Counts<L> {
    type Output = u64;

    fn index(&self, label: L) -> &u64 {
        &self.0.as_ref()[label.index()]
    }
}

impl<L: Label> IndexMut<L> for Counts<L> {
    fn index_mut(&mut self, label: L) -> &mut u64 {
        &mut self.0.as_mut()[label.index()]
    }
}

/// Defines the enum of one label.
macro_rules! labels {
    ($($(#[doc = $doc:literal])+ $name:ident as $label:literal {
        $($(#[doc = $value_doc:literal])+ $value:ident = $text:literal,)+
    })+) => {
        $($(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $value_doc])+ $value,)+
        }

        impl Label for $name {
            type Counters = [u64; [$($text),+].len()];
            const NAME: &'static str = $label;
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        })+
    };
}

labels! {
    /// How a call ended for its caller.
    Outcome as "outcome" {
        /// The provider answered with a value or nothing.
        Ok = "ok",
        /// The provider answered with an exception of the application: a success of the mesh.
        Exception = "exception",
        /// The provider answered with a status other than 20.
        Error = "error",
        /// No such service, or no rule matches.
        NoRoute = "NR",
        /// No provider takes calls.
        NoHealthyUpstream = "UH",
        /// Could not be connected, or lost before the call was written.
        UpstreamFailure = "UF",
        /// The connection was lost after the call was written.
        UpstreamClosed = "UC",
        /// The deadline passed.
        Timeout = "UT",
        /// A limit was reached or a queue full.
        Overflow = "UO",
        /// Limited by a rate, degraded, or a breaker was open.
        Limited = "RL",
        /// Not authorised.
        Unauthorised = "UAEX",
        /// The caller sent what cannot be read.
        DownstreamProtocol = "DPE",
        /// The provider sent what cannot be read.
        UpstreamProtocol = "UPE",
        /// The caller left before the answer came.
        CallerGone = "DC",
    }
    /// The status of a provider's answer, where it is not 20.
    ProviderStatus as "status" {
        /// 25.
        SerializationError = "25",
        /// 30.
        ClientTimeout = "30",
        /// 31.
        ServerTimeout = "31",
        /// 35.
        ChannelInactive = "35",
        /// 40.
        BadRequest = "40",
        /// 50.
        BadResponse = "50",
        /// 60.
        ServiceNotFound = "60",
        /// 70.
        ServiceError = "70",
        /// 80.
        ServerError = "80",
        /// 90.
        ClientError = "90",
        /// 100.
        ThreadpoolExhausted = "100",
        /// Every other.
        Other = "other",
    }
    /// Why an answer of a provider found no call.
    Stray as "kind" {
        /// Its call had ended: answered already, timed out, or left by its caller.
        Late = "late",
        /// It answers nothing that was ever sent on this connection.
        Alien = "alien",
    }
    /// Why the connection of an application or a peer ended.
    CloseReason as "reason" {
        /// The other side closed it.
        Peer = "peer",
        /// The other side reset it, or the socket failed.
        Reset = "reset",
        /// It was silent for too long.
        Silent = "silent",
        /// It did not read its answers.
        SlowReader = "slow_reader",
        /// It sent a broken frame head.
        BadHead = "bad_head",
        /// It does not speak Dubbo.
        NotDubbo = "not_dubbo",
        /// The proxy drained.
        Drain = "drain",
        /// Its shard failed.
        Panic = "panic",
    }
    /// Why the connection to a provider ended.
    LostReason as "reason" {
        /// The provider closed it.
        Peer = "peer",
        /// The provider reset it, or the socket failed.
        Reset = "reset",
        /// The provider was silent for too long.
        Silent = "silent",
        /// The provider sent a broken frame head.
        BadHead = "bad_head",
        /// No service names the provider any more.
        Removed = "removed",
        /// The proxy drained.
        Drain = "drain",
        /// Its shard failed.
        Panic = "panic",
    }
    /// How it stands with a provider.
    HostState as "state" {
        /// Nothing was ever sent to it.
        Idle = "idle",
        /// It is being connected.
        Connecting = "connecting",
        /// It takes calls.
        Connected = "connected",
        /// It said that it takes no more calls.
        ReadOnly = "read_only",
        /// It was lost or refused us, and is tried again.
        Lost = "lost",
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoRoute => Self::NoRoute,
            Failure::NoHealthyUpstream => Self::NoHealthyUpstream,
            Failure::Unreachable => Self::UpstreamFailure,
            Failure::ConnectionLost => Self::UpstreamClosed,
            Failure::Timeout => Self::Timeout,
            Failure::Overflow => Self::Overflow,
            Failure::DownstreamProtocol => Self::DownstreamProtocol,
            Failure::UpstreamProtocol => Self::UpstreamProtocol,
        }
    }
}

impl ProviderStatus {
    /// The label of a status byte.
    #[must_use]
    pub const fn of(status: dubbo_proto::head::Status) -> Self {
        match status.0 {
            25 => Self::SerializationError,
            30 => Self::ClientTimeout,
            31 => Self::ServerTimeout,
            35 => Self::ChannelInactive,
            40 => Self::BadRequest,
            50 => Self::BadResponse,
            60 => Self::ServiceNotFound,
            70 => Self::ServiceError,
            80 => Self::ServerError,
            90 => Self::ClientError,
            100 => Self::ThreadpoolExhausted,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_counter_of_its_own() {
        let mut counts = Counts::<Outcome>::default();
        for (n, &outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(outcome.index(), n);
            counts[outcome] += n as u64;
        }
        let mut twice = counts.clone();
        twice.add(&counts);
        for (n, (outcome, count)) in twice.iter().enumerate() {
            assert_eq!((outcome.index(), count), (n, 2 * n as u64));
        }
        assert_eq!(twice.total(), 2 * counts.total());
    }
}
