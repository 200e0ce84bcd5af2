//! Where each key of a file stands. Read only when something is wrong.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// The shape of a document, each node with its place.
#[derive(Debug)]
pub(super) struct Places(Spanned<Node>);

#[derive(Debug)]
enum Node {
    Scalar,
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl Places {
    /// The shape of `text`; `None` if it is no YAML.
    pub(super) fn of(text: &str) -> Option<Self> {
        serde_saphyr::from_str_with_options(text, super::file::options())
            .ok()
            .map(Self)
    }

    /// Line and column, from 1, of the node at `path`, as `static.services[2].key`, or of the
    /// nearest one above it that is written; `None` if none is. The place of a key is where the
    /// key stands, not its value.
    pub(super) fn place(&self, path: &str) -> Option<(u64, u64)> {
        let mut node = &self.0;
        let mut place = None;
        for step in path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'))
        {
            let found = match &node.value {
                Node::Scalar => None,
                Node::List(items) => step
                    .parse()
                    .ok()
                    .and_then(|n: usize| items.get(n))
                    .map(|item| (item.referenced, item)),
                Node::Map(entries) => entries
                    .iter()
                    .find(|(key, _)| key.value == step)
                    .map(|(key, value)| (key.referenced, value)),
            };
            let Some((at, next)) = found else { break };
            (place, node) = (Some((at.line(), at.column())), next);
        }
        place
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Node::Map(map))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_place_of_its_key_or_of_what_holds_it() {
        let text = "\
workers: 1
outbound: { listen: [127.0.0.1:1,
  127.0.0.1:2], own_addresses: true }
static:
  services:
    - key: a
      endpoints:
        - 127.0.0.1:1
        - { address: b,
            weight: 0 }
      retries:
";
        let places = Places::of(text).expect("YAML");
        for (path, place) in [
            ("workers", Some((1, 1))),
            ("outbound.listen", Some((2, 13))),
            ("outbound.listen[0]", Some((2, 22))),
            ("outbound.listen[1]", Some((3, 3))),
            ("static.services[0].key", Some((6, 7))),
            ("static.services[0].endpoints[0]", Some((8, 11))),
            ("static.services[0].endpoints[1].weight", Some((10, 13))),
            ("static.services[0].retries", Some((11, 7))),
            ("static.services[0].balance", Some((6, 7))),
            ("static.services[1].key", Some((5, 3))),
            ("admin.listen", None),
        ] {
            assert_eq!(places.place(path), place, "{path}");
        }
    }
}
