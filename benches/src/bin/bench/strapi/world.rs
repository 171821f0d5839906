//! The servers of the bench: Strapi with a database of its own, ORFA and workerd next to it, and a simulated
//! distance in front of each. ORFA and workerd call Strapi through a proxy without a distance, which measures
//! Strapi's time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use benches::call::Call;
use benches::client::Client;
use benches::delay::Delay;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::json;
use tempfile::TempDir;

use super::cell::Cell;
use super::program::Programs;
use super::session::{Session, put};
use super::way::{Host, Language, Mode, Shape, Way};
use super::workflow::{Workflow, read_calls};
use super::{SIZES, USUAL_SIZE};
use crate::Tools;
use crate::aggregate::joins::UNSHED;
use crate::busy::Asked;
use crate::process::{SERVER_CORE, Server, pinned};
use crate::rivals::workerd;

/// Both cores: processes that wait for each other are not measured separately.
const CORES: &str = "0,1";
/// Strapi creates its tables and rows before it listens.
const STRAPI_PATIENCE: Duration = Duration::from_secs(120);
/// The number of runs of each program before the measurement, for JIT compilers.
const WARM_UPS: usize = 10;

pub(super) struct World {
    strapi: Server,
    /// The proxy between Strapi and the two hosts.
    between: Delay,
    orfa: Server,
    workerd: Option<Server>,
    /// A client of Strapi without a distance.
    near: Client,
    programs: Programs,
    /// The credential of callers of Strapi.
    pub(super) authorization: HeaderValue,
    /// The tag that is added to articles.
    pub(super) tag: String,
    _data: TempDir,
}

/// The three servers at a distance.
pub(super) struct Place {
    strapi: Far,
    orfa: Far,
    workerd: Option<Far>,
}

/// A server at a distance.
pub(super) struct Far {
    pub(super) client: Client,
    pub(super) delay: Delay,
}

impl World {
    /// Starts the servers. Returns `None` without Strapi.
    pub(super) async fn start(tools: &Tools) -> Result<Option<Self>> {
        let folder = tools.orfa.with_file_name("../strapi");
        if !folder.join("installed").exists() {
            return Ok(None);
        }
        let data = in_memory()?;
        let strapi = strapi(&folder, data.path())?;
        let token = std::fs::read_to_string(data.path().join("token")).context("Strapi wrote no token")?;
        let between = Delay::start(strapi.address, Duration::ZERO).await?;
        Ok(Some(Self {
            orfa: Server::gateway(&tools.orfa, CORES, &config(between.address()))?,
            workerd: workerd(tools, CORES, &[("strapi", between.address())])?,
            near: Client::new(strapi.address),
            strapi,
            between,
            programs: Programs::build(&tools.orfa)?,
            authorization: HeaderValue::try_from(format!("Bearer {}", token.trim()))?,
            tag: String::new(),
            _data: data,
        }))
    }

    /// Runs every variant several times without a distance, so that hosts cache the programs and JIT
    /// compilers have finished.
    pub(super) async fn warm_up(&mut self) -> Result<()> {
        let mut session = Session::new(&self.near, self.authorization.clone(), false);
        let tags = session.one(Call::get("/api/tags")).await?;
        self.tag = tags[0]["documentId"].as_str().context("Strapi has no tag")?.to_owned();
        for workflow in Workflow::ALL {
            for shape in [Shape::Bulk, Shape::Calls] {
                for host in Host::all() {
                    self.learn(workflow, shape, host).await?;
                }
            }
        }
        let place = self.place(0).await?;
        for _ in 0..WARM_UPS {
            for workflow in Workflow::ALL {
                let cell = Cell { workflow, size: SIZES[1], round_trip_ms: 0 };
                for way in self.ways(cell) {
                    super::once(self, &place, cell, way).await.with_context(|| way.to_string())?;
                }
            }
        }
        self.detach().await
    }

    /// The available variants of a cell.
    pub(super) fn ways(&self, cell: Cell) -> Vec<Way> {
        let is_there =
            |way: &Way| self.workerd.is_some() || !matches!(way, Way::Program(host, _) if host.is_workerd());
        cell.ways().into_iter().filter(is_there).collect()
    }

    async fn learn(&mut self, workflow: Workflow, shape: Shape, host: Host) -> Result<()> {
        let server = match host {
            Host::Orfa(..) => &self.orfa,
            Host::WorkerdByProgram | Host::WorkerdByToken => match &self.workerd {
                Some(workerd) => workerd,
                None => return Ok(()),
            },
        };
        let client = Client::new(server.address);
        self.learn_at(&client, (workflow, shape, host)).await
    }

    async fn learn_at(&mut self, client: &Client, program: (Workflow, Shape, Host)) -> Result<()> {
        let (workflow, _, host) = program;
        let input = workflow.input(SIZES[0], &self.tag).to_string();
        let learnt = self.programs.learn(client, &self.authorization, program, &input).await;
        learnt.with_context(|| format!("{host}, {}", workflow.name()))
    }

    /// Confines Strapi to the servers' core, and starts a new gateway there.
    pub(super) fn share_a_core(&self, tools: &Tools) -> Result<Server> {
        self.strapi.confine(SERVER_CORE)?;
        Server::gateway(&tools.orfa, SERVER_CORE, &(UNSHED.to_owned() + &config(self.strapi.address)))
    }

    /// The requests for one run of `strapi.r` in the variants of the paper's table 5b, to Strapi or to this
    /// gateway.
    pub(super) async fn read_calls<'a>(&'a mut self, orfa: &'a Server) -> Result<Vec<Asked<'a>>> {
        let (workflow, shape, client) = (Workflow::Read, Shape::Calls, Client::new(orfa.address));
        let modes = [Mode::Base, Mode::Code, Mode::Instance];
        let programs = modes.map(|mode| (workflow, shape, Host::Orfa(mode, Language::C)));
        for program in programs {
            self.learn_at(&client, program).await?;
        }
        let mut session = Session::new(&self.near, self.authorization.clone(), false);
        let plain = read_calls(&mut session, USUAL_SIZE).await?;
        let plain = [Way::AtOnce, Way::Graphql].into_iter().zip(plain).map(|(way, calls)| {
            let allowed = |call: Call| call.with(AUTHORIZATION, self.authorization.clone());
            let calls = calls.into_iter().map(allowed).collect();
            Ok(Asked { way: way.to_string(), server: &self.strapi, calls })
        });
        let input = workflow.input(USUAL_SIZE, &self.tag).to_string();
        let programs = programs.into_iter().map(|program| {
            let way = Way::Program(program.2, shape).to_string();
            Ok(Asked {
                way,
                server: orfa,
                calls: vec![self.programs.call(&self.authorization, program, &input)?],
            })
        });
        plain.chain(programs).collect()
    }

    /// Runs a program from a distance. Returns the body of the response.
    pub(super) async fn program(&self, far: &Far, cell: Cell, host: Host, shape: Shape) -> Result<Bytes> {
        let input = cell.workflow.input(cell.size, &self.tag).to_string();
        let program = (cell.workflow, shape, host);
        let call = self.programs.call(&self.authorization, program, &input)?;
        Ok(call.send(&far.client).await.context("the program failed")?.body)
    }

    /// The total time for which hosts have waited for Strapi.
    pub(super) fn waited_ms(&self) -> f64 {
        self.between.waited().as_secs_f64() * 1e3
    }

    /// Checks that this number of articles has the tag, and removes it from them.
    pub(super) async fn undo(&self, size: usize) -> Result<()> {
        let path = format!("/api/tags/{}?populate[articles][fields]=title", self.tag);
        let mut session = Session::new(&self.near, self.authorization.clone(), false);
        let tag = session.one(Call::get(path)).await?;
        let tagged = tag["articles"].as_array().map_or(0, Vec::len);
        ensure!(tagged == size, "{tagged} articles have the tag and not {size}");
        self.detach().await
    }

    async fn detach(&self) -> Result<()> {
        let mut session = Session::new(&self.near, self.authorization.clone(), false);
        let nothing = json!({ "data": { "articles": { "set": [] } } });
        session.one(put(format!("/api/tags/{}", self.tag), &nothing)).await.map(drop)
    }

    /// Puts all servers at a distance.
    pub(super) async fn place(&self, round_trip_ms: u64) -> Result<Place> {
        let most = SIZES.into_iter().max().unwrap_or(1);
        let workerd = match &self.workerd {
            Some(workerd) => Some(Far::new(workerd, round_trip_ms, 1).await?),
            None => None,
        };
        Ok(Place {
            strapi: Far::new(&self.strapi, round_trip_ms, most).await?,
            orfa: Far::new(&self.orfa, round_trip_ms, 1).await?,
            workerd,
        })
    }
}

impl Place {
    /// The server of a variant.
    pub(super) fn far(&self, way: Way) -> Result<&Far> {
        match way {
            Way::Program(Host::Orfa(..), _) => Ok(&self.orfa),
            Way::Program(..) => self.workerd.as_ref().context("there is no workerd"),
            _ => Ok(&self.strapi),
        }
    }
}

impl Far {
    async fn new(server: &Server, round_trip_ms: u64, connections: usize) -> Result<Self> {
        let delay = Delay::start(server.address, Duration::from_millis(round_trip_ms)).await?;
        let client = Client::new(delay.address());
        delay.open(&client, connections).await?;
        Ok(Self { client, delay })
    }
}

/// A folder for the database in memory, if available: other use of the disk would affect every write.
fn in_memory() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// Starts Strapi in production mode.
fn strapi(folder: &Path, data: &Path) -> Result<Server> {
    let folder = folder.canonicalize()?;
    let strapi = Server::start_within(STRAPI_PATIENCE, |address, _| {
        let mut command = pinned(CORES, &PathBuf::from("node"));
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
