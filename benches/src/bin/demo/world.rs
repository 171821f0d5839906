//! What the demo runs: the marketplace, the gateway beside it, and a client far away from both.
//!
//! Everything that the client does crosses the same proxy to the same port of the gateway: the REST calls
//! go through its proxy routes, as they would through any gateway at a company's door. That costs each of
//! them a tenth of a millisecond of the 93.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use benches::client::Client;
use benches::delay::Delay;
use benches::jobs::{self, Job};
use benches::process::Orfa;
use bytes::Bytes;
use marketplace::{Data, Marketplace};

/// From Tokyo to Oregon and back, as the paper has it.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(93);

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Javascript,
    C,
}

/// Everything that runs, until this is dropped.
pub(crate) struct World {
    /// A client at a distance.
    pub(crate) far: Client,
    /// A client on the gateway's own machine.
    pub(crate) near: Client,
    pub(crate) delay: Delay,
    /// The gateway's metrics.
    admin: Client,
    modules: BTreeMap<&'static str, Bytes>,
    _gateway: Orfa,
    _marketplace: Marketplace,
}

impl World {
    /// Starts all of it and builds the C programs.
    pub(crate) async fn start(orfa: &Path) -> Result<Self> {
        let marketplace = Marketplace::start(Data::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config =
            format!("listen: 127.0.0.1:0\nlog: {{ access: true }}\n{}", jobs::gateway(&marketplace, admin));
        let gateway = Orfa::start(orfa, &config).await?;
        let delay = Delay::start(gateway.address(), ROUND_TRIP).await?;
        Ok(Self {
            far: Client::new(delay.address()),
            near: Client::new(gateway.address()),
            delay,
            admin: Client::new(admin),
            modules: jobs::modules(orfa)?,
            _gateway: gateway,
            _marketplace: marketplace,
        })
    }

    /// How many calls the gateway has made so far.
    pub(crate) async fn upstream_calls(&self) -> Result<u64> {
        jobs::upstream_calls(&self.admin).await
    }

    /// A job's program as it is sent: TypeScript as its file has it, C as the module built of it.
    pub(crate) fn program(&self, job: Job, language: Language) -> Bytes {
        match language {
            Language::Javascript => Bytes::from_static(job.typescript().as_bytes()),
            Language::C => self.modules.get(job.name()).cloned().unwrap_or_default(),
        }
    }
}

impl Language {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Javascript => "text/typescript",
            Self::C => "application/wasm",
        }
    }
}
