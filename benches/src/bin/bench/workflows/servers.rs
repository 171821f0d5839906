//! The servers of the bench: a service, GraphQL over it, and ORFA.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use benches::client::BenchClient;
use benches::jobs;
use marketplace::{DatabaseFolder, Marketplace};

use super::implementations::{ProgramVariant, VARIANTS, WorkflowOutcome, WorkflowPrograms};
use super::workflow::BenchWorkflow;
use crate::BenchTools;
use crate::aggregate::joins::UNSHED;
use crate::process::{SERVER_CORE, ServerProcess};
use crate::rivals::start_openapi_to_graphql;

/// The servers of the bench.
pub(super) struct WorkflowServers {
    rest: SocketAddr,
    graphql: Option<SocketAddr>,
    orfa: ServerProcess,
    /// The separate GraphQL server; `None` if ORFA serves GraphQL.
    rival: Option<ServerProcess>,
    pub(super) programs: WorkflowPrograms,
    _marketplace: Option<Marketplace>,
}

impl WorkflowServers {
    /// Starts the servers over one service.
    pub(super) async fn start(
        tools: &BenchTools,
        service: SocketAddr,
        workflows: &[BenchWorkflow],
    ) -> Result<Self> {
        let yaml = format!(
            "{UNSHED}services: {{ api: {{ url: 'http://{service}' }} }}\n\
             routes:\n  - path: /query\n    query:\n      services: [api]\n      methods: [GET, PATCH, DELETE]\n      \
             modes: [code, instance]\n      limits: {{ cpu: 50ms, timeout: 10s, memory: 16MiB, calls: 200, concurrency: 32 }}\n"
        );
        let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
        let programs = WorkflowPrograms::prepare(tools, &BenchClient::new(orfa.address), workflows).await?;
        let rival = start_openapi_to_graphql(tools, service)?;
        let graphql = rival.as_ref().map(|rival| rival.address);
        Ok(Self { rest: service, graphql, orfa, rival, programs, _marketplace: None })
    }

    /// Starts the servers over the marketplace, which clients access through the gateway only.
    pub(super) async fn start_market(tools: &BenchTools, workflows: &[BenchWorkflow]) -> Result<Self> {
        let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let yaml = UNSHED.to_owned() + &jobs::gateway_config(&marketplace, admin);
        let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
        let programs = WorkflowPrograms::prepare(tools, &BenchClient::new(orfa.address), workflows).await?;
        let (at, marketplace) = (orfa.address, Some(marketplace));
        Ok(Self { rest: at, graphql: Some(at), orfa, rival: None, programs, _marketplace: marketplace })
    }

    /// The available variants.
    pub(super) fn variants(&self) -> impl Iterator<Item = ProgramVariant> {
        let has_graphql = self.graphql.is_some();
        VARIANTS.into_iter().filter(move |way| has_graphql || *way != ProgramVariant::Graphql)
    }

    pub(super) fn address(&self, way: ProgramVariant) -> Result<SocketAddr> {
        match way {
            ProgramVariant::Sequential | ProgramVariant::Parallel => Ok(self.rest),
            ProgramVariant::Graphql => self.graphql.context("there is no openapi-to-graphql"),
            ProgramVariant::Program(..) => Ok(self.orfa.address),
        }
    }

    /// The server of a variant: the service itself if it is a separate process, the GraphQL server, or else
    /// ORFA.
    pub(super) fn server<'a>(
        &'a self,
        variant: ProgramVariant,
        service: Option<&'a ServerProcess>,
    ) -> &'a ServerProcess {
        match variant {
            ProgramVariant::Sequential | ProgramVariant::Parallel => service.unwrap_or(&self.orfa),
            ProgramVariant::Graphql => self.rival.as_ref().unwrap_or(&self.orfa),
            ProgramVariant::Program(..) => &self.orfa,
        }
    }

    pub(super) fn client(&self, variant: ProgramVariant) -> Result<BenchClient> {
        Ok(BenchClient::new(self.address(variant)?))
    }

    pub(super) async fn run_once(
        &self,
        workflow: &BenchWorkflow,
        variant: ProgramVariant,
        size: usize,
        client: &BenchClient,
    ) -> Result<WorkflowOutcome> {
        match variant {
            ProgramVariant::Sequential => workflow.run_rest(client, size, false).await,
            ProgramVariant::Parallel => workflow.run_rest(client, size, true).await,
            ProgramVariant::Graphql => workflow.run_graphql(client, size).await,
            ProgramVariant::Program(mode, language) => {
                self.programs.run(client, (workflow.name, mode, language), size).await
            }
        }
    }
}
