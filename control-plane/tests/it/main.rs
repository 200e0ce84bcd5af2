//! The pilot's gRPC server in this process, with clients over a real socket.

mod ads;
mod registry;
