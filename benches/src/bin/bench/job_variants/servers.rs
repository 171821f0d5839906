//! The servers of the bench: the marketplace, with ORFA, Cap'n Web and workerd next to it, each on the
//! servers' core.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use benches::client::BenchClient;
use benches::delay::{DelayProxy, ProxyTraffic};
use benches::jobs::{self, BenchJob};
use bytes::Bytes;
use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};

use crate::BenchTools;
use crate::aggregate::joins::UNSHED;
use crate::process::{SERVER_CORE, ServerProcess};
use crate::rivals::{installed_path, start_capnweb, start_workerd};

/// A server of a variant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VariantServer {
    Orfa,
    Workerd,
    Capnweb,
}

impl VariantServer {
    const ALL: [Self; 3] = [Self::Orfa, Self::Workerd, Self::Capnweb];
}

pub(super) struct JobServers {
    orfa: ServerProcess,
    workerd: Option<ServerProcess>,
    capnweb: Option<ServerProcess>,
    /// The script of the Cap'n Web client.
    script: Option<PathBuf>,
    /// A client of ORFA's metrics.
    admin: BenchClient,
    modules: BTreeMap<&'static str, Bytes>,
    _marketplace: Marketplace,
}

/// A server, with or without a distance.
pub(super) struct DistantServer {
    pub(super) client: BenchClient,
    pub(super) capnweb: Option<PathBuf>,
    delay: Option<DelayProxy>,
}

impl JobServers {
    pub(super) async fn start(tools: &BenchTools) -> Result<Self> {
        let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let services = MarketplaceService::ALL.map(|service| (service.name(), marketplace.address(service)));
        Ok(Self {
            orfa: ServerProcess::start_gateway(
                &tools.orfa,
                SERVER_CORE,
                &(UNSHED.to_owned() + &jobs::gateway_config(&marketplace, admin)),
            )?,
            workerd: start_workerd(tools, SERVER_CORE, &services)?,
            capnweb: start_capnweb(tools, services.map(|(_, at)| at))?,
            script: installed_path(tools, "capnweb"),
            admin: BenchClient::new(admin),
            modules: jobs::build_modules(&tools.orfa)?,
            _marketplace: marketplace,
        })
    }

    pub(super) fn has_server(&self, host: VariantServer) -> bool {
        self.server(host).is_ok()
    }

    pub(super) fn server(&self, host: VariantServer) -> Result<&ServerProcess> {
        match host {
            VariantServer::Orfa => Ok(&self.orfa),
            VariantServer::Workerd => self.workerd.as_ref().context("there is no workerd"),
            VariantServer::Capnweb => self.capnweb.as_ref().context("there is no Cap'n Web"),
        }
    }

    /// A job's program in C.
    pub(super) fn program_module(&self, job: BenchJob) -> Result<Bytes> {
        self.modules.get(job.name()).cloned().context("the program does not exist")
    }

    /// The number of calls that ORFA has made so far.
    pub(super) async fn upstream_calls(&self) -> Result<u64> {
        jobs::upstream_calls(&self.admin).await
    }

    pub(super) fn local_server(&self, host: VariantServer) -> Result<DistantServer> {
        let client = BenchClient::new(self.server(host)?.address);
        Ok(DistantServer { client, capnweb: self.script.clone(), delay: None })
    }

    /// All servers at a distance, with as many open connections as any job needs.
    pub(super) async fn distant_servers(
        &self,
        round_trip_ms: u64,
    ) -> Result<BTreeMap<VariantServer, DistantServer>> {
        let mut far = BTreeMap::new();
        for host in VariantServer::ALL.into_iter().filter(|host| self.has_server(*host)) {
            let delay =
                DelayProxy::start(self.server(host)?.address, Duration::from_millis(round_trip_ms)).await?;
            let client = BenchClient::new(delay.address());
            delay.open(&client, if host == VariantServer::Orfa { jobs::MAX_CONCURRENCY } else { 1 }).await?;
            far.insert(host, DistantServer { client, capnweb: self.script.clone(), delay: Some(delay) });
        }
        Ok(far)
    }
}

impl DistantServer {
    /// Returns the server without open connections, so that a client has to set one up first.
    pub(super) fn without_connections(&self) -> Self {
        Self { client: BenchClient::new(self.client.address()), capnweb: self.capnweb.clone(), delay: None }
    }

    /// The traffic over the distance so far.
    pub(super) fn traffic(&self) -> ProxyTraffic {
        self.delay.as_ref().map(DelayProxy::traffic).unwrap_or_default()
    }
}
