//! The implementations of the variants.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::gzip_saves;
use benches::jobs::{BenchJob, RestSession};
use benches::programs;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use super::servers::{DistantServer, JobServers, VariantServer};
use super::{SequentialRuns, elapsed_ms};

/// The variants that send a program with each request.
pub(super) const BY_PROGRAM: [&str; 2] = ["ORFA query, JavaScript", "ORFA query, C"];
/// The warm-up runs of a Cap'n Web client, which it does not report.
const CAPNWEB_WARM_UPS: usize = 4;
/// The number of runs per second of a Cap'n Web client, which is a separate process.
const CAPNWEB_RUNS_PER_S: f64 = 100.0;

/// A variant with its host.
pub(super) struct HostedVariant {
    pub(super) name: &'static str,
    pub(super) host: VariantServer,
    pub(super) request: BenchJobRequest,
}

pub(super) enum BenchJobRequest {
    /// REST with sequential or concurrent calls.
    Calls { at_once: bool },
    /// REST with the fewest calls that the services allow.
    Bulk,
    /// A single request.
    Single(PreparedCall),
    /// A single GraphQL request.
    Graphql(PreparedCall),
    /// The Cap'n Web client.
    Capnweb,
}

/// The output of a Cap'n Web client.
#[derive(Deserialize)]
struct CapnWebOutput {
    ms: Vec<f64>,
    answer: Value,
    requests: usize,
    gzip_saves: u64,
}

/// The variants of a job.
pub(super) async fn job_variants(job: BenchJob, world: &JobServers) -> Result<Vec<HostedVariant>> {
    let rest = |name, ask| HostedVariant { name, host: VariantServer::Orfa, request: ask };
    let orfa = |name, one| rest(name, BenchJobRequest::Single(one));
    let mut ways = vec![
        rest("REST, one by one", BenchJobRequest::Calls { at_once: false }),
        rest("REST, all at once", BenchJobRequest::Calls { at_once: true }),
        rest("REST, the API's best", BenchJobRequest::Bulk),
    ];
    let input = job.input().to_string();
    let typescript = program_call("/query", "orfa-input", &input, job.typescript().as_bytes());
    let c = program_call("/query", "orfa-input", &input, &world.program_module(job)?);
    let kinds = [
        ("text/typescript", typescript, BY_PROGRAM[0], "ORFA query, JavaScript, by token"),
        ("application/wasm", c, BY_PROGRAM[1], "ORFA query, C, by token"),
    ];
    for (kind, prepared_call, name, name_by_token) in kinds {
        let one = prepared_call.with_header(CONTENT_TYPE, HeaderValue::from_static(kind));
        let first = one.clone().with_header(ORFA_CACHE, HeaderValue::from_static("code"));
        let answer = first.send(&world.local_server(VariantServer::Orfa)?.client).await?;
        let token = HeaderValue::try_from(programs::cache_token(&answer.headers, "code")?)?;
        let by_token = PreparedCall::post("/query", input.clone());
        let by_token =
            by_token.with_header(CONTENT_TYPE, HeaderValue::from_static(kind)).with_header(ORFA_CACHE, token);
        ways.extend([orfa(name, one), orfa(name_by_token, by_token)]);
    }
    ways.extend(job.script().map(|path| orfa("ORFA script", PreparedCall::get(path))));
    if let Some(document) = job.graphql() {
        for (name, path) in [("ORFA GraphQL", "/graphql"), ("ORFA GraphQL, stitched", "/stitched")] {
            let call = PreparedCall::json(Method::POST, path, &document).accepting_json();
            ways.push(rest(name, BenchJobRequest::Graphql(call)));
        }
    }
    ways.extend(job.aggregate().map(|path| orfa("ORFA aggregate", PreparedCall::get(path))));
    if world.has_server(VariantServer::Capnweb) {
        ways.push(HostedVariant {
            name: "Cap'n Web",
            host: VariantServer::Capnweb,
            request: BenchJobRequest::Capnweb,
        });
    }
    if world.has_server(VariantServer::Workerd) {
        let javascript =
            query::convert_to_javascript(query::ProgramLanguage::Typescript, job.typescript().as_bytes())?;
        let one = program_call("/", "input", &input, javascript.as_bytes());
        let answer = one.send(&world.local_server(VariantServer::Workerd)?.client).await?;
        let token = answer.headers.get("token").context("workerd gave no token")?.clone();
        let by_token = PreparedCall::post("/", input).with_header(HeaderName::from_static("token"), token);
        let workerd = |name, one| HostedVariant {
            name,
            host: VariantServer::Workerd,
            request: BenchJobRequest::Single(one),
        };
        ways.extend([workerd("workerd, by program", one), workerd("workerd, by token", by_token)]);
    }
    Ok(ways)
}

const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

/// A request with the input followed by the program.
fn program_call(path: &str, length: &'static str, input: &str, program: &[u8]) -> PreparedCall {
    let call = PreparedCall::post(path, [input.as_bytes(), program].concat());
    call.with_header(HeaderName::from_static(length), input.len().into())
}

impl HostedVariant {
    /// Whether the gateway counts the calls to services.
    pub(super) fn counts_upstream_calls(&self) -> bool {
        self.host == VariantServer::Orfa
    }

    /// Runs the variant repeatedly for a time.
    pub(super) async fn run_for(
        &self,
        job: BenchJob,
        server: &DistantServer,
        time: Duration,
    ) -> Result<SequentialRuns> {
        if matches!(self.request, BenchJobRequest::Capnweb) {
            let runs = (time.as_secs_f64() * CAPNWEB_RUNS_PER_S).ceil();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred")]
            return self.run_times(job, server, runs as usize).await;
        }
        let (began, mut all) = (Instant::now(), Vec::new());
        loop {
            let runs = self.run_times(job, server, 1).await?;
            all.extend_from_slice(&runs.ms);
            if began.elapsed() >= time {
                return Ok(SequentialRuns { run_count: all.len(), ms: all, ..runs });
            }
        }
    }

    /// Runs the variant a number of times.
    pub(super) async fn run_times(
        &self,
        job: BenchJob,
        server: &DistantServer,
        times: usize,
    ) -> Result<SequentialRuns> {
        let mut runs = SequentialRuns::default();
        if let BenchJobRequest::Capnweb = self.request {
            return run_capnweb(job, server, times).await;
        }
        for _ in 0..times {
            let (ms, began) = (runs.ms, Instant::now());
            runs = self.run_once(job, server).await?;
            runs.ms = [ms, vec![elapsed_ms(began)]].concat();
        }
        runs.run_count = times;
        Ok(runs)
    }

    async fn run_once(&self, job: BenchJob, server: &DistantServer) -> Result<SequentialRuns> {
        let at_once = !matches!(self.request, BenchJobRequest::Calls { at_once: false });
        let mut session = RestSession::new(&server.client, at_once);
        let answer = match &self.request {
            BenchJobRequest::Calls { .. } => job.run_calls(&mut session).await?,
            BenchJobRequest::Bulk | BenchJobRequest::Capnweb => job.run_bulk(&mut session).await?,
            BenchJobRequest::Single(call) => return run_single_request(call, server).await,
            BenchJobRequest::Graphql(call) => {
                let mut runs = run_single_request(call, server).await?;
                ensure!(runs.answer.get("errors").is_none(), "GraphQL failed: {}", runs.answer);
                runs.answer = job.answer_from_graphql(runs.answer["data"].take());
                return Ok(runs);
            }
        };
        let (requests, round_trips, gzip_saves) =
            (session.requests(), session.round_trips, session.gzip_saves()?);
        Ok(SequentialRuns { answer, requests, round_trips, gzip_saves, ..SequentialRuns::default() })
    }
}

/// Runs a variant with one request.
async fn run_single_request(call: &PreparedCall, server: &DistantServer) -> Result<SequentialRuns> {
    let answer = call.send(&server.client).await?;
    let gzip_saves = gzip_saves(&answer.body)?;
    let value = serde_json::from_slice(&answer.body).context("the response is not JSON")?;
    Ok(SequentialRuns { answer: value, requests: 1, round_trips: 1, gzip_saves, ..SequentialRuns::default() })
}

/// Runs the Cap'n Web client. Its warm-up runs are not reported, but make requests too.
async fn run_capnweb(job: BenchJob, server: &DistantServer, times: usize) -> Result<SequentialRuns> {
    let script = server.capnweb.as_ref().context("there is no Cap'n Web")?;
    let mut node = Command::new("node");
    node.arg(script).args(["ask", &format!("http://{}/", server.client.address()), job.name()]);
    let output = node.arg(times.to_string()).output().await?;
    ensure!(output.status.success(), "node: {}", String::from_utf8_lossy(&output.stderr));
    let CapnWebOutput { ms, answer, requests, gzip_saves } = serde_json::from_slice(&output.stdout)?;
    Ok(SequentialRuns {
        answer,
        requests,
        round_trips: requests,
        gzip_saves,
        ms,
        run_count: times + CAPNWEB_WARM_UPS,
    })
}
