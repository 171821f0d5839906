//! The servers of the bench: a service, GraphQL over it, and ORFA.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use benches::client::Client;
use benches::jobs;
use marketplace::{Data, Marketplace};

use super::asks::{Answered, Programs, WAYS, Way};
use super::workflow::Workflow;
use crate::Tools;
use crate::aggregate::joins::UNSHED;
use crate::process::{SERVER_CORE, Server};
use crate::rivals::openapi_to_graphql;

/// The servers of the bench.
pub(super) struct World {
    rest: SocketAddr,
    graphql: Option<SocketAddr>,
    orfa: Server,
    /// The separate GraphQL server; `None` if ORFA serves GraphQL.
    rival: Option<Server>,
    pub(super) programs: Programs,
    _marketplace: Option<Marketplace>,
}

impl World {
    /// Starts the servers over one service.
    pub(super) async fn start(tools: &Tools, service: SocketAddr, workflows: &[Workflow]) -> Result<Self> {
        let yaml = format!(
            "{UNSHED}services: {{ api: {{ url: 'http://{service}' }} }}\n\
             routes:\n  - path: /query\n    query:\n      services: [api]\n      methods: [GET, PATCH, DELETE]\n      \
             modes: [code, instance]\n      limits: {{ cpu: 50ms, timeout: 10s, memory: 16MiB, calls: 200, concurrency: 32 }}\n"
        );
        let orfa = Server::gateway(&tools.orfa, SERVER_CORE, &yaml)?;
        let programs = Programs::learn(tools, &Client::new(orfa.address), workflows).await?;
        let rival = openapi_to_graphql(tools, service)?;
        let graphql = rival.as_ref().map(|rival| rival.address);
        Ok(Self { rest: service, graphql, orfa, rival, programs, _marketplace: None })
    }

    /// Starts the servers over the marketplace, which clients access through the gateway only.
    pub(super) async fn market(tools: &Tools, workflows: &[Workflow]) -> Result<Self> {
        let marketplace = Marketplace::start(Data::fresh()?).await?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let yaml = UNSHED.to_owned() + &jobs::gateway(&marketplace, admin);
        let orfa = Server::gateway(&tools.orfa, SERVER_CORE, &yaml)?;
        let programs = Programs::learn(tools, &Client::new(orfa.address), workflows).await?;
        let (at, marketplace) = (orfa.address, Some(marketplace));
        Ok(Self { rest: at, graphql: Some(at), orfa, rival: None, programs, _marketplace: marketplace })
    }

    /// The available variants.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        let has_graphql = self.graphql.is_some();
        WAYS.into_iter().filter(move |way| has_graphql || *way != Way::Graphql)
    }

    pub(super) fn address(&self, way: Way) -> Result<SocketAddr> {
        match way {
            Way::OneByOne | Way::AtOnce => Ok(self.rest),
            Way::Graphql => self.graphql.context("there is no openapi-to-graphql"),
            Way::Program(..) => Ok(self.orfa.address),
        }
    }

    /// The server of a variant: the service itself if it is a separate process, the GraphQL server, or else
    /// ORFA.
    pub(super) fn server<'a>(&'a self, way: Way, service: Option<&'a Server>) -> &'a Server {
        match way {
            Way::OneByOne | Way::AtOnce => service.unwrap_or(&self.orfa),
            Way::Graphql => self.rival.as_ref().unwrap_or(&self.orfa),
            Way::Program(..) => &self.orfa,
        }
    }

    pub(super) fn client(&self, way: Way) -> Result<Client> {
        Ok(Client::new(self.address(way)?))
    }

    pub(super) async fn once(
        &self,
        workflow: &Workflow,
        way: Way,
        size: usize,
        client: &Client,
    ) -> Result<Answered> {
        match way {
            Way::OneByOne => workflow.by_rest(client, size, false).await,
            Way::AtOnce => workflow.by_rest(client, size, true).await,
            Way::Graphql => workflow.by_graphql(client, size).await,
            Way::Program(mode, language) => {
                self.programs.run(client, (workflow.name, mode, language), size).await
            }
        }
    }
}
