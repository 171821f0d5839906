//! The hot paths: what is asked, and of what gateway.
//!
//! One service stands behind all of them, played in this process: posts and their users, after `benches/rivals/gateways`. It
//! is some way off, so that an answer is never there before the gateway waits for it.

use std::net::SocketAddr;
use std::path::Path as File;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::call::Call;
use benches::client::{Answer, Client};
use benches::delay::Delay;
use benches::programs::{build, program, token};
use benches::upstream::{self, Played};
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
answer: posts
";
/// To the service.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// What a worker's start may take.
const PATIENCE: Duration = Duration::from_secs(60);
const HELLO: &str = "hello world";
const C: &str = "application/wasm";
const JAVASCRIPT: &str = "text/javascript";
const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

/// What a gateway is started with, and what it asks.
pub(crate) struct World {
    pub(crate) config: String,
    has_scripts: bool,
    /// The program in C, compiled.
    c: Vec<u8>,
    _service: Delay,
    _folder: TempDir,
}

/// A request, over and over.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    client: Client,
    call: Call,
    /// What stands in each answer.
    expected: &'static str,
}

impl World {
    /// Handlers in S need [Node.js](has_node).
    pub(crate) async fn new(orfa: &File, has_scripts: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name);
        let c = std::fs::read(build(orfa, "constant.c", folder.path())?)?;
        std::fs::write(file("links.yaml"), LINKS)?;
        std::fs::write(file("posts.yaml"), AGGREGATE)?;
        std::fs::write(file("header.wasm"), wat::parse_file(program("header.wat"))?)?;
        let document = File::new(env!("CARGO_MANIFEST_DIR")).join("rivals/gateways/posts.yaml");
        let service = Delay::start(service().await?, ROUND_TRIP).await?;
        let mut config = config(service.address(), folder.path(), &document);
        if has_scripts {
            config.push_str(&scripts());
        }
        Ok(Self { config, has_scripts, c, _service: service, _folder: folder })
    }

    /// All paths of a gateway.
    pub(crate) async fn paths(&self, gateway: SocketAddr) -> Result<Vec<Path>> {
        let javascript = std::fs::read(program("constant.js"))?;
        let path = |name, call, expected| Path { name, client: Client::new(gateway), call, expected };
        let get = |name, at: &str, expected| path(name, Call::get(at), expected);
        let live = live(&Client::new(gateway), query(C, self.c.clone())).await?;
        let nested = json!({ "query": "{ posts { title user { name } } }" });
        let nested = Call::json(Method::POST, "/graphql", &nested);
        let mut paths = vec![
            path("query.fresh", query(C, self.c.clone()), HELLO),
            path("query.live", live, HELLO),
            path("query.javascript", query(JAVASCRIPT, javascript), HELLO),
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

fn query(content_type: &'static str, program: Vec<u8>) -> Call {
    Call::post("/query", program).with(CONTENT_TYPE, HeaderValue::from_static(content_type))
}

/// By the token of an instance that goes on living, which a program is given that is sent once.
async fn live(client: &Client, program: Call) -> Result<Call> {
    const MODE: &str = "instance";
    let answer = program.with(ORFA_CACHE, HeaderValue::from_static(MODE)).send(client).await?;
    let token = HeaderValue::try_from(token(&answer.headers, MODE)?)?;
    Ok(query(C, Vec::new()).with(ORFA_CACHE, token))
}

impl Path {
    /// Asks until there is an answer: once, or again while that is not ready which starts beside the gateway.
    pub(crate) async fn begin(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.answer().await?.status == 503 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.ask(1).await
    }

    /// Asks so many times, on one connection, and looks at each answer.
    pub(crate) async fn ask(&self, times: usize) -> Result<()> {
        for _ in 0..times {
            let answer = self.answer().await?;
            let text = String::from_utf8_lossy(&answer.body);
            let is_good = answer.status == 200 && text.contains(self.expected);
            ensure!(is_good, "the answer is {} {text}", answer.status);
        }
        Ok(())
    }

    async fn answer(&self) -> Result<Answer> {
        Ok(self.client.send(self.call.request()?).await?)
    }
}

/// The routes, with limits that nothing here comes near, and nothing that depends on how fast the machine is.
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
      limits: {{ cpu: 1m, deadline: 2m, memory: 16MiB, calls: 200 }}
  - {{ path: '/passed/*', proxy: api }}
  - {{ path: '/filtered/*', proxy: api, filters: [{{ wasm: '{folder}/header.wasm' }}] }}
  - {{ path: /aggregate, aggregate: '{folder}/posts.yaml' }}
  - {{ path: /graphql, graphql: {{ services: [api], links: '{folder}/links.yaml' }} }}
"
    )
}

/// The last route, and what it needs.
fn scripts() -> String {
    let file = program("handlers.sjs");
    format!(
        "  - path: /*
    script: {{ file: '{}', workers: {{ least: 1, most: 1 }}, limits: {{ wall: 10m }} }}
scripts: {{ engine: node, durability: process }}
",
        file.display()
    )
}

/// Whether there is a Node.js that runs handlers.
pub(crate) fn has_node() -> bool {
    let version = std::process::Command::new("node").args(["-p", "process.versions.node"]).output();
    let major = |text: &str| text.split('.').next()?.parse::<u32>().ok();
    version
        .is_ok_and(|output| major(&String::from_utf8_lossy(&output.stdout)).is_some_and(|major| major >= 20))
}

/// Starts the service, which answers as long as this process lives.
async fn service() -> Result<SocketAddr> {
    let users: Vec<Value> = (1..=USERS).map(user).collect();
    let ids: Vec<String> = (1..=USERS).map(|id| id.to_string()).collect();
    let mut played: Played =
        users.iter().map(|user| (format!("/users/{}", user["id"]), user.to_string())).collect();
    played.insert(format!("/users?ids={}", ids.join(",")), Value::from(users).to_string());
    played.insert("/posts".to_owned(), (1..=POSTS).map(post).collect::<Value>().to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { upstream::play(listener, &played).await });
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
