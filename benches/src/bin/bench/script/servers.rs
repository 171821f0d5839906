//! Gateways with one script, and rivals with the same responses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::BenchTools;
use crate::process::{SERVER_CORE, ServerProcess, pinned_command};
use crate::rivals::installed_path;

/// The cores of servers with several processes, shared with the load.
pub(super) const ALL_CORES: &str = "0,1";

/// A gateway with a script at `/*`, in front of a service.
pub(super) struct ScriptGateway<'a> {
    pub(super) script: PathBuf,
    pub(super) service: SocketAddr,
    pub(super) cores: &'a str,
    /// The fixed number of workers.
    pub(super) workers: u32,
    /// The value of `engine`.
    pub(super) engine: String,
    pub(super) durability: &'a str,
    /// Further settings of `scripts`, with a leading comma.
    pub(super) more: &'a str,
    /// Whether load shedding is enabled.
    pub(super) sheds_load: bool,
}

impl ScriptGateway<'_> {
    /// A script with one worker on Node, on the servers' core.
    pub(super) fn new(script: PathBuf, service: SocketAddr) -> Self {
        let (engine, durability) = ("node".to_owned(), "process");
        Self {
            script,
            service,
            cores: SERVER_CORE,
            workers: 1,
            engine,
            durability,
            more: "",
            sheds_load: true,
        }
    }

    pub(super) fn start(&self, tools: &BenchTools) -> Result<ServerProcess> {
        let Self { service, workers, engine, durability, more, sheds_load: sheds, .. } = self;
        let yaml = format!(
            "services: {{ service: {{ url: 'http://{service}' }} }}\n\
             scripts: {{ engine: {engine}, durability: {durability}{more} }}\n\
             shed: {{ automatic: {sheds} }}\n\
             routes:\n  - path: /*\n    script:\n      file: '{}'\n      hosts: ['{service}']\n      \
             workers: {{ min: {workers}, max: {workers} }}\n      limits: {{ timeout: 10m }}\n",
            self.script.display()
        );
        ServerProcess::start_gateway(&tools.orfa, self.cores, &yaml)
    }
}

/// A script in `examples/`.
pub(super) fn example_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// Starts Fastify with undici. Returns `None` if it is not installed.
pub(super) fn start_fastify(tools: &BenchTools, service: SocketAddr) -> Result<Option<ServerProcess>> {
    let Some(program) = installed_path(tools, "fastify") else { return Ok(None) };
    start_rival(Path::new("node"), &program, SERVER_CORE, &format!("http://{service}")).map(Some)
}

/// Starts `Bun.serve` with `fetch`. Returns `None` if Bun is not installed.
pub(super) fn start_bun(tools: &BenchTools, service: SocketAddr) -> Result<Option<ServerProcess>> {
    let Some(bun) = installed_path(tools, "bun") else { return Ok(None) };
    start_rival(&bun, &rival_source("bun.mjs"), SERVER_CORE, &format!("http://{service}")).map(Some)
}

/// Starts a program on a cluster of Node processes, on all cores.
pub(super) fn start_cluster(name: &str, workers: u32) -> Result<ServerProcess> {
    start_rival(Path::new("node"), &rival_source(name), ALL_CORES, &workers.to_string())
}

/// Starts a program with its host, its port, and another argument.
fn start_rival(engine: &Path, program: &Path, cores: &str, more: &str) -> Result<ServerProcess> {
    ServerProcess::start(|address, _| {
        let mut command = pinned_command(cores, engine);
        command.arg(program).arg(address.ip().to_string()).arg(address.port().to_string());
        command.arg(more).env("NODE_ENV", "production");
        Ok(command)
    })
}

fn rival_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/script").join(name)
}
