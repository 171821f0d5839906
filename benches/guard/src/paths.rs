//! The hot paths: the requests, and the config of the gateway.
//!
//! All of them use one service, which runs in this process: posts and their users, as in
//! `benches/rivals/gateways`. It has a simulated distance, so that a response never arrives before the
//! gateway waits for it.

use std::net::SocketAddr;
use std::path::Path as File;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::call::PreparedCall;
use benches::client::{BenchClient, BenchResponse};
use benches::delay::DelayProxy;
use benches::programs::{build_program, cache_token, program_path};
use benches::upstream::{self, PlayedTexts};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const POSTS: usize = 20;
const USERS: usize = 4;
const LINKS: &str = "links: { Post.user: { get: 'api/users/{userId}' } }\n";
const AGGREGATE: &str = "\
parts:
  posts: { get: api/posts }
  users:
    get: 'api/users?ids={$.posts[*].userId}'
    join: { into: posts, on: userId = id, as: user, one: true }
response: posts
";
/// The round trip to the service.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The timeout for the start of a worker.
const WORKER_TIMEOUT: Duration = Duration::from_secs(60);
const HELLO: &str = "hello world";
const C_TYPE: &str = "application/wasm";
const JAVASCRIPT_TYPE: &str = "text/javascript";
const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

/// The gateway's config and its upstream service.
pub(crate) struct GuardServers {
    pub(crate) config: String,
    has_scripts: bool,
    /// The program in C, compiled.
    c: Vec<u8>,
    _service: DelayProxy,
    _folder: TempDir,
}

/// A request that is repeated.
pub(crate) struct GuardPath {
    pub(crate) name: &'static str,
    client: BenchClient,
    call: PreparedCall,
    /// A text that each response contains.
    expected: &'static str,
}

impl GuardServers {
    /// Prepares the config and starts the service. Handlers in S need [Node.js](has_node).
    pub(crate) async fn new(orfa: &File, has_scripts: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name);
        let c = std::fs::read(build_program(orfa, "constant.c", folder.path())?)?;
        std::fs::write(file("links.yaml"), LINKS)?;
        std::fs::write(file("posts.yaml"), AGGREGATE)?;
        std::fs::write(file("header.wasm"), wat::parse_file(program_path("header.wat"))?)?;
        let document = File::new(env!("CARGO_MANIFEST_DIR")).join("../rivals/gateways/posts.yaml");
        let service = DelayProxy::start(start_service().await?, ROUND_TRIP).await?;
        let mut config = config(service.address(), folder.path(), &document);
        if has_scripts {
            config.push_str(&script_route());
        }
        Ok(Self { config, has_scripts, c, _service: service, _folder: folder })
    }

    /// All paths of a gateway.
    pub(crate) async fn paths(&self, gateway: SocketAddr) -> Result<Vec<GuardPath>> {
        let javascript = std::fs::read(program_path("constant.js"))?;
        let path =
            |name, call, expected| GuardPath { name, client: BenchClient::new(gateway), call, expected };
        let get = |name, at: &str, expected| path(name, PreparedCall::get(at), expected);
        let live = live_instance_call(&BenchClient::new(gateway), query_call(C_TYPE, self.c.clone())).await?;
        let nested = json!({ "query": "{ posts { title user { name } } }" });
        let nested = PreparedCall::json(Method::POST, "/graphql", &nested);
        let mut paths = vec![
            path("query.fresh", query_call(C_TYPE, self.c.clone()), HELLO),
            path("query.live", live, HELLO),
            path("query.javascript", query_call(JAVASCRIPT_TYPE, javascript), HELLO),
            get("filter", "/filtered/posts", "title 7"),
            get("aggregate", "/aggregate", "user 3"),
            path("graphql.nested", nested, "user 3"),
            get("script.hello", "/hello", HELLO),
            get("script.worker", "/worker", HELLO),
            get("proxy", "/passed/posts", "title 7"),
        ];
        paths.retain(|path| self.has_scripts || !path.name.starts_with("script."));
        Ok(paths)
    }
}

fn query_call(content_type: &'static str, program: Vec<u8>) -> PreparedCall {
    PreparedCall::post("/query", program).with_header(CONTENT_TYPE, HeaderValue::from_static(content_type))
}

/// A request with the token of a live instance, which the gateway returns when the program is first sent.
async fn live_instance_call(client: &BenchClient, program: PreparedCall) -> Result<PreparedCall> {
    const MODE: &str = "instance";
    let answer = program.with_header(ORFA_CACHE, HeaderValue::from_static(MODE)).send(client).await?;
    let token = HeaderValue::try_from(cache_token(&answer.headers, MODE)?)?;
    Ok(query_call(C_TYPE, Vec::new()).with_header(ORFA_CACHE, token))
}

impl GuardPath {
    /// Sends the request until it is answered, repeatedly while components that start in the background are
    /// not ready.
    pub(crate) async fn wait_until_answered(&self) -> Result<()> {
        let end = Instant::now() + WORKER_TIMEOUT;
        while self.send_once().await?.status == 503 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.send_repeatedly(1).await
    }

    /// Sends the request repeatedly on one connection, and checks each response.
    pub(crate) async fn send_repeatedly(&self, times: usize) -> Result<()> {
        for _ in 0..times {
            let answer = self.send_once().await?;
            let text = String::from_utf8_lossy(&answer.body);
            let is_good = answer.status == 200 && text.contains(self.expected);
            ensure!(is_good, "the response is {} {text}", answer.status);
        }
        Ok(())
    }

    async fn send_once(&self) -> Result<BenchResponse> {
        Ok(self.client.send(self.call.request()?).await?)
    }
}

/// The routes, with limits that are never reached, and without settings that depend on the speed of the
/// machine.
fn config(service: SocketAddr, folder: &File, document: &File) -> String {
    let (folder, document) = (folder.display(), document.display());
    format!(
        "listen: 127.0.0.1:0
admin: off
shed: {{ automatic: false }}
runtime: {{ instances: 4 }}
services: {{ api: {{ url: 'http://{service}', openapi: '{document}', timeout: 1m }} }}
routes:
  - path: /query
    query:
      services: [api]
      modes: [code, instance]
      limits: {{ cpu: 1m, timeout: 2m, memory: 16MiB, calls: 200 }}
  - {{ path: '/passed/*', proxy: api }}
  - {{ path: '/filtered/*', proxy: api, filters: [{{ wasm: '{folder}/header.wasm' }}] }}
  - {{ path: /aggregate, aggregate: '{folder}/posts.yaml' }}
  - {{ path: /graphql, graphql: {{ services: [api], links: '{folder}/links.yaml' }} }}
"
    )
}

/// The script route with its settings.
fn script_route() -> String {
    let file = program_path("handlers.sjs");
    format!(
        "  - path: /*
    script: {{ file: '{}', workers: {{ min: 1, max: 1 }}, limits: {{ timeout: 10m }} }}
scripts: {{ engine: node, durability: process }}
",
        file.display()
    )
}

/// Whether a supported Node.js is installed.
pub(crate) fn has_node() -> bool {
    let version = std::process::Command::new("node").args(["-p", "process.versions.node"]).output();
    let major = |text: &str| text.split('.').next()?.parse::<u32>().ok();
    version
        .is_ok_and(|output| major(&String::from_utf8_lossy(&output.stdout)).is_some_and(|major| major >= 20))
}

/// Starts the service, which runs as long as this process.
async fn start_service() -> Result<SocketAddr> {
    let users: Vec<Value> = (1..=USERS).map(user).collect();
    let ids: Vec<String> = (1..=USERS).map(|id| id.to_string()).collect();
    let mut played: PlayedTexts =
        users.iter().map(|user| (format!("/users/{}", user["id"]), user.to_string())).collect();
    played.insert(format!("/users?ids={}", ids.join(",")), Value::from(users).to_string());
    played.insert("/posts".to_owned(), (1..=POSTS).map(post).collect::<Value>().to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { upstream::serve_recorded(listener, &played).await });
    Ok(address)
}

fn post(id: usize) -> Value {
    let (user, body) = ((id - 1) % USERS + 1, "words that nobody asks for ".repeat(5));
    json!({ "userId": user, "id": id, "title": format!("title {id}"), "body": body })
}

fn user(id: usize) -> Value {
    json!({
        "id": id, "name": format!("user {id}"), "username": format!("name{id}"), "email": format!("{id}@example.org"),
        "phone": "1-770-736-8031", "website": "example.org",
    })
}
