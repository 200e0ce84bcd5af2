//! What the processes of the mesh must agree on byte for byte, beside Dubbo's own wire.
//!
//! A control plane speaks xDS, version 3, with Envoy's own types wherever Envoy has a field
//! ([`xds`]), and one of ours where it has none ([`v1::ServicePolicy`]). [`names`] says what the
//! resources of a service are called.

pub mod digest;
pub mod host;
pub mod names;
pub mod sockets;
pub mod token;
pub mod xds;

/// Our own messages, generated from proto/dubbo/mesh/v1 of this crate.
///
/// The generated file is checked in, so that nothing but this crate's tests needs a compiler of
/// protobuf; a test compares it with the sources.
#[rustfmt::skip]
pub mod v1 {
    include!("generated/dubbo.mesh.v1.rs");
}

/// Descriptors of the aggregated discovery service, its messages and our own: what reflection tells
/// tools that ask. Generated and compared as [`v1`].
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
