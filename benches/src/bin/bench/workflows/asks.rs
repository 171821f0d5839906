//! The implementations of the variants of a workflow.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use benches::call::Call;
use benches::client::Client;
use benches::jobs::Session;
use benches::programs::{build, program, token};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::workflow::Workflow;
use crate::Tools;

/// A variant. A program has a cache mode of ORFA and a language.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    OneByOne,
    AtOnce,
    Graphql,
    Program(&'static str, &'static str),
}

pub(super) const WAYS: [Way; 9] = [
    Way::OneByOne,
    Way::AtOnce,
    Way::Graphql,
    Way::Program("base", "c"),
    Way::Program("base", "js"),
    Way::Program("code", "c"),
    Way::Program("code", "js"),
    Way::Program("instance", "c"),
    Way::Program("instance", "js"),
];

/// The results of a run.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) answer: Value,
    pub(super) requests: usize,
    /// The response bodies, for computing the savings of gzip outside of the measured time.
    pub(super) bodies: Vec<Bytes>,
}

/// The requests that run programs: by token in the modes with a cache, or else with the program.
pub(super) struct Programs(BTreeMap<Which, Kept>);

/// The parts of a request besides its input: headers, and the program if there is no token.
#[derive(Clone)]
struct Kept {
    headers: Vec<(HeaderName, HeaderValue)>,
    program: Bytes,
}

/// A workflow, a mode and a language.
type Which = (&'static str, &'static str, &'static str);

const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

impl Way {
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

impl Workflow {
    /// Whether the workflow is read-only.
    pub(super) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    fn keys(&self, list: &Value) -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(self.key).collect()
    }

    pub(super) async fn by_rest(&self, client: &Client, size: usize, at_once: bool) -> Result<Answered> {
        let mut session = Session::new(client, at_once);
        let list = session.one(self.list(size)).await?;
        let keys = self.keys(&list);
        let answers = session.all(keys.iter().map(|key| self.call(key)).collect()).await?;
        let answer = keys.iter().zip(&answers).map(|(key, answer)| (self.wanted)(key, answer)).collect();
        Ok(Answered { answer, requests: session.requests(), bodies: session.into_bodies() })
    }

    pub(super) async fn by_graphql(&self, client: &Client, size: usize) -> Result<Answered> {
        let (mut list, first) = ask(client, &graphql(&(self.document.0)(size))).await?;
        let keys = self.keys(&list["data"]["list"].take());
        let (data, second) = ask(client, &self.batch(&keys)).await?;
        ensure!(data.get("errors").is_none(), "GraphQL failed: {data:.300}");
        let wanted = |(place, key): (usize, &String)| (self.wanted)(key, &data["data"][format!("a{place}")]);
        let answer = keys.iter().enumerate().map(wanted).collect();
        Ok(Answered { answer, requests: 2, bodies: vec![first, second] })
    }

    /// The requests of a variant for one run, given the list.
    pub(super) async fn all(
        &self,
        service: &Client,
        way: Way,
        size: usize,
        programs: &Programs,
    ) -> Result<Vec<Call>> {
        let (list, _) = ask(service, &self.list(size)).await?;
        let keys = self.keys(&list);
        Ok(match way {
            Way::OneByOne | Way::AtOnce => {
                std::iter::once(self.list(size)).chain(keys.iter().map(|key| self.call(key))).collect()
            }
            Way::Graphql => vec![graphql(&(self.document.0)(size)), self.batch(&keys)],
            Way::Program(mode, language) => vec![programs.call((self.name, mode, language), size)?],
        })
    }

    fn list(&self, size: usize) -> Call {
        Call::get((self.list)(size))
    }

    fn call(&self, key: &str) -> Call {
        let call = Call::new(self.method.clone(), (self.call)(key), self.body.unwrap_or_default());
        let json = HeaderValue::from_static("application/json");
        if self.body.is_some() { call.with(CONTENT_TYPE, json).accepting_json() } else { call }
    }

    /// All calls combined in one document.
    fn batch(&self, keys: &[String]) -> Call {
        let call = |(place, key): (usize, &String)| format!("a{place}:{}", (self.document.1)(key));
        let calls: String = keys.iter().enumerate().map(call).collect();
        graphql(&format!("{}{{{calls}}}", if self.reads() { "" } else { "mutation" }))
    }
}

fn graphql(query: &str) -> Call {
    Call::graphql("/graphql", query)
}

/// Sends a call. Returns the JSON of the response, and its body.
async fn ask(client: &Client, call: &Call) -> Result<(Value, Bytes)> {
    let body = call.send(client).await?.body;
    Ok((serde_json::from_slice(&body)?, body))
}

impl Programs {
    /// Builds the programs, and sends each one in the modes with a cache to get its token.
    pub(super) async fn learn(tools: &Tools, orfa: &Client, workflows: &[Workflow]) -> Result<Self> {
        let (folder, mut programs) = (tempfile::tempdir()?, BTreeMap::new());
        for workflow in workflows.iter().map(|workflow| workflow.name) {
            for way in WAYS {
                let Way::Program(mode, language) = way else { continue };
                let name = format!("workflows/{}.{language}", workflow.replace('.', "_"));
                let (kind, text) = match language {
                    "c" => ("application/wasm", std::fs::read(build(&tools.orfa, &name, folder.path())?)?),
                    _ => ("text/javascript", std::fs::read(program(&name))?),
                };
                let headers = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
                let mut kept = Kept { headers, program: text.into() };
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

    pub(super) async fn run(&self, client: &Client, which: Which, size: usize) -> Result<Answered> {
        let (answer, body) = ask(client, &self.call(which, size)?).await?;
        Ok(Answered { answer, requests: 1, bodies: vec![body] })
    }

    fn call(&self, which: Which, size: usize) -> Result<Call> {
        Ok(self.0.get(&which).context("the program does not exist")?.call(size))
    }
}

impl Kept {
    fn call(&self, size: usize) -> Call {
        let input = json!({ "n": size }).to_string();
        let call = Call::post("/query", [input.as_bytes(), &self.program].concat());
        let headers = self.headers.iter().cloned();
        let call = headers.fold(call, |call, (name, value)| call.with(name, value));
        if self.program.is_empty() {
            return call;
        }
        call.with(HeaderName::from_static("orfa-input"), input.len().into())
    }
}
