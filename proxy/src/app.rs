//! The composition root: builds the parts, runs them, and ends them in order.

use std::{net::SocketAddr, path::Path, sync::Arc};

use crate::{
    config::Config,
    mesh::{Change, Mesh, Name, Route},
    model::{Address, Service},
    shard::{Common, Shards},
};
