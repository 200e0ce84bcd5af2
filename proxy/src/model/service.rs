//! A service: where it is provided and how it may be called.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, str::FromStr, time::Duration};

use dubbo_proto::key::ServiceKey;

/// A service as configured. Immutable; shared by all calls behind an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub key: ServiceKey,
    /// Whether the key, a bare interface, stands for every group and version of it.
    pub wildcard: bool,
    /// Where it is provided, at least one, no address twice.
    pub endpoints: Vec<Endpoint>,
    /// Time for a whole call, further tries included, where the caller names none.
    pub timeout: Option<Duration>,
    /// Further tries after the first one fails. Default 2, as in Dubbo.
    pub retries: u32,
    /// Which methods may be sent again after they may have run.
    pub idempotent: Idempotent,
    /// How a host is chosen.
    pub balance: Balance,
}

impl Service {
    /// A service of this name with every default, provided nowhere yet.
    #[must_use]
    pub fn new(key: ServiceKey) -> Self {
        Self {
            key,
            wildcard: false,
            endpoints: Vec::new(),
            timeout: None,
            retries: Self::RETRIES,
            idempotent: Idempotent::default(),
            balance: Balance::default(),
        }
    }

    /// Further tries by default, as in Dubbo.
    pub const RETRIES: u32 = 2;
    /// Most further tries: beyond it, they are an attack on what is left of a service.
    pub const MAX_RETRIES: u32 = 10;
    /// What a timeout may be: from what a timer can tell to a day.
    pub const TIMEOUTS: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_secs(86_400);
}

/// Which methods of a service may be sent again after they may have run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Idempotent {
    /// None of them.
    #[default]
    None,
    /// All of them.
    All,
    /// These alone; sorted, at least one, none twice.
    Methods(Box<[Box<str>]>),
}

impl Idempotent {
    /// Whether `method`, as it stands in a frame, may be sent again.
    #[must_use]
    pub fn permits(&self, method: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Methods(methods) => methods
                .binary_search_by(|known| known.as_bytes().cmp(method))
                .is_ok(),
        }
    }
}

/// How a host is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// By chance, in proportion to the weights.
    #[default]
    Random,
    /// The one of two, drawn by weight, that has fewer calls in flight.
    LeastRequest,
}

impl Balance {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Random, Self::LeastRequest];

    /// As the configuration writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::LeastRequest => "least_request",
        }
    }
}

/// One provider of a service, as told by configuration or control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: Address,
    /// What else is said of it.
    pub profile: Profile,
}

/// What a service is told of one of its providers, beside the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its share of the calls, in proportion to the others'; 1 to 10,000, default 100 as in Dubbo.
    pub weight: u32,
    /// Whether a sidecar of the mesh listens there, whose failure codes are ours to handle.
    pub mesh: bool,
    /// Where the application itself listens, if a sidecar stands before it: for whoever goes there
    /// without the mesh.
    pub direct: Option<SocketAddr>,
    /// Whether it should take calls. One that should not takes them while no other can.
    pub healthy: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            weight: Self::WEIGHT,
            mesh: false,
            direct: None,
            healthy: true,
        }
    }
}

impl Profile {
    /// The weight of one that names none, as in Dubbo.
    pub const WEIGHT: u32 = 100;
    /// The largest weight, which keeps the sum of a service's far from overflow.
    pub const MAX_WEIGHT: u32 = 10_000;
}

/// Where a provider listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A name, which is resolved again and again, and a port.
    Name {
        /// The name, lower case.
        host: Box<str>,
        /// The port, not 0.
        port: u16,
    },
}

/// Why a text is no address of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no colon before a port.
    #[error("{0:?} has no port; write IP:port or name:port")]
    NoPort(String),
    /// The port is no number of 1 to 65535.
    #[error("{0:?} has no port of 1 to 65535")]
    Port(String),
    /// The host is neither an address nor a name of letters, digits, hyphens and dots.
    #[error("{0:?} names no host; write IP:port, [IPv6]:port or name:port")]
    Host(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(AddressError::Port(text.into())),
                _ => Ok(Self::Ip(address)),
            };
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| AddressError::NoPort(text.into()))?;
        let port = match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(AddressError::Port(text.into())),
        };
        if !is_name(host) {
            return Err(AddressError::Host(text.into()));
        }
        Ok(Self::Name {
            host: host.to_ascii_lowercase().into(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Whether `host` can be a name: labels of letters, digits, hyphens and underscores, which service
/// names of container platforms carry. Digits and dots alone are a mistyped address, not a name.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.len() <= MAX_NAME
        && host.strip_suffix('.').unwrap_or(host).split('.').all(label)
        && host.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Bytes of the longest name, RFC 1035.
const MAX_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_are_written() {
        for text in [
            "127.0.0.1:20880",
            "[2001:db8::1]:20880",
            "orders.shop.svc:20880",
            "a_b:1",
        ] {
            assert_eq!(
                text.parse::<Address>().map(|a| a.to_string()),
                Ok(text.into())
            );
        }
        assert_eq!(
            "Orders:1".parse::<Address>().map(|a| a.to_string()),
            Ok("orders:1".into())
        );
    }

    #[test]
    fn texts_that_are_no_address_say_what_is_wrong() {
        use AddressError::{Host, NoPort, Port};
        for (text, error) in [
            ("127.0.0.1", NoPort("127.0.0.1".into())),
            ("", NoPort("".into())),
            ("127.0.0.1:0", Port("127.0.0.1:0".into())),
            ("name:0", Port("name:0".into())),
            ("name:65536", Port("name:65536".into())),
            ("127.0.0.300:1", Host("127.0.0.300:1".into())),
            (":1", Host(":1".into())),
            ("a b:1", Host("a b:1".into())),
            ("::1:20880", Host("::1:20880".into())),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error));
        }
    }

    #[test]
    fn methods_are_permitted_by_their_whole_name() {
        let some = Idempotent::Methods(["find".into(), "get".into()].into());
        assert!(some.permits(b"get") && some.permits(b"find"));
        assert!(!some.permits(b"ge") && !some.permits(b"getAll") && !some.permits(b""));
        assert!(Idempotent::All.permits(b"x") && !Idempotent::None.permits(b"x"));
    }
}
