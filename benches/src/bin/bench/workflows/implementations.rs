//! The implementations of the variants of a workflow.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::jobs::RestSession;
use benches::programs::{build_program, cache_token, program_path};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::workflow::BenchWorkflow;
use crate::BenchTools;

/// A variant. A program has a cache mode of ORFA and a language.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramVariant {
    Sequential,
    Parallel,
    Graphql,
    Program(&'static str, &'static str),
}

pub(super) const VARIANTS: [ProgramVariant; 9] = [
    ProgramVariant::Sequential,
    ProgramVariant::Parallel,
    ProgramVariant::Graphql,
    ProgramVariant::Program("base", "c"),
    ProgramVariant::Program("base", "js"),
    ProgramVariant::Program("code", "c"),
    ProgramVariant::Program("code", "js"),
    ProgramVariant::Program("instance", "c"),
    ProgramVariant::Program("instance", "js"),
];

/// The results of a run.
#[derive(Default)]
pub(super) struct WorkflowOutcome {
    pub(super) answer: Value,
    pub(super) requests: usize,
    /// The response bodies, for computing the savings of gzip outside of the measured time.
    pub(super) bodies: Vec<Bytes>,
}

/// The requests that run programs: by token in the modes with a cache, or else with the program.
pub(super) struct WorkflowPrograms(BTreeMap<ProgramKey, PreparedRequest>);

/// The parts of a request besides its input: headers, and the program if there is no token.
#[derive(Clone)]
struct PreparedRequest {
    headers: Vec<(HeaderName, HeaderValue)>,
    program: Bytes,
}

/// A workflow, a mode and a language.
type ProgramKey = (&'static str, &'static str, &'static str);

const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

impl ProgramVariant {
    /// The name of the variant, as in the rows of Strapi. The programs make a call for each row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sequential => "rest.sequential",
            Self::Parallel => "rest.parallel",
            Self::Graphql => "graphql.paper",
            Self::Program("base", "c") => "orfa.base.c.calls",
            Self::Program("base", _) => "orfa.base.js.calls",
            Self::Program("code", "c") => "orfa.code.c.calls",
            Self::Program("code", _) => "orfa.code.js.calls",
            Self::Program(_, "c") => "orfa.instance.c.calls",
            Self::Program(..) => "orfa.instance.js.calls",
        }
    }

    /// Whether the variant runs for every N, as the paper compares only ORFA-inst with GraphQL there.
    pub(super) fn is_in_figure_9(self) -> bool {
        matches!(self, Self::Parallel | Self::Graphql | Self::Program("instance", _))
    }

    pub(super) fn is_in_table_5b(self) -> bool {
        !matches!(self, Self::Sequential | Self::Program(_, "js"))
    }
}

impl BenchWorkflow {
    /// Whether the workflow is read-only.
    pub(super) fn is_read_only(&self) -> bool {
        self.method == Method::GET
    }

    fn row_keys(&self, list: &Value) -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(self.key).collect()
    }

    pub(super) async fn run_rest(
        &self,
        client: &BenchClient,
        size: usize,
        at_once: bool,
    ) -> Result<WorkflowOutcome> {
        let mut session = RestSession::new(client, at_once);
        let list = session.call(self.list_call(size)).await?;
        let keys = self.row_keys(&list);
        let answers = session.call_all(keys.iter().map(|key| self.row_call(key)).collect()).await?;
        let answer = keys.iter().zip(&answers).map(|(key, answer)| (self.result_part)(key, answer)).collect();
        Ok(WorkflowOutcome { answer, requests: session.requests(), bodies: session.into_bodies() })
    }

    pub(super) async fn run_graphql(&self, client: &BenchClient, size: usize) -> Result<WorkflowOutcome> {
        let (mut list, first) = send_json(client, &graphql_call(&(self.document.0)(size))).await?;
        let keys = self.row_keys(&list["data"]["list"].take());
        let (data, second) = send_json(client, &self.batch_call(&keys)).await?;
        ensure!(data.get("errors").is_none(), "GraphQL failed: {data:.300}");
        let wanted =
            |(place, key): (usize, &String)| (self.result_part)(key, &data["data"][format!("a{place}")]);
        let answer = keys.iter().enumerate().map(wanted).collect();
        Ok(WorkflowOutcome { answer, requests: 2, bodies: vec![first, second] })
    }

    /// The requests of a variant for one run, given the list.
    pub(super) async fn build_calls(
        &self,
        service: &BenchClient,
        variant: ProgramVariant,
        size: usize,
        programs: &WorkflowPrograms,
    ) -> Result<Vec<PreparedCall>> {
        let (list, _) = send_json(service, &self.list_call(size)).await?;
        let keys = self.row_keys(&list);
        Ok(match variant {
            ProgramVariant::Sequential | ProgramVariant::Parallel => std::iter::once(self.list_call(size))
                .chain(keys.iter().map(|key| self.row_call(key)))
                .collect(),
            ProgramVariant::Graphql => vec![graphql_call(&(self.document.0)(size)), self.batch_call(&keys)],
            ProgramVariant::Program(mode, language) => {
                vec![programs.program_call((self.name, mode, language), size)?]
            }
        })
    }

    fn list_call(&self, size: usize) -> PreparedCall {
        PreparedCall::get((self.list)(size))
    }

    fn row_call(&self, key: &str) -> PreparedCall {
        let call = PreparedCall::new(self.method.clone(), (self.call)(key), self.body.unwrap_or_default());
        let json = HeaderValue::from_static("application/json");
        if self.body.is_some() { call.with_header(CONTENT_TYPE, json).accepting_json() } else { call }
    }

    /// All calls combined in one document.
    fn batch_call(&self, keys: &[String]) -> PreparedCall {
        let call = |(place, key): (usize, &String)| format!("a{place}:{}", (self.document.1)(key));
        let calls: String = keys.iter().enumerate().map(call).collect();
        graphql_call(&format!("{}{{{calls}}}", if self.is_read_only() { "" } else { "mutation" }))
    }
}

fn graphql_call(query: &str) -> PreparedCall {
    PreparedCall::graphql("/graphql", query)
}

/// Sends a call. Returns the JSON of the response, and its body.
async fn send_json(client: &BenchClient, call: &PreparedCall) -> Result<(Value, Bytes)> {
    let body = call.send(client).await?.body;
    Ok((serde_json::from_slice(&body)?, body))
}

impl WorkflowPrograms {
    /// Builds the programs, and sends each one in the modes with a cache to get its token.
    pub(super) async fn prepare(
        tools: &BenchTools,
        orfa: &BenchClient,
        workflows: &[BenchWorkflow],
    ) -> Result<Self> {
        let (folder, mut programs) = (tempfile::tempdir()?, BTreeMap::new());
        for workflow in workflows.iter().map(|workflow| workflow.name) {
            for variant in VARIANTS {
                let ProgramVariant::Program(mode, language) = variant else { continue };
                let name = format!("workflows/{}.{language}", workflow.replace('.', "_"));
                let (kind, text) = match language {
                    "c" => (
                        "application/wasm",
                        std::fs::read(build_program(&tools.orfa, &name, folder.path())?)?,
                    ),
                    _ => ("text/javascript", std::fs::read(program_path(&name))?),
                };
                let headers = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
                let mut request = PreparedRequest { headers, program: text.into() };
                if mode != "base" {
                    let first = request.with_input(4).with_header(ORFA_CACHE, HeaderValue::from_static(mode));
                    let answer = first.send(orfa).await?;
                    let token = cache_token(&answer.headers, mode).with_context(|| name.clone())?;
                    request.headers.push((ORFA_CACHE, HeaderValue::try_from(token)?));
                    request.program = Bytes::new();
                }
                programs.insert((workflow, mode, language), request);
            }
        }
        Ok(Self(programs))
    }

    pub(super) async fn run(
        &self,
        client: &BenchClient,
        which: ProgramKey,
        size: usize,
    ) -> Result<WorkflowOutcome> {
        let (answer, body) = send_json(client, &self.program_call(which, size)?).await?;
        Ok(WorkflowOutcome { answer, requests: 1, bodies: vec![body] })
    }

    fn program_call(&self, which: ProgramKey, size: usize) -> Result<PreparedCall> {
        Ok(self.0.get(&which).context("the program does not exist")?.with_input(size))
    }
}

impl PreparedRequest {
    fn with_input(&self, size: usize) -> PreparedCall {
        let input = json!({ "n": size }).to_string();
        let call = PreparedCall::post("/query", [input.as_bytes(), &self.program].concat());
        let headers = self.headers.iter().cloned();
        let call = headers.fold(call, |call, (name, value)| call.with_header(name, value));
        if self.program.is_empty() {
            return call;
        }
        call.with_header(HeaderName::from_static("orfa-input"), input.len().into())
    }
}
