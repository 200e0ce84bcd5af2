//! Keeps a connection to the sidecar, and tells the machine what becomes of it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::sleep_until;

use crate::connection::{Connection, Options};
use crate::shared::Shared;

/// Connects for ever. A connection that accepts but is not proven is kept until its heartbeats
/// time out: whoever starts to serve the socket finds it in the backlog.
pub(crate) async fn keep(shared: Arc<Shared>, address: SocketAddr, options: Options) {
    loop {
        sleep_until(shared.dial_at().into()).await;
        let mut connection = Connection::dial(address, options);
        match connection.proof().await {
            Ok(()) => {
                let epoch = shared.proven(connection.clone());
                let cause = connection.over().await;
                shared.lost(epoch, cause);
            }
            Err(cause) => shared.unproven(cause),
        }
    }
}
