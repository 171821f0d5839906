//! In-memory connections for tests and fuzz targets.

use std::path::Path;
use std::time::Instant;

use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::*;
use crate::{Gateway, config};

/// A connection that is being served.
pub(super) struct ServedConnection {
    /// The client's side.
    pub(super) client: DuplexStream,
    /// The task that serves it.
    pub(super) server_task: JoinHandle<Result<(), BoxError>>,
    /// The gateway serves until this is dropped.
    pub(super) phase: watch::Sender<DrainPhase>,
}

/// Builds the gateway from a config.
pub(super) fn build_gateway(config: &str) -> Arc<ActiveConfig> {
    let config = config::read_text(config, Path::new("orfa.yaml")).unwrap();
    Gateway::build(config).unwrap().active_config
}

/// Serves a connection with a buffer of `room` bytes between its two sides.
pub(super) fn serve_connection(current: &Arc<ActiveConfig>, is_http2: bool, room: usize) -> ServedConnection {
    let (sender, phase) = watch::channel(DrainPhase::Serving);
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let limiter = Arc::clone(&current.pipeline().telemetry.metrics.limiter);
    let limits = current.serving().connections;
    let permit = limiter.connect(address.ip(), false, &limits, Instant::now()).map(Arc::new).unwrap();
    let connection = AcceptedConnection {
        active_config: Arc::clone(current),
        address,
        listener_rules: ListenerRules::default(),
        phase,
        open_token: OpenConnectionToken::default(),
        permit: Arc::clone(&permit),
    };
    let (client, server) = duplex(room);
    let link = Arc::new(ConnectionContext::new(None, Some(permit)));
    let serving = tokio::spawn(connection.serve(server, Vec::new(), is_http2, link));
    ServedConnection { client, server_task: serving, phase: sender }
}
