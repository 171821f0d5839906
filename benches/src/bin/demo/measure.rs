//! Runs a job in every variant, several times, over existing connections, and compares the answers.
//!
//! The first run of a variant is not measured: it opens the connections. In it, the gateway receives a
//! query's program for the first time, a worker runs a script for the first time, and a GraphQL request is
//! planned. All REST variants share their connections, so only the first of them needs such a run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use benches::client::{BenchClient, BenchResponse, gzip_saves};
use benches::delay::ProxyTraffic;
use benches::jobs::{BenchJob, RestSession};
use benches::stats;
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::Full;
use serde::Serialize;
use serde_json::Value;

use crate::servers::{DemoLanguage, DemoServers, ROUND_TRIP};
use crate::terminal;
use crate::timing::QueryTimings;

const RUNS: usize = 5;
/// Three runs are enough if they take longer than this, since someone is watching.
const LONG_MS: f64 = 3000.0;
const LONG_RUNS: usize = 3;

/// A variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoVariant {
    /// REST with sequential calls.
    Sequential,
    /// REST with all independent calls at once.
    Parallel,
    /// REST with the fewest calls that the services allow.
    Bulk,
    /// A program.
    Query(DemoLanguage),
    /// A script that is deployed on the gateway.
    Script,
    /// An aggregate that is declared in the gateway's config.
    Aggregate,
    /// A GraphQL document over the REST services.
    Graphql,
    /// A GraphQL document over the services' own GraphQL.
    Stitched,
}

/// A row of `target/demo.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DemoRow {
    pub(crate) job: &'static str,
    pub(crate) way: &'static str,
    /// The language of a program.
    pub(crate) language: Option<&'static str>,
    pub(crate) requests: usize,
    pub(crate) round_trips: usize,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) ms: f64,
    /// Whether every run gave the same answer as the first run with REST.
    pub(crate) equal: bool,
    /// The number of calls that the gateway made for one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_calls: Option<u64>,
    /// The sizes of an aggregate's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<BodySizes>,
}

/// The size of a response body, by the encodings that the client accepts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BodySizes {
    pub(crate) plain: usize,
    pub(crate) deduplicated: usize,
    pub(crate) compressed: usize,
    /// Deduplicated, then compressed.
    pub(crate) both: usize,
    /// The content encoding that the gateway chose for a browser.
    pub(crate) encoding: String,
}

/// The figures of a variant.
#[derive(Clone, Debug)]
pub(crate) struct VariantFigures {
    pub(crate) way: DemoVariant,
    pub(crate) row: DemoRow,
    /// The value of `bytes_down` with gzipped response bodies.
    pub(crate) gzip_down: u64,
    /// Figures that only queries have.
    pub(crate) query: Option<QueryFigures>,
}

/// Figures that only queries have.
#[derive(Clone, Debug)]
pub(crate) struct QueryFigures {
    /// The time of the first run, with an uncached program.
    pub(crate) first_ms: f64,
    /// The compile time in the first run.
    pub(crate) compile_ms: Option<f64>,
    /// The time without the distance.
    pub(crate) near_ms: f64,
}

/// A run.
#[derive(Default)]
struct DemoRun {
    answer: Value,
    requests: usize,
    round_trips: usize,
    ms: f64,
    traffic: ProxyTraffic,
    gzip_saves: u64,
    timing: QueryTimings,
}

impl DemoVariant {
    /// All variants, in the order of the output.
    const ALL: [Self; 9] = [
        Self::Sequential,
        Self::Parallel,
        Self::Bulk,
        Self::Query(DemoLanguage::Javascript),
        Self::Query(DemoLanguage::C),
        Self::Script,
        Self::Aggregate,
        Self::Graphql,
        Self::Stitched,
    ];

    /// The variants that are possible for a job.
    fn variants_for(job: BenchJob) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |variant| match variant {
            Self::Script => job.script().is_some(),
            Self::Aggregate => job.aggregate().is_some(),
            Self::Graphql | Self::Stitched => job.graphql().is_some(),
            _ => true,
        })
    }

    /// Whether the first run differs from later ones.
    fn has_first_run(self) -> bool {
        matches!(self, Self::Query(_) | Self::Script | Self::Graphql | Self::Stitched)
    }

    fn is_rest(self) -> bool {
        matches!(self, Self::Sequential | Self::Parallel | Self::Bulk)
    }

    fn row_names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Sequential => ("rest-sequential", None),
            Self::Parallel => ("rest-parallel", None),
            Self::Bulk => ("rest-best", None),
            Self::Query(DemoLanguage::Javascript) => ("query", Some("javascript")),
            Self::Query(DemoLanguage::C) => ("query", Some("c")),
            Self::Script => ("script", Some("s")),
            Self::Aggregate => ("aggregate", None),
            Self::Graphql => ("graphql", None),
            Self::Stitched => ("graphql-stitched", None),
        }
    }
}

impl VariantFigures {
    /// The latency of a query beyond the distance and its latency without a distance.
    pub(crate) fn over_ideal_ms(&self) -> Option<f64> {
        let query = self.query.as_ref()?;
        Some(self.row.ms - to_millis(ROUND_TRIP) - query.near_ms)
    }
}

/// Measures all variants of a job.
pub(crate) async fn measure(world: &DemoServers, job: BenchJob) -> Result<Vec<VariantFigures>> {
    let mut bench = MeasuredJob { world, job, runs: 0 };
    terminal::show_progress(&format!("{}: opening connections", job.name()));
    let expected = bench.run(DemoVariant::Parallel, &world.distant_client).await?.answer;
    let mut measured = Vec::new();
    for variant in DemoVariant::variants_for(job) {
        measured.push(bench.measure(variant, &expected).await?);
    }
    job.check_effects(&world.local_client, &expected, bench.runs).await?;
    Ok(measured)
}

/// The request that runs the program of a job.
pub(crate) fn program_request(
    world: &DemoServers,
    job: BenchJob,
    language: DemoLanguage,
) -> Result<Request<Full<Bytes>>> {
    let (input, program) = (job.input().to_string(), world.program(job, language));
    let request = Request::post("/query")
        .header("content-type", language.content_type())
        .header("orfa-input", input.len());
    Ok(request.body(Full::new([input.as_bytes(), &program].concat().into()))?)
}

/// A job under measurement.
struct MeasuredJob<'a> {
    world: &'a DemoServers,
    job: BenchJob,
    /// The number of all runs.
    runs: usize,
}

impl MeasuredJob<'_> {
    async fn measure(&mut self, variant: DemoVariant, expected: &Value) -> Result<VariantFigures> {
        let (name, language) = variant.row_names();
        terminal::show_progress(&format!("{}: {name} {}", self.job.name(), language.unwrap_or_default()));
        let first = if variant.has_first_run() {
            Some(self.run(variant, &self.world.distant_client).await?)
        } else {
            None
        };
        let runs = self.run_repeatedly(variant, &self.world.distant_client).await?;
        let last = runs.last().context("no run was measured")?;
        let sizes = if variant == DemoVariant::Aggregate { Some(self.sizes(expected).await?) } else { None };
        let upstream_calls = if variant.is_rest() { None } else { Some(self.upstream_calls(variant).await?) };
        let row = DemoRow {
            job: self.job.name(),
            way: name,
            language,
            requests: last.requests,
            round_trips: last.round_trips,
            bytes_up: last.traffic.up,
            bytes_down: last.traffic.down,
            ms: round_to_thousandth(median(&runs)),
            equal: first.iter().chain(&runs).all(|run| run.answer == *expected),
            upstream_calls,
            sizes,
        };
        let query = match (variant, first) {
            (DemoVariant::Query(_), Some(first)) => Some(self.query_figures(variant, &first).await?),
            _ => None,
        };
        Ok(VariantFigures { way: variant, gzip_down: row.bytes_down - last.gzip_saves, row, query })
    }

    async fn query_figures(&mut self, variant: DemoVariant, first: &DemoRun) -> Result<QueryFigures> {
        let _warm = self.run(variant, &self.world.local_client).await?;
        let runs = self.run_repeatedly(variant, &self.world.local_client).await?;
        Ok(QueryFigures { first_ms: first.ms, compile_ms: first.timing.compile, near_ms: median(&runs) })
    }

    /// The sizes of the aggregate's response with deduplication and compression.
    async fn sizes(&self, expected: &Value) -> Result<BodySizes> {
        let duplicates = (ACCEPT, BenchResponse::WITHOUT_DUPLICATES);
        let compressed = (ACCEPT_ENCODING, BenchResponse::ENCODINGS);
        let both = self.fetch_aggregate(&[duplicates.clone(), compressed.clone()], expected).await?;
        Ok(BodySizes {
            plain: self.fetch_aggregate(&[], expected).await?.body.len(),
            deduplicated: self.fetch_aggregate(&[duplicates], expected).await?.body.len(),
            compressed: self.fetch_aggregate(&[compressed], expected).await?.body.len(),
            both: both.body.len(),
            encoding: both.encoding().to_owned(),
        })
    }

    /// The aggregate's response to a request with these headers, whose content has to be the same.
    async fn fetch_aggregate(
        &self,
        headers: &[(HeaderName, &'static str)],
        expected: &Value,
    ) -> Result<BenchResponse> {
        let path = self.job.aggregate().context("this job has no aggregate")?;
        let mut request = Request::get(path).body(Full::default())?;
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        request.headers_mut().extend(headers);
        let answer = self.world.local_client.send(request).await?;
        let decoded: Value = serde_json::from_slice(&answer.decode_body().await?)?;
        ensure!(decoded == *expected, "the response differs with {:?}", answer.headers);
        Ok(answer)
    }

    /// The number of calls that the gateway makes for a run.
    async fn upstream_calls(&mut self, variant: DemoVariant) -> Result<u64> {
        let before = self.world.upstream_calls().await?;
        self.run(variant, &self.world.local_client).await?;
        Ok(self.world.upstream_calls().await? - before)
    }

    async fn run_repeatedly(&mut self, variant: DemoVariant, client: &BenchClient) -> Result<Vec<DemoRun>> {
        let mut runs = vec![self.run(variant, client).await?];
        let wanted = if runs.iter().all(|run| run.ms > LONG_MS) { LONG_RUNS } else { RUNS };
        while runs.len() < wanted {
            runs.push(self.run(variant, client).await?);
        }
        Ok(runs)
    }

    async fn run(&mut self, variant: DemoVariant, client: &BenchClient) -> Result<DemoRun> {
        self.runs += 1;
        let (before, began) = (self.world.delay.traffic(), Instant::now());
        let mut run = match variant {
            DemoVariant::Query(language) => {
                self.run_request(program_request(self.world, self.job, language)?, client).await?
            }
            DemoVariant::Script | DemoVariant::Aggregate => {
                let (script, aggregate) = (self.job.script(), self.job.aggregate());
                let path = if variant == DemoVariant::Script { script } else { aggregate };
                let path = path.with_context(|| format!("this job has no {}", variant.row_names().0))?;
                self.run_request(Request::get(path).body(Full::default())?, client).await?
            }
            DemoVariant::Graphql => self.run_graphql("/graphql", client).await?,
            DemoVariant::Stitched => self.run_graphql("/stitched", client).await?,
            DemoVariant::Sequential | DemoVariant::Parallel | DemoVariant::Bulk => {
                self.run_rest(variant, client).await?
            }
        };
        run.ms = to_millis(began.elapsed());
        run.traffic = self.world.delay.traffic() - before;
        Ok(run)
    }

    async fn run_rest(&self, variant: DemoVariant, client: &BenchClient) -> Result<DemoRun> {
        let mut session = RestSession::new(client, variant != DemoVariant::Sequential);
        let answer = match variant {
            DemoVariant::Bulk => self.job.run_bulk(&mut session).await?,
            _ => self.job.run_calls(&mut session).await?,
        };
        let (requests, round_trips, gzip_saves) =
            (session.requests(), session.round_trips, session.gzip_saves()?);
        Ok(DemoRun { answer, requests, round_trips, gzip_saves, ..DemoRun::default() })
    }

    async fn run_graphql(&self, path: &str, client: &BenchClient) -> Result<DemoRun> {
        let body = self.job.graphql().context("this job has no GraphQL document")?.to_string();
        let request =
            Request::post(path).header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
        let mut run = self.run_request(request.body(Full::new(body.into()))?, client).await?;
        ensure!(run.answer.get("errors").is_none(), "GraphQL failed: {}", run.answer);
        run.answer = self.job.answer_from_graphql(run.answer["data"].take());
        Ok(run)
    }

    /// Makes a run of one request.
    async fn run_request(&self, request: Request<Full<Bytes>>, client: &BenchClient) -> Result<DemoRun> {
        let answer = client.send(request).await?;
        let (timing, gzip_saves) = (QueryTimings::from_headers(&answer.headers), gzip_saves(&answer.body)?);
        let answer = parse_json(&answer)?;
        Ok(DemoRun { answer, requests: 1, round_trips: 1, gzip_saves, timing, ..DemoRun::default() })
    }
}

/// The JSON of a successful response.
fn parse_json(answer: &BenchResponse) -> Result<Value> {
    if !answer.status.is_success() {
        bail!("the request failed: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    serde_json::from_slice(&answer.body).context("the response is not JSON")
}

fn median(runs: &[DemoRun]) -> f64 {
    stats::median(&runs.iter().map(|run| run.ms).collect::<Vec<_>>())
}

pub(crate) fn to_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Rounds to a thousandth.
pub(crate) fn round_to_thousandth(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
