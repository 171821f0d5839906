//! Gateways with one script, and who answers the same otherwise.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::Tools;
use crate::process::{SERVER_CORE, Server, pinned};
use crate::rivals::present;

/// Where what uses several processes runs, beside the load.
pub(super) const ALL_CORES: &str = "0,1";

/// A gateway with a script at `/*`, before a service.
pub(super) struct Scripted<'a> {
    pub(super) script: PathBuf,
    pub(super) service: SocketAddr,
    pub(super) cores: &'a str,
    /// So many workers, always.
    pub(super) workers: u32,
    /// What `engine` says.
    pub(super) engine: String,
    pub(super) durability: &'a str,
    /// What else is said of all scripts, with a comma before.
    pub(super) more: &'a str,
    /// Whether requests are refused that would have to wait for the gateway's own threads.
    pub(super) sheds: bool,
}

impl Scripted<'_> {
    /// One worker, on Node, on the servers' core.
    pub(super) fn by(script: PathBuf, service: SocketAddr) -> Self {
        let (engine, durability) = ("node".to_owned(), "process");
        Self { script, service, cores: SERVER_CORE, workers: 1, engine, durability, more: "", sheds: true }
    }

    pub(super) fn start(&self, tools: &Tools) -> Result<Server> {
        let Self { service, workers, engine, durability, more, sheds, .. } = self;
        let yaml = format!(
            "services: {{ service: {{ url: 'http://{service}' }} }}\n\
             scripts: {{ engine: {engine}, durability: {durability}{more} }}\n\
             shed: {{ automatic: {sheds} }}\n\
             routes:\n  - path: /*\n    script:\n      file: '{}'\n      hosts: ['{service}']\n      \
             workers: {{ least: {workers}, most: {workers} }}\n      limits: {{ wall: 10m }}\n",
            self.script.display()
        );
        Server::gateway(&tools.orfa, self.cores, &yaml)
    }
}

/// A script of `examples/`.
pub(super) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// Fastify with undici. None where it is not there.
pub(super) fn fastify(tools: &Tools, service: SocketAddr) -> Result<Option<Server>> {
    let Some(program) = present(tools, "fastify") else { return Ok(None) };
    rival(Path::new("node"), &program, SERVER_CORE, &format!("http://{service}")).map(Some)
}

/// `Bun.serve` with `fetch`. None where Bun is not there.
pub(super) fn bun(tools: &Tools, service: SocketAddr) -> Result<Option<Server>> {
    let Some(bun) = present(tools, "bun") else { return Ok(None) };
    rival(&bun, &source("bun.mjs"), SERVER_CORE, &format!("http://{service}")).map(Some)
}

/// A program on a cluster of Node, on all cores.
pub(super) fn cluster(name: &str, workers: u32) -> Result<Server> {
    rival(Path::new("node"), &source(name), ALL_CORES, &workers.to_string())
}

/// Starts a program with its host, its port, and something else.
fn rival(engine: &Path, program: &Path, cores: &str, more: &str) -> Result<Server> {
    Server::start(|address, _| {
        let mut command = pinned(cores, engine);
        command.arg(program).arg(address.ip().to_string()).arg(address.port().to_string());
        command.arg(more).env("NODE_ENV", "production");
        Ok(command)
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/script").join(name)
}
