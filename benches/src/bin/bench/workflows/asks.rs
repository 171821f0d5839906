//! The implementations of the variants of a workflow.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::jobs::RestSession;
use benches::programs::{build, program, token};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::workflow::BenchWorkflow;
use crate::BenchTools;

/// A variant. A program has a cache mode of ORFA and a language.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramVariant {
    OneByOne,
    AtOnce,
    Graphql,
    Program(&'static str, &'static str),
}

pub(super) const WAYS: [ProgramVariant; 9] = [
    ProgramVariant::OneByOne,
    ProgramVariant::AtOnce,
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
            Self::OneByOne => "rest.sequential",
            Self::AtOnce => "rest.parallel",
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
        matches!(self, Self::AtOnce | Self::Graphql | Self::Program("instance", _))
    }

    pub(super) fn is_in_table_5b(self) -> bool {
        !matches!(self, Self::OneByOne | Self::Program(_, "js"))
    }
}

impl BenchWorkflow {
    /// Whether the workflow is read-only.
    pub(super) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    fn keys(&self, list: &Value) -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(self.key).collect()
    }

    pub(super) async fn by_rest(
        &self,
        client: &BenchClient,
        size: usize,
        at_once: bool,
    ) -> Result<WorkflowOutcome> {
        let mut session = RestSession::new(client, at_once);
        let list = session.one(self.list(size)).await?;
        let keys = self.keys(&list);
        let answers = session.all(keys.iter().map(|key| self.call(key)).collect()).await?;
        let answer = keys.iter().zip(&answers).map(|(key, answer)| (self.wanted)(key, answer)).collect();
        Ok(WorkflowOutcome { answer, requests: session.requests(), bodies: session.into_bodies() })
    }

    pub(super) async fn by_graphql(&self, client: &BenchClient, size: usize) -> Result<WorkflowOutcome> {
        let (mut list, first) = ask(client, &graphql(&(self.document.0)(size))).await?;
        let keys = self.keys(&list["data"]["list"].take());
        let (data, second) = ask(client, &self.batch(&keys)).await?;
        ensure!(data.get("errors").is_none(), "GraphQL failed: {data:.300}");
        let wanted = |(place, key): (usize, &String)| (self.wanted)(key, &data["data"][format!("a{place}")]);
        let answer = keys.iter().enumerate().map(wanted).collect();
        Ok(WorkflowOutcome { answer, requests: 2, bodies: vec![first, second] })
    }

    /// The requests of a variant for one run, given the list.
    pub(super) async fn all(
        &self,
        service: &BenchClient,
        way: ProgramVariant,
        size: usize,
        programs: &WorkflowPrograms,
    ) -> Result<Vec<PreparedCall>> {
        let (list, _) = ask(service, &self.list(size)).await?;
        let keys = self.keys(&list);
        Ok(match way {
            ProgramVariant::OneByOne | ProgramVariant::AtOnce => {
                std::iter::once(self.list(size)).chain(keys.iter().map(|key| self.call(key))).collect()
            }
            ProgramVariant::Graphql => vec![graphql(&(self.document.0)(size)), self.batch(&keys)],
            ProgramVariant::Program(mode, language) => {
                vec![programs.call((self.name, mode, language), size)?]
            }
        })
    }

    fn list(&self, size: usize) -> PreparedCall {
        PreparedCall::get((self.list)(size))
    }

    fn call(&self, key: &str) -> PreparedCall {
        let call = PreparedCall::new(self.method.clone(), (self.call)(key), self.body.unwrap_or_default());
        let json = HeaderValue::from_static("application/json");
        if self.body.is_some() { call.with(CONTENT_TYPE, json).accepting_json() } else { call }
    }

    /// All calls combined in one document.
    fn batch(&self, keys: &[String]) -> PreparedCall {
        let call = |(place, key): (usize, &String)| format!("a{place}:{}", (self.document.1)(key));
        let calls: String = keys.iter().enumerate().map(call).collect();
        graphql(&format!("{}{{{calls}}}", if self.reads() { "" } else { "mutation" }))
    }
}

fn graphql(query: &str) -> PreparedCall {
    PreparedCall::graphql("/graphql", query)
}

/// Sends a call. Returns the JSON of the response, and its body.
async fn ask(client: &BenchClient, call: &PreparedCall) -> Result<(Value, Bytes)> {
    let body = call.send(client).await?.body;
    Ok((serde_json::from_slice(&body)?, body))
}

impl WorkflowPrograms {
    /// Builds the programs, and sends each one in the modes with a cache to get its token.
    pub(super) async fn learn(
        tools: &BenchTools,
        orfa: &BenchClient,
        workflows: &[BenchWorkflow],
    ) -> Result<Self> {
        let (folder, mut programs) = (tempfile::tempdir()?, BTreeMap::new());
        for workflow in workflows.iter().map(|workflow| workflow.name) {
            for way in WAYS {
                let ProgramVariant::Program(mode, language) = way else { continue };
                let name = format!("workflows/{}.{language}", workflow.replace('.', "_"));
                let (kind, text) = match language {
                    "c" => ("application/wasm", std::fs::read(build(&tools.orfa, &name, folder.path())?)?),
                    _ => ("text/javascript", std::fs::read(program(&name))?),
                };
                let headers = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
                let mut kept = PreparedRequest { headers, program: text.into() };
                if mode != "base" {
                    let first = kept.call(4).with(ORFA_CACHE, HeaderValue::from_static(mode));
                    let answer = first.send(orfa).await?;
                    let token = token(&answer.headers, mode).with_context(|| name.clone())?;
                    kept.headers.push((ORFA_CACHE, HeaderValue::try_from(token)?));
                    kept.program = Bytes::new();
                }
                programs.insert((workflow, mode, language), kept);
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
        let (answer, body) = ask(client, &self.call(which, size)?).await?;
        Ok(WorkflowOutcome { answer, requests: 1, bodies: vec![body] })
    }

    fn call(&self, which: ProgramKey, size: usize) -> Result<PreparedCall> {
        Ok(self.0.get(&which).context("the program does not exist")?.call(size))
    }
}

impl PreparedRequest {
    fn call(&self, size: usize) -> PreparedCall {
        let input = json!({ "n": size }).to_string();
        let call = PreparedCall::post("/query", [input.as_bytes(), &self.program].concat());
        let headers = self.headers.iter().cloned();
        let call = headers.fold(call, |call, (name, value)| call.with(name, value));
        if self.program.is_empty() {
            return call;
        }
        call.with(HeaderName::from_static("orfa-input"), input.len().into())
    }
}
