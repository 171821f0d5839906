//! The servers of the demo: the marketplace, the gateway next to it, and a client at a distance from both.
//!
//! All requests of the client cross the same proxy to the same port of the gateway: the REST calls use its
//! proxy routes, as with any API gateway. That costs each of them a tenth of a millisecond out of 93.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use benches::client::BenchClient;
use benches::delay::DelayProxy;
use benches::jobs::{self, BenchJob};
use benches::process::OrfaProcess;
use bytes::Bytes;
use marketplace::{DatabaseFolder, Marketplace};

/// The round trip between Tokyo and Oregon, as in the paper.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(93);

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoLanguage {
    Javascript,
    C,
}

/// All servers, until this is dropped.
pub(crate) struct DemoServers {
    /// A client at a distance.
    pub(crate) distant_client: BenchClient,
    /// A client on the gateway's own machine.
    pub(crate) local_client: BenchClient,
    pub(crate) delay: DelayProxy,
    /// A client of the gateway's metrics.
    admin: BenchClient,
    modules: BTreeMap<&'static str, Bytes>,
    _gateway: OrfaProcess,
    _marketplace: Marketplace,
}

impl DemoServers {
    /// Starts all servers and builds the C programs.
    pub(crate) async fn start(orfa: &Path) -> Result<Self> {
        let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = format!(
            "listen: 127.0.0.1:0\nlog: {{ access: true }}\n{}",
            jobs::gateway_config(&marketplace, admin)
        );
        let gateway = OrfaProcess::start(orfa, &config).await?;
        let delay = DelayProxy::start(gateway.address(), ROUND_TRIP).await?;
        Ok(Self {
            distant_client: BenchClient::new(delay.address()),
            local_client: BenchClient::new(gateway.address()),
            delay,
            admin: BenchClient::new(admin),
            modules: jobs::build_modules(orfa)?,
            _gateway: gateway,
            _marketplace: marketplace,
        })
    }

    /// The number of calls that the gateway has made so far.
    pub(crate) async fn upstream_calls(&self) -> Result<u64> {
        jobs::upstream_calls(&self.admin).await
    }

    /// A job's program as it is sent: the TypeScript source, or the module built from C.
    pub(crate) fn program(&self, job: BenchJob, language: DemoLanguage) -> Bytes {
        match language {
            DemoLanguage::Javascript => Bytes::from_static(job.typescript().as_bytes()),
            DemoLanguage::C => self.modules.get(job.name()).cloned().unwrap_or_default(),
        }
    }
}

impl DemoLanguage {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Javascript => "text/typescript",
            Self::C => "application/wasm",
        }
    }
}
