//! How each way asks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::gzip_saves;
use benches::jobs::{Job, Session};
use benches::programs;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use super::world::{Far, Host, World};
use super::{Runs, millis};

/// The ways that send a program with each request.
pub(super) const BY_PROGRAM: [&str; 2] = ["ORFA query, JavaScript", "ORFA query, C"];
/// Runs of a client of Cap'n Web before those that it tells of.
const CAPNWEB_WARM_UPS: usize = 10;
/// Runs of it, which is a process of its own, for so long.
const CAPNWEB_RUNS_PER_S: f64 = 100.0;

/// A way to ask, and who is asked.
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) host: Host,
    pub(super) ask: Ask,
}

pub(super) enum Ask {
    /// REST, a call after the other or all at once.
    Calls { at_once: bool },
    /// REST, with the fewest calls that the services allow.
    Bulk,
    /// One request.
    One(One),
    /// By its own client.
    Capnweb,
}

/// A request.
#[derive(Clone)]
pub(super) struct One {
    method: Method,
    path: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    is_graphql: bool,
}

/// What a client of Cap'n Web says.
#[derive(Deserialize)]
struct Told {
    ms: Vec<f64>,
    answer: Value,
    requests: usize,
    gzip_saves: u64,
}

/// The ways in which a job can be done.
pub(super) async fn of(job: Job, world: &World) -> Result<Vec<Way>> {
    let rest = |name, ask| Way { name, host: Host::Orfa, ask };
    let orfa = |name, one| Way { name, host: Host::Orfa, ask: Ask::One(one) };
    let mut ways = vec![
        rest("REST, one by one", Ask::Calls { at_once: false }),
        rest("REST, all at once", Ask::Calls { at_once: true }),
        rest("REST, the API's best", Ask::Bulk),
    ];
    let input = job.input().to_string();
    let typescript = program("/query", "orfa-input", &input, job.typescript().as_bytes());
    let c = program("/query", "orfa-input", &input, &world.module(job)?);
    let kinds = [
        ("text/typescript", typescript, BY_PROGRAM[0], "ORFA query, JavaScript, by token"),
        ("application/wasm", c, BY_PROGRAM[1], "ORFA query, C, by token"),
    ];
    for (kind, one, name, name_by_token) in kinds {
        let one = one.with(CONTENT_TYPE, HeaderValue::from_static(kind));
        let first = one.clone().with(ORFA_CACHE, HeaderValue::from_static("code"));
        let answer = world.near(Host::Orfa)?.client.send(first.request()?).await?;
        let token = HeaderValue::try_from(programs::token(&answer.headers, "code")?)?;
        let by_token = One { body: input.clone().into(), headers: Vec::new(), ..one.clone() };
        let by_token = by_token.with(CONTENT_TYPE, HeaderValue::from_static(kind)).with(ORFA_CACHE, token);
        ways.extend([orfa(name, one), orfa(name_by_token, by_token)]);
    }
    ways.extend(job.script().map(|path| orfa("ORFA script", get(path))));
    if let Some(document) = job.graphql() {
        for (name, path) in [("ORFA GraphQL", "/graphql"), ("ORFA GraphQL, stitched", "/stitched")] {
            ways.push(orfa(name, graphql(path, &document)));
        }
    }
    ways.extend(job.aggregate().map(|path| orfa("ORFA aggregate", get(path))));
    if world.has(Host::Capnweb) {
        ways.push(Way { name: "Cap'n Web", host: Host::Capnweb, ask: Ask::Capnweb });
    }
    if world.has(Host::Workerd) {
        let javascript = query::javascript(query::Language::Typescript, job.typescript().as_bytes())?;
        let one = program("/", "input", &input, javascript.as_bytes());
        let answer = world.near(Host::Workerd)?.client.send(one.request()?).await?;
        let token = answer.headers.get("token").context("workerd gave no token")?.clone();
        let by_token = One { body: input.into(), headers: Vec::new(), ..one.clone() };
        let by_token = by_token.with(HeaderName::from_static("token"), token);
        let workerd = |name, one| Way { name, host: Host::Workerd, ask: Ask::One(one) };
        ways.extend([workerd("workerd, by program", one), workerd("workerd, by token", by_token)]);
    }
    Ok(ways)
}

const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

fn get(path: &'static str) -> One {
    One { method: Method::GET, path, headers: Vec::new(), body: Bytes::new(), is_graphql: false }
}

/// A program behind its input.
fn program(path: &'static str, length: &'static str, input: &str, program: &[u8]) -> One {
    let body = [input.as_bytes(), program].concat().into();
    let one = One { method: Method::POST, path, headers: Vec::new(), body, is_graphql: false };
    one.with(HeaderName::from_static(length), input.len().into())
}

fn graphql(path: &'static str, document: &Value) -> One {
    let body = document.to_string().into();
    let one = One { method: Method::POST, path, headers: Vec::new(), body, is_graphql: true };
    let json = HeaderValue::from_static("application/json");
    one.with(CONTENT_TYPE, json.clone()).with(ACCEPT, json)
}

impl One {
    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(&self.method).uri(self.path);
        let mut request = request.body(Full::new(self.body.clone()))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }
}

impl Way {
    /// Whether the gateway tells how many calls it makes.
    pub(super) fn is_told(&self) -> bool {
        self.host == Host::Orfa
    }

    /// Asks for a while.
    pub(super) async fn repeat(&self, job: Job, far: &Far, time: Duration) -> Result<Runs> {
        if matches!(self.ask, Ask::Capnweb) {
            let runs = (time.as_secs_f64() * CAPNWEB_RUNS_PER_S).ceil();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred")]
            return self.times(job, far, runs as usize).await;
        }
        let (began, mut all) = (Instant::now(), Vec::new());
        loop {
            let runs = self.times(job, far, 1).await?;
            all.extend_from_slice(&runs.ms);
            if began.elapsed() >= time {
                return Ok(Runs { all: all.len(), ms: all, ..runs });
            }
        }
    }

    /// Asks so often.
    pub(super) async fn times(&self, job: Job, far: &Far, times: usize) -> Result<Runs> {
        let mut runs = Runs::default();
        if let Ask::Capnweb = self.ask {
            return capnweb(job, far, times).await;
        }
        for _ in 0..times {
            let (ms, began) = (runs.ms, Instant::now());
            runs = self.once(job, far).await?;
            runs.ms = [ms, vec![millis(began)]].concat();
        }
        runs.all = times;
        Ok(runs)
    }

    async fn once(&self, job: Job, far: &Far) -> Result<Runs> {
        let at_once = !matches!(self.ask, Ask::Calls { at_once: false });
        let mut session = Session::new(&far.client, at_once);
        let answer = match &self.ask {
            Ask::Calls { .. } => job.calls(&mut session).await?,
            Ask::Bulk | Ask::Capnweb => job.bulk(&mut session).await?,
            Ask::One(one) => return one.ask(job, far).await,
        };
        let Session { requests, round_trips, gzip_saves, .. } = session;
        Ok(Runs { answer, requests, round_trips, gzip_saves, ..Runs::default() })
    }
}

impl One {
    async fn ask(&self, job: Job, far: &Far) -> Result<Runs> {
        let answer = far.client.send(self.request()?).await?;
        let text = || String::from_utf8_lossy(&answer.body);
        ensure!(answer.status.is_success(), "it failed: {} {}", answer.status, text());
        let gzip_saves = gzip_saves(&answer.body)?;
        let mut value: Value = serde_json::from_slice(&answer.body).context("the answer is no JSON")?;
        if self.is_graphql {
            ensure!(value.get("errors").is_none(), "GraphQL failed: {value}");
            value = job.of_graphql(value["data"].take());
        }
        Ok(Runs { answer: value, requests: 1, round_trips: 1, gzip_saves, ..Runs::default() })
    }
}

/// Has its client ask. Its first runs are not among those that it tells of, but make requests too.
async fn capnweb(job: Job, far: &Far, times: usize) -> Result<Runs> {
    let script = far.capnweb.as_ref().context("there is no Cap'n Web")?;
    let mut node = Command::new("node");
    node.arg(script).args(["ask", &format!("http://{}/", far.client.address()), job.name()]);
    let output = node.arg(times.to_string()).output().await?;
    ensure!(output.status.success(), "node: {}", String::from_utf8_lossy(&output.stderr));
    let Told { ms, answer, requests, gzip_saves } = serde_json::from_slice(&output.stdout)?;
    Ok(Runs { answer, requests, round_trips: requests, gzip_saves, ms, all: times + CAPNWEB_WARM_UPS })
}
