//! The servers of the bench: the marketplace, with ORFA, Cap'n Web and workerd next to it, each on the
//! servers' core.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use benches::client::Client;
use benches::delay::{Delay, Traffic};
use benches::jobs::{self, Job};
use bytes::Bytes;
use marketplace::{Data, Marketplace, Service};

use crate::Tools;
use crate::aggregate::joins::UNSHED;
use crate::process::{SERVER_CORE, Server};
use crate::rivals::{capnweb, present, workerd};

/// A server of a variant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    Orfa,
    Workerd,
    Capnweb,
}

impl Host {
    const ALL: [Self; 3] = [Self::Orfa, Self::Workerd, Self::Capnweb];
}

pub(super) struct World {
    orfa: Server,
    workerd: Option<Server>,
    capnweb: Option<Server>,
    /// The script of the Cap'n Web client.
    script: Option<PathBuf>,
    /// A client of ORFA's metrics.
    admin: Client,
    modules: BTreeMap<&'static str, Bytes>,
    _marketplace: Marketplace,
}

/// A server, with or without a distance.
pub(super) struct Far {
    pub(super) client: Client,
    pub(super) capnweb: Option<PathBuf>,
    delay: Option<Delay>,
}

impl World {
    pub(super) async fn start(tools: &Tools) -> Result<Self> {
        let marketplace = Marketplace::start(Data::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let services = Service::ALL.map(|service| (service.name(), marketplace.address(service)));
        Ok(Self {
            orfa: Server::gateway(
                &tools.orfa,
                SERVER_CORE,
                &(UNSHED.to_owned() + &jobs::gateway(&marketplace, admin)),
            )?,
            workerd: workerd(tools, SERVER_CORE, &services)?,
            capnweb: capnweb(tools, services.map(|(_, at)| at))?,
            script: present(tools, "capnweb"),
            admin: Client::new(admin),
            modules: jobs::modules(&tools.orfa)?,
            _marketplace: marketplace,
        })
    }

    pub(super) fn has(&self, host: Host) -> bool {
        self.server(host).is_ok()
    }

    pub(super) fn server(&self, host: Host) -> Result<&Server> {
        match host {
            Host::Orfa => Ok(&self.orfa),
            Host::Workerd => self.workerd.as_ref().context("there is no workerd"),
            Host::Capnweb => self.capnweb.as_ref().context("there is no Cap'n Web"),
        }
    }

    /// A job's program in C.
    pub(super) fn module(&self, job: Job) -> Result<Bytes> {
        self.modules.get(job.name()).cloned().context("the program does not exist")
    }

    /// The number of calls that ORFA has made so far.
    pub(super) async fn calls(&self) -> Result<u64> {
        jobs::upstream_calls(&self.admin).await
    }

    pub(super) fn near(&self, host: Host) -> Result<Far> {
        let client = Client::new(self.server(host)?.address);
        Ok(Far { client, capnweb: self.script.clone(), delay: None })
    }

    /// All servers at a distance, with as many open connections as any job needs.
    pub(super) async fn far(&self, round_trip_ms: u64) -> Result<BTreeMap<Host, Far>> {
        let mut far = BTreeMap::new();
        for host in Host::ALL.into_iter().filter(|host| self.has(*host)) {
            let delay =
                Delay::start(self.server(host)?.address, Duration::from_millis(round_trip_ms)).await?;
            let client = Client::new(delay.address());
            delay.open(&client, if host == Host::Orfa { jobs::MOST_AT_ONCE } else { 1 }).await?;
            far.insert(host, Far { client, capnweb: self.script.clone(), delay: Some(delay) });
        }
        Ok(far)
    }
}

impl Far {
    /// Returns the server without open connections, so that a client has to set one up first.
    pub(super) fn cold(&self) -> Self {
        Self { client: Client::new(self.client.address()), capnweb: self.capnweb.clone(), delay: None }
    }

    /// The traffic over the distance so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.delay.as_ref().map(Delay::traffic).unwrap_or_default()
    }
}
