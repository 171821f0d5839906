//! The servers of the bench: Strapi with a database of its own, ORFA and workerd next to it, and a simulated
//! distance in front of each. ORFA and workerd call Strapi through a proxy without a distance, which measures
//! Strapi's time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::delay::DelayProxy;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::json;
use tempfile::TempDir;

use super::cell::WorkflowCell;
use super::program::StrapiPrograms;
use super::session::{StrapiSession, put_call};
use super::variant::{CallShape, OrfaCaching, ProgramHost, StrapiLanguage, StrapiVariant};
use super::workflow::{PaperWorkflow, read_calls};
use super::{SIZES, USUAL_SIZE};
use crate::BenchTools;
use crate::aggregate::joins::UNSHED;
use crate::process::{SERVER_CORE, ServerProcess, pinned_command};
use crate::rivals::start_workerd;
use crate::workflow_throughput::WorkflowVariant;

/// Both cores: processes that wait for each other are not measured separately.
const CORES: &str = "0,1";
/// Strapi creates its tables and rows before it listens.
const STRAPI_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of runs of each program before the measurement, for JIT compilers.
const WARM_UPS: usize = 10;

pub(super) struct StrapiServers {
    strapi: ServerProcess,
    /// The proxy between Strapi and the two hosts.
    strapi_proxy: DelayProxy,
    orfa: ServerProcess,
    workerd: Option<ServerProcess>,
    /// A client of Strapi without a distance.
    local_client: BenchClient,
    programs: StrapiPrograms,
    /// The credential of callers of Strapi.
    pub(super) authorization: HeaderValue,
    /// The tag that is added to articles.
    pub(super) tag: String,
    _data: TempDir,
}

/// The three servers at a distance.
pub(super) struct StrapiDistance {
    strapi: DistantStrapi,
    orfa: DistantStrapi,
    workerd: Option<DistantStrapi>,
}

/// A server at a distance.
pub(super) struct DistantStrapi {
    pub(super) client: BenchClient,
    pub(super) delay: DelayProxy,
}

impl StrapiServers {
    /// Starts the servers. Returns `None` without Strapi.
    pub(super) async fn start(tools: &BenchTools) -> Result<Option<Self>> {
        let folder = tools.orfa.with_file_name("../strapi");
        if !folder.join("installed").exists() {
            return Ok(None);
        }
        let data = memory_folder()?;
        let strapi = start_strapi(&folder, data.path())?;
        let token = std::fs::read_to_string(data.path().join("token")).context("Strapi wrote no token")?;
        let proxy = DelayProxy::start(strapi.address, Duration::ZERO).await?;
        Ok(Some(Self {
            orfa: ServerProcess::start_gateway(&tools.orfa, CORES, &config(proxy.address()))?,
            workerd: start_workerd(tools, CORES, &[("strapi", proxy.address())])?,
            local_client: BenchClient::new(strapi.address),
            strapi,
            strapi_proxy: proxy,
            programs: StrapiPrograms::build(&tools.orfa)?,
            authorization: HeaderValue::try_from(format!("Bearer {}", token.trim()))?,
            tag: String::new(),
            _data: data,
        }))
    }

    /// Runs every variant several times without a distance, so that hosts cache the programs and JIT
    /// compilers have finished.
    pub(super) async fn warm_up(&mut self) -> Result<()> {
        let mut session = StrapiSession::new(&self.local_client, self.authorization.clone(), false);
        let tags = session.call(PreparedCall::get("/api/tags")).await?;
        self.tag = tags[0]["documentId"].as_str().context("Strapi has no tag")?.to_owned();
        for workflow in PaperWorkflow::ALL {
            for shape in [CallShape::Bulk, CallShape::Calls] {
                for host in ProgramHost::all() {
                    self.cache_program(workflow, shape, host).await?;
                }
            }
        }
        let distance = self.at_distance(0).await?;
        for _ in 0..WARM_UPS {
            for workflow in PaperWorkflow::ALL {
                let cell = WorkflowCell { workflow, size: SIZES[1], round_trip_ms: 0 };
                for variant in self.variants(cell) {
                    super::run_once(self, &distance, cell, variant)
                        .await
                        .with_context(|| variant.to_string())?;
                }
            }
        }
        self.clear_tag().await
    }

    /// The available variants of a cell.
    pub(super) fn variants(&self, cell: WorkflowCell) -> Vec<StrapiVariant> {
        let is_there = |variant: &StrapiVariant| {
            self.workerd.is_some() || !matches!(variant, StrapiVariant::Program(host, _) if host.is_workerd())
        };
        cell.variants().into_iter().filter(is_there).collect()
    }

    async fn cache_program(
        &mut self,
        workflow: PaperWorkflow,
        shape: CallShape,
        host: ProgramHost,
    ) -> Result<()> {
        let server = match host {
            ProgramHost::Orfa(..) => &self.orfa,
            ProgramHost::WorkerdByProgram | ProgramHost::WorkerdByToken => match &self.workerd {
                Some(workerd) => workerd,
                None => return Ok(()),
            },
        };
        let client = BenchClient::new(server.address);
        self.cache_program_at(&client, (workflow, shape, host)).await
    }

    async fn cache_program_at(
        &mut self,
        client: &BenchClient,
        program: (PaperWorkflow, CallShape, ProgramHost),
    ) -> Result<()> {
        let (workflow, _, host) = program;
        let input = workflow.input(SIZES[0], &self.tag).to_string();
        let learnt = self.programs.cache_program(client, &self.authorization, program, &input).await;
        learnt.with_context(|| format!("{host}, {}", workflow.name()))
    }

    /// Confines Strapi to the servers' core, and starts a new gateway there.
    pub(super) fn start_on_shared_core(&self, tools: &BenchTools) -> Result<ServerProcess> {
        self.strapi.pin_to_cores(SERVER_CORE)?;
        ServerProcess::start_gateway(
            &tools.orfa,
            SERVER_CORE,
            &(UNSHED.to_owned() + &config(self.strapi.address)),
        )
    }

    /// The requests for one run of `strapi.r` in the variants of the paper's table 5b, to Strapi or to this
    /// gateway.
    pub(super) async fn read_calls<'a>(
        &'a mut self,
        orfa: &'a ServerProcess,
    ) -> Result<Vec<WorkflowVariant<'a>>> {
        let (workflow, shape, client) =
            (PaperWorkflow::Read, CallShape::Calls, BenchClient::new(orfa.address));
        let modes = [OrfaCaching::Base, OrfaCaching::Code, OrfaCaching::Instance];
        let programs = modes.map(|mode| (workflow, shape, ProgramHost::Orfa(mode, StrapiLanguage::C)));
        for program in programs {
            self.cache_program_at(&client, program).await?;
        }
        let mut session = StrapiSession::new(&self.local_client, self.authorization.clone(), false);
        let plain = read_calls(&mut session, USUAL_SIZE).await?;
        let plain =
            [StrapiVariant::Parallel, StrapiVariant::Graphql].into_iter().zip(plain).map(|(way, calls)| {
                let allowed =
                    |call: PreparedCall| call.with_header(AUTHORIZATION, self.authorization.clone());
                let calls = calls.into_iter().map(allowed).collect();
                Ok(WorkflowVariant { way: way.to_string(), server: &self.strapi, calls })
            });
        let input = workflow.input(USUAL_SIZE, &self.tag).to_string();
        let programs = programs.into_iter().map(|program| {
            let way = StrapiVariant::Program(program.2, shape).to_string();
            Ok(WorkflowVariant {
                way,
                server: orfa,
                calls: vec![self.programs.call(&self.authorization, program, &input)?],
            })
        });
        plain.chain(programs).collect()
    }

    /// Runs a program from a distance. Returns the body of the response.
    pub(super) async fn run_program(
        &self,
        strapi: &DistantStrapi,
        cell: WorkflowCell,
        host: ProgramHost,
        shape: CallShape,
    ) -> Result<Bytes> {
        let input = cell.workflow.input(cell.size, &self.tag).to_string();
        let program = (cell.workflow, shape, host);
        let call = self.programs.call(&self.authorization, program, &input)?;
        Ok(call.send(&strapi.client).await.context("the program failed")?.body)
    }

    /// The total time for which hosts have waited for Strapi.
    pub(super) fn waited_ms(&self) -> f64 {
        self.strapi_proxy.server_wait().as_secs_f64() * 1e3
    }

    /// Checks that this number of articles has the tag, and removes it from them.
    pub(super) async fn remove_tag(&self, size: usize) -> Result<()> {
        let path = format!("/api/tags/{}?populate[articles][fields]=title", self.tag);
        let mut session = StrapiSession::new(&self.local_client, self.authorization.clone(), false);
        let tag = session.call(PreparedCall::get(path)).await?;
        let tagged = tag["articles"].as_array().map_or(0, Vec::len);
        ensure!(tagged == size, "{tagged} articles have the tag and not {size}");
        self.clear_tag().await
    }

    async fn clear_tag(&self) -> Result<()> {
        let mut session = StrapiSession::new(&self.local_client, self.authorization.clone(), false);
        let nothing = json!({ "data": { "articles": { "set": [] } } });
        session.call(put_call(format!("/api/tags/{}", self.tag), &nothing)).await.map(drop)
    }

    /// Puts all servers at a distance.
    pub(super) async fn at_distance(&self, round_trip_ms: u64) -> Result<StrapiDistance> {
        let most = SIZES.into_iter().max().unwrap_or(1);
        let workerd = match &self.workerd {
            Some(workerd) => Some(DistantStrapi::new(workerd, round_trip_ms, 1).await?),
            None => None,
        };
        Ok(StrapiDistance {
            strapi: DistantStrapi::new(&self.strapi, round_trip_ms, most).await?,
            orfa: DistantStrapi::new(&self.orfa, round_trip_ms, 1).await?,
            workerd,
        })
    }
}

impl StrapiDistance {
    /// The server of a variant.
    pub(super) fn server(&self, variant: StrapiVariant) -> Result<&DistantStrapi> {
        match variant {
            StrapiVariant::Program(ProgramHost::Orfa(..), _) => Ok(&self.orfa),
            StrapiVariant::Program(..) => self.workerd.as_ref().context("there is no workerd"),
            _ => Ok(&self.strapi),
        }
    }
}

impl DistantStrapi {
    async fn new(server: &ServerProcess, round_trip_ms: u64, connections: usize) -> Result<Self> {
        let delay = DelayProxy::start(server.address, Duration::from_millis(round_trip_ms)).await?;
        let client = BenchClient::new(delay.address());
        delay.open(&client, connections).await?;
        Ok(Self { client, delay })
    }
}

/// A folder for the database in memory, if available: other use of the disk would affect every write.
fn memory_folder() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// Starts Strapi in production mode.
fn start_strapi(folder: &Path, data: &Path) -> Result<ServerProcess> {
    let folder = folder.canonicalize()?;
    let strapi = ServerProcess::start_within(STRAPI_TIMEOUT, |address, _| {
        let mut command = pinned_command(CORES, &PathBuf::from("node"));
        command.arg("node_modules/@strapi/strapi/bin/strapi.js").arg("start").current_dir(folder);
        command.env("NODE_ENV", "production").env("DATA", data);
        command.env("HOST", address.ip().to_string()).env("PORT", address.port().to_string());
        Ok(command)
    });
    match strapi {
        Err(error) => bail!("{error:#}; `scripts/setup strapi` reinstalls Strapi"),
        strapi => strapi,
    }
}

/// The config of the gateway next to Strapi.
fn config(strapi: SocketAddr) -> String {
    format!(
        "services: {{ strapi: {{ url: 'http://{strapi}', forward: [authorization] }} }}\n\
         routes:\n  - path: /query\n    query:\n      services: [strapi]\n      methods: [GET, PUT]\n      modes: [code, instance]\n      \
         limits: {{ cpu: 50ms, timeout: 10s, memory: 16MiB, calls: 200, concurrency: 32 }}\n"
    )
}
