//! A gateway with a GraphQL route over two services: one in GraphQL (graphql-js) and one in REST.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::http::{self, TestResponse};
use testkit::misbehaving_upstream;
use testkit::{GatewayProcess, with_timeout};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::support::{ITEMS_OPENAPI, admin_url, orfa_binary};

pub(crate) struct GraphqlGateway {
    pub(crate) gateway: GatewayProcess,
    pub(crate) upstream: misbehaving_upstream::MisbehavingUpstream,
    agents: Option<Child>,
    /// The port of the service `agents`, which may not be running yet.
    port: u16,
}

/// Builds a command that runs a script of this folder in Node, with the client library's packages.
pub(crate) fn node_command(script: &str) -> Command {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = own.join("../../sdk/javascript");
    assert!(
        packages.join("node_modules/graphql-http").is_dir(),
        "graphql-http is missing: run `scripts/setup test`"
    );
    let text = std::fs::read_to_string(own.join("tests/graphql").join(script)).expect("the script");
    let mut node = Command::new("node");
    // The script is passed as text, since packages are looked up from the working directory.
    node.current_dir(packages).args(["--input-type=module", "--eval", &text, "--"]);
    node.kill_on_drop(true).stdin(Stdio::piped()).stderr(Stdio::inherit());
    node
}

async fn spawn_agents(port: u16) -> (Child, u16) {
    let mut child =
        node_command("server.mjs").arg(port.to_string()).stdout(Stdio::piped()).spawn().expect("node runs");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = with_timeout("the service's port", lines.next_line()).await.expect("a line").expect("a port");
    (child, line.parse().expect("a number"))
}

impl GraphqlGateway {
    /// Starts a gateway with these routes over both services, and with these files beside the config.
    pub(crate) async fn new(routes: &str, files: &[(&str, &str)]) -> Self {
        let (child, port) = spawn_agents(0).await;
        Self::start_over(routes, files, Some(child), port).await
    }

    /// Like `new`, but the GraphQL service is not running yet.
    pub(crate) async fn without_agents(routes: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        Self::start_over(routes, &[], None, port).await
    }

    async fn start_over(routes: &str, files: &[(&str, &str)], agents: Option<Child>, port: u16) -> Self {
        let upstream = misbehaving_upstream::start().await;
        let config = config(&upstream.url(), port, routes);
        let files: Vec<_> = files.iter().copied().chain([("up.yaml", ITEMS_OPENAPI)]).collect();
        let gateway = GatewayProcess::start_with(orfa_binary(), &config, &files).await;
        let graphql_gateway = Self { gateway, upstream, agents, port };
        if graphql_gateway.agents.is_some() {
            with_timeout("its schemas", async { while graphql_gateway.fetch_readyz().await.0 != 200 {} })
                .await;
        }
        graphql_gateway
    }

    pub(crate) async fn start_agents(&mut self) {
        self.agents = Some(spawn_agents(self.port).await.0);
    }

    pub(crate) async fn stop_agents(&mut self) {
        self.agents.take().expect("it runs").kill().await.expect("its end");
    }

    /// Returns a config with these routes over the same services.
    pub(crate) fn config(&self, routes: &str) -> String {
        config(&self.upstream.url(), self.port, routes)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.gateway.url)
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        http::request("GET", &self.url(path), headers, "").await.expect("an answer")
    }

    pub(crate) async fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> TestResponse {
        let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        http::request("POST", &self.url(path), &headers, body.to_string()).await.expect("an answer")
    }

    /// Sends a document and returns the answer.
    pub(crate) async fn send_query(&self, path: &str, query: &str) -> Value {
        self.post(path, &json!({ "query": query }), &[]).await.json()
    }

    pub(crate) async fn fetch_readyz(&self) -> (u16, String) {
        let url = format!("{}/readyz", admin_url(&self.gateway).await);
        let answer = http::request("GET", &url, &[], "").await.expect("an answer");
        (answer.status.as_u16(), answer.text())
    }

    pub(crate) fn write_file(&self, name: &str, text: &str) {
        self.gateway.replace_file(name, text);
    }

    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.gateway.directory().join(name)).expect("a file")
    }

    /// Reloads the gateway with these routes.
    pub(crate) async fn reload(&self, routes: &str) {
        self.write_file("orfa.yaml", &self.config(routes));
        self.gateway.request_reload();
        self.gateway.wait_for_log(|line| line.contains("is active")).await.expect("a line");
    }

    /// Asks for a reload of files with a mistake, and waits until it is refused.
    pub(crate) async fn expect_refused_reload(&self) {
        self.gateway.request_reload();
        self.gateway.wait_for_log(|line| line.contains("stays active")).await.expect("a line");
    }

    /// Runs `orfa check`. Returns whether it succeeded, and its standard error output.
    pub(crate) async fn run_check(&self) -> (bool, String) {
        let (is_good, _, told) = self.run_orfa(&["check"]).await;
        (is_good, told)
    }

    /// Runs a command beside the config. Returns whether it succeeded, its output and its standard error
    /// output.
    pub(crate) async fn run_orfa(&self, arguments: &[&str]) -> (bool, String, String) {
        let ran = Command::new(orfa_binary()).args(arguments).current_dir(self.gateway.directory()).output();
        let ran = ran.await.expect("orfa runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.success(), text(&ran.stdout), text(&ran.stderr))
    }
}

fn config(upstream: &str, port: u16, routes: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
admin: 127.0.0.1:0
drain: {{ delay: 0s }}
shed: {{ automatic: false }}
services:
  up: {{ url: '{upstream}', openapi: up.yaml }}
  dumb: {{ url: '{upstream}' }}
  agents: {{ url: 'http://127.0.0.1:{port}', graphql: {{}}, forward: [authorization] }}
callers: {{ shop: {{ key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' }} }}
rights: {{ anonymous: {{}}, others: {{}} }}
routes:
{routes}"
    )
}
