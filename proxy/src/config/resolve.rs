//! From what is written to what is meant: defaults filled in, every value checked.

use std::{net::SocketAddr, num::NonZeroUsize, path::Path, sync::Arc};

use dubbo_proto::key::ServiceKey;

use super::{
    ADMIN, Admin, Config, INBOUND, Inbound, Limits, Listen, LogFormat, Logging, Node, OUTBOUND,
    Outbound, Problem, Token, Xds,
    host::Host,
    problems::Problems,
    quantity,
    raw::{
        OneOrMany, Quantity, Raw, RawAdmin, RawInbound, RawLogging, RawNode, RawOutbound, RawXds,
    },
    service,
};
use crate::model::Address;

/// What values depend on beside the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// What paths are relative to.
    pub(super) dir: &'a Path,
    /// Where we are.
    pub(super) host: &'a Host,
}

/// The configuration, or all that is wrong with it.
pub(super) fn resolve(raw: &Raw, around: &Surroundings<'_>) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems::default();
    let limits = raw
        .limits
        .as_ref()
        .map_or_else(Limits::default, |raw| raw.resolve(&mut problems));
    limits.check(&mut problems);
    let outbound = outbound(raw.outbound.as_ref(), around, &mut problems);
    let ours = |address: &Address| match (address, &outbound) {
        (Address::Ip(ip), Some(outbound)) => outbound.is_ours(*ip, &around.host.addresses),
        _ => false,
    };
    let inbound = raw
        .inbound
        .as_ref()
        .and_then(|raw| inbound(raw, around, &ours, &mut problems));
    let services = raw
        .fixed
        .as_ref()
        .and_then(|fixed| fixed.services.as_deref());
    let services = service::resolve(services.unwrap_or_default(), &ours, &mut problems);
    let config = Config {
        node: node(raw.node.as_ref(), around, &mut problems),
        admin: admin(raw.admin.as_ref(), around, &mut problems),
        logging: logging(raw.logging.as_ref(), &mut problems),
        workers: workers(raw.workers.as_ref(), &mut problems),
        xds: raw
            .xds
            .as_ref()
            .and_then(|raw| xds(raw, around, &mut problems)),
        dependencies: raw.dependencies.as_ref().map(|file| around.dir.join(file)),
        quarantine: around
            .dir
            .join(raw.quarantine.as_deref().unwrap_or(QUARANTINE)),
        services: services.into_iter().map(Arc::new).collect(),
        outbound,
        inbound,
        limits,
    };
    clashes(&config, &mut problems);
    let problems = problems.into_vec();
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(problems)
    }
}

fn node(raw: Option<&RawNode>, around: &Surroundings<'_>, problems: &mut Problems) -> Node {
    let id = raw
        .and_then(|raw| raw.id.clone())
        .unwrap_or_else(|| around.host.name.clone());
    let cluster = raw
        .and_then(|raw| raw.cluster.clone())
        .unwrap_or_else(|| "default".into());
    for (path, text) in [("node.id", &id), ("node.cluster", &cluster)] {
        if text.is_empty() || text.len() > 255 || text.contains(char::is_control) {
            problems.add(
                path,
                "is no name; write 1 to 255 bytes without control characters",
            );
        }
    }
    Node { id, cluster }
}

fn outbound(
    raw: Option<&RawOutbound>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<Outbound> {
    let listen = raw.and_then(|raw| raw.listen.as_ref());
    let listen = listeners("outbound.listen", listen, OUTBOUND, around, problems);
    let default: Option<Result<ServiceKey, _>> =
        raw.and_then(|raw| raw.default.as_deref()).map(str::parse);
    let default = default.and_then(|key| problems.check("outbound.default", key));
    let own_addresses = raw.and_then(|raw| raw.own_addresses).unwrap_or(true);
    (!listen.is_empty()).then_some(Outbound {
        listen,
        own_addresses,
        default,
    })
}

fn inbound(
    raw: &RawInbound,
    around: &Surroundings<'_>,
    ours: &dyn Fn(&Address) -> bool,
    problems: &mut Problems,
) -> Option<Inbound> {
    let listen = listeners(
        "inbound.listen",
        raw.listen.as_ref(),
        INBOUND,
        around,
        problems,
    );
    if listen.is_empty() {
        return None;
    }
    let Some(provider) = &raw.provider else {
        let cure = "is missing; write where the application listens, as 127.0.0.1:20880";
        problems.add("inbound.provider", cure);
        return None;
    };
    let provider = problems.check("inbound.provider", service::provider(provider))?;
    if ours(&provider) {
        problems.add("inbound.provider", format!("{provider} {}", service::OURS));
    }
    Some(Inbound { listen, provider })
}

fn admin(raw: Option<&RawAdmin>, around: &Surroundings<'_>, problems: &mut Problems) -> Admin {
    let listen = match raw.and_then(|raw| raw.listen.as_deref()) {
        None => ADMIN,
        Some(text) => {
            let parsed = text.parse().map_err(|_| format!("{text:?} is no IP:port"));
            problems.check("admin.listen", parsed).unwrap_or(ADMIN)
        }
    };
    let file = raw.and_then(|raw| raw.token_file.as_deref());
    let token = token("admin.token_file", file, around, problems);
    if !listen.ip().is_loopback() && raw.is_none_or(|raw| raw.token_file.is_none()) {
        let cure = "is beyond loopback; write admin.token_file too, or listen on 127.0.0.1";
        problems.add("admin.listen", cure);
    }
    Admin { listen, token }
}

fn xds(raw: &RawXds, around: &Surroundings<'_>, problems: &mut Problems) -> Option<Xds> {
    let written = match &raw.servers {
        None => &[],
        Some(OneOrMany::One(text)) => std::slice::from_ref(text),
        Some(OneOrMany::Many(texts)) => texts.as_slice(),
    };
    if !(1..=MAX_SERVERS).contains(&written.len()) {
        let many = if written.is_empty() {
            "no control plane"
        } else {
            "too many control planes"
        };
        let at = raw.servers.as_ref().map_or("xds", |_| "xds.servers");
        problems.add(at, format!("names {many}; write 1 to {MAX_SERVERS}"));
        return None;
    }
    let mut servers = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let path = match &raw.servers {
            Some(OneOrMany::Many(_)) => format!("xds.servers[{n}]"),
            _ => "xds.servers".into(),
        };
        let parsed = match text.parse::<SocketAddr>() {
            Ok(server) if server.port() == 0 => Err(format!("{text:?} has port 0")),
            Ok(server) if servers.contains(&server) => Err(format!("{server} is there twice")),
            Ok(server) => Ok(server),
            Err(_) => Err(format!("{text:?} is no IP:port")),
        };
        servers.extend(problems.check(&path, parsed));
    }
    Some(Xds {
        servers,
        token: token(
            "xds.token_file",
            raw.token_file.as_deref(),
            around,
            problems,
        ),
        cache: around.dir.join(raw.cache.as_deref().unwrap_or(CACHE)),
    })
}

fn token(
    key: &str,
    file: Option<&str>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<Token> {
    problems.check(key, Token::read(&around.dir.join(file?)))
}

fn logging(raw: Option<&RawLogging>, problems: &mut Problems) -> Logging {
    let level = raw.and_then(|raw| raw.level.as_deref()).unwrap_or("info");
    let level = problems
        .check("logging.level", super::log_filter(level))
        .map(|_| level.to_owned());
    let format = match raw.and_then(|raw| raw.format.as_deref()) {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => {
            problems.add(
                "logging.format",
                format!("{other:?} is no format; write text or json"),
            );
            LogFormat::Text
        }
    };
    Logging {
        level: level.unwrap_or_default(),
        format,
    }
}

fn workers(raw: Option<&Quantity>, problems: &mut Problems) -> NonZeroUsize {
    let Some(Quantity(text)) = raw else {
        return NonZeroUsize::MIN;
    };
    let workers = quantity::count::parse(text)
        .and_then(|workers| quantity::within(workers, 1..=MAX_WORKERS, quantity::count::print));
    problems
        .check("workers", workers)
        .and_then(NonZeroUsize::new)
        .unwrap_or(NonZeroUsize::MIN)
}

/// The listeners at `path`; the default where none is written, none where an empty list is.
fn listeners(
    path: &str,
    raw: Option<&OneOrMany>,
    default: SocketAddr,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Vec<Listen> {
    let (one, many);
    let written: &[(String, &str)] = match raw {
        None => return vec![Listen::Tcp(default)],
        Some(OneOrMany::One(text)) => {
            one = [(path.to_owned(), text.as_str())];
            &one
        }
        Some(OneOrMany::Many(texts)) => {
            let paths = texts.iter().enumerate();
            many = paths
                .map(|(n, text)| (format!("{path}[{n}]"), text.as_str()))
                .collect::<Vec<_>>();
            &many
        }
    };
    let parsed = written
        .iter()
        .filter_map(|(path, text)| problems.check(path, listen(text, around.dir)));
    parsed.collect()
}

fn listen(text: &str, dir: &Path) -> Result<Listen, String> {
    let Some(path) = text.strip_prefix("unix:") else {
        let address = text.parse().map(Listen::Tcp);
        return address.map_err(|_| format!("{text:?} is neither IP:port nor unix:PATH"));
    };
    let path = dir.join(path);
    match path.as_os_str().len() {
        0..=MAX_SOCKET_PATH => Ok(Listen::Unix(path)),
        len => Err(format!(
            "its path has {len} bytes; a socket's has at most {MAX_SOCKET_PATH}"
        )),
    }
}

/// Two listeners at one place.
fn clashes(config: &Config, problems: &mut Problems) {
    let all = config.listeners();
    for (n, (key, listen)) in all.iter().enumerate() {
        if let Some((other, _)) = all[..n].iter().find(|(_, other)| other.overlaps(listen)) {
            problems.add(
                *key,
                format!("{listen} is taken by {other} too; give each its own"),
            );
        }
    }
}

/// Where failed frames are kept, beside the configuration.
const QUARANTINE: &str = "dubbo-mesh.quarantine";
/// Where what a control plane said is kept, beside the configuration.
const CACHE: &str = "xds-cache";
/// Control planes that are tried in turn.
const MAX_SERVERS: usize = 16;
/// Threads that would rather be hosts of their own.
const MAX_WORKERS: usize = 64;
/// Bytes of the longest path of a Unix socket, `sun_path` without its last zero.
const MAX_SOCKET_PATH: usize = 107;
