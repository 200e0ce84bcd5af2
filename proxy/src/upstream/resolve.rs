//! Names of providers become addresses, again and again.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use crate::model::Address;

/// Time for one look-up; a slow name server must not hold up the others' names.
const PATIENCE: Duration = Duration::from_secs(5);

/// What names last meant. A name that cannot be resolved now means what it meant before.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<(Box<str>, u16), Vec<SocketAddr>>,
}

impl Names {
    /// Looks all names among `addresses` up, and forgets the others. Cancel safe: names not yet
    /// looked up keep their meaning.
    pub(crate) async fn refresh(&mut self, addresses: impl Iterator<Item = &Address>) {
        let names = addresses.filter_map(|address| match address {
            Address::Name { host, port } => Some((host.clone(), *port)),
            Address::Ip(_) => None,
        });
        let names: std::collections::HashSet<_> = names.collect();
        self.known.retain(|name, _| names.contains(name));
        let mut lookups = tokio::task::JoinSet::new();
        for (host, port) in names {
            lookups.spawn(async move {
                let found = lookup(&host, port).await;
                ((host, port), found)
            });
        }
        while let Some(looked_up) = lookups.join_next().await {
            let Ok((name, found)) = looked_up else {
                continue;
            };
            match found {
                Ok(addresses) => drop(self.known.insert(name, addresses)),
                Err(error) => {
                    let (host, port) = name;
                    tracing::warn!(%host, port, error, "a provider's name cannot be resolved");
                }
            }
        }
    }

    /// The addresses that an address stands for now; none if its name was never resolved.
    pub(crate) fn resolve(&self, address: &Address) -> Vec<SocketAddr> {
        match address {
            Address::Ip(address) => vec![*address],
            Address::Name { host, port } => self
                .known
                .get(&(host.clone(), *port))
                .cloned()
                .unwrap_or_default(),
        }
    }
}

async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let lookup = tokio::net::lookup_host((host, port));
    let found = match tokio::time::timeout(PATIENCE, lookup).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer in {PATIENCE:?}")),
    };
    let mut addresses: Vec<_> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        Err("no address".into())
    } else {
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_resolved_and_forgotten_and_numbers_stand_for_themselves() {
        let name: Address = "localhost:7".parse().expect("a name");
        let number: Address = "127.0.0.9:7".parse().expect("a number");
        let mut names = Names::default();
        assert!(names.resolve(&name).is_empty());
        names.refresh([&name, &number].into_iter()).await;
        assert!(
            names
                .resolve(&name)
                .iter()
                .all(|a| a.ip().is_loopback() && a.port() == 7)
        );
        assert!(!names.resolve(&name).is_empty());
        assert_eq!(
            names.resolve(&number),
            ["127.0.0.9:7".parse().expect("an address")]
        );
        names.refresh([&number].into_iter()).await;
        assert!(names.resolve(&name).is_empty());
    }

    #[tokio::test]
    async fn a_name_that_is_lost_keeps_its_meaning() {
        let name: Address = "no-such-name.invalid:7".parse().expect("a name");
        let mut names = Names::default();
        let Address::Name { host, port } = name.clone() else {
            panic!("a name")
        };
        let meaning = vec![SocketAddr::from(([127, 0, 0, 1], 7))];
        names.known.insert((host, port), meaning.clone());
        names.refresh([&name].into_iter()).await;
        assert_eq!(names.resolve(&name), meaning);
    }
}
