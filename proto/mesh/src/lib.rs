//! What the processes of the mesh must agree on byte for byte, beside Dubbo's own wire.

pub mod digest;
pub mod sockets;
