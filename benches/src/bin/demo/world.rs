//! What the demo runs: the marketplace, the gateway beside it, and a client far away from both.
//!
//! Everything that the client does crosses the same proxy to the same port of the gateway: the REST calls
//! go through its proxy routes, as they would through any gateway at a company's door. That costs each of
//! them a tenth of a millisecond of the 93.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use benches::client::Client;
use benches::delay::Delay;
use benches::process::Orfa;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use marketplace::{Data, Marketplace, Service};
use tokio::process::Command;

use crate::jobs::Job;
use crate::measure::Language;

/// From Tokyo to Oregon and back, as the paper has it.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(93);
/// What a program may use of the gateway's CPU.
pub(crate) const CPU_LIMIT_MS: u32 = 50;

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
        let gateway = Orfa::start(orfa, &config(&marketplace, admin)).await?;
        let delay = Delay::start(gateway.address(), ROUND_TRIP).await?;
        Ok(Self {
            far: Client::new(delay.address()),
            near: Client::new(gateway.address()),
            delay,
            admin: Client::new(admin),
            modules: modules(orfa).await?,
            _gateway: gateway,
            _marketplace: marketplace,
        })
    }

    /// How many calls the gateway has made so far.
    pub(crate) async fn upstream_calls(&self) -> Result<u64> {
        let metrics = self.admin.send(Request::get("/metrics").body(Full::default())?).await?.body;
        let metrics = String::from_utf8_lossy(&metrics);
        let counts = metrics.lines().filter(|line| line.starts_with("orfa_upstream_requests_total"));
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// A job's program as it is sent: TypeScript as its file has it, C as the module built of it.
    pub(crate) fn program(&self, job: Job, language: Language) -> Bytes {
        match language {
            Language::Javascript => Bytes::from_static(job.typescript().as_bytes()),
            Language::C => self.modules.get(job.name()).cloned().unwrap_or_default(),
        }
    }
}

/// `examples/marketplace/orfa.yaml` with the ports of this run, and a proxy route for each service.
fn config(marketplace: &Marketplace, admin: SocketAddr) -> String {
    let [services, routes] =
        [service, route].map(|line| Service::ALL.map(|of| line(of, marketplace)).concat());
    format!(
        "listen: 127.0.0.1:0
admin: {admin}
log: {{ access: true }}
services:
{services}routes:
  - path: /query
    query:
      services: [profile, catalog, order]
      methods: [GET, POST]
      limits: {{ cpu: {CPU_LIMIT_MS}ms, deadline: 2s, memory: 16MiB, calls: 200, parallel: 32, output: 4MiB }}
  - {{ path: \"/shop/*\", script: '{}' }}
  - {{ path: \"/market/orders\", aggregate: '{}' }}
  - {{ path: /graphql, graphql: {{ services: [profile, catalog, order], links: '{}', mutations: true }} }}
  - path: /stitched
    graphql: {{ services: [profile-graphql, catalog-graphql, order-graphql], links: '{}', mutations: true }}
{routes}",
        example("scripts/orders.sjs").display(),
        example("aggregates/q5.yaml").display(),
        example("links.yaml").display(),
        example("stitched.yaml").display(),
    )
}

/// A service by REST and by its own GraphQL.
fn service(service: Service, marketplace: &Marketplace) -> String {
    let (name, url) = (service.name(), marketplace.url(service));
    let [openapi, schema] = ["openapi", "graphql"].map(|folder| example(folder).join(name));
    let [openapi, schema] = [openapi.with_extension("yaml"), schema.with_extension("graphql")];
    format!(
        "  {name}: {{ url: '{url}', openapi: '{}' }}\n  \
           {name}-graphql: {{ url: '{url}', graphql: {{ schema: '{}' }} }}\n",
        openapi.display(),
        schema.display(),
    )
}

/// A file or folder of the marketplace's.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/marketplace").join(name)
}

fn route(service: Service, _: &Marketplace) -> String {
    format!("  - {{ path: \"/{0}/*\", proxy: {0} }}\n", service.name())
}

/// Builds every job's C program as its author would.
async fn modules(orfa: &Path) -> Result<BTreeMap<&'static str, Bytes>> {
    let folder = tempfile::tempdir()?;
    let mut modules = BTreeMap::new();
    for job in Job::ALL {
        let out = folder.path().join(job.name()).with_extension("wasm");
        build(orfa, &c_source(job), &out).await?;
        modules.insert(job.name(), std::fs::read(&out)?.into());
    }
    Ok(modules)
}

fn c_source(job: Job) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c/examples");
    examples.join(job.name()).with_extension("c")
}

async fn build(orfa: &Path, source: &Path, out: &Path) -> Result<()> {
    let mut command = Command::new(orfa);
    command.args(["query", "build"]).arg(source).arg("-o").arg(out).stdin(Stdio::null());
    let built = command.output().await.context("`orfa query build` does not start")?;
    if !built.status.success() {
        bail!("`orfa query build {}`:\n{}", source.display(), String::from_utf8_lossy(&built.stderr));
    }
    Ok(())
}
