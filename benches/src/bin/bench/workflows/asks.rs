//! The workflows, which all are a list and then a call for some of its rows, and how each way does them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use benches::client::{Client, gzip_saves};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use super::standins::OTHERS;
use crate::Tools;
use crate::query::{build, program, token};

/// A workflow of the paper's table 4.
pub(super) struct Workflow {
    pub(super) name: &'static str,
    /// The list's path, by N.
    list: fn(usize) -> String,
    /// What is called for a row; none where the row is not meant.
    key: fn(&Value) -> Option<String>,
    method: Method,
    call: fn(&str) -> String,
    body: Option<&'static str>,
    /// What is wanted of an answer, by the row's key.
    wanted: fn(&str, &Value) -> Value,
    /// The list and a call in GraphQL, and whether the calls change something.
    document: (fn(usize) -> String, fn(&str) -> String),
}

pub(super) const WORKFLOWS: [Workflow; 4] = [
    Workflow {
        name: "memos.r",
        list: |size| format!("/api/v1/users?limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::GET,
        call: |id| format!("/api/v1/memos?creator={id}&limit=5"),
        body: None,
        wanted: |_, notes| notes[1]["uid"].clone(),
        document: (
            |size| format!("{{list:users(limit:{size}){{id}}}}"),
            |id| format!("memos(creator:{id},limit:5){{uid}}"),
        ),
    },
    Workflow {
        name: "memos.w",
        list: |size| format!("/api/v1/memos?creator=1&limit={size}"),
        key: |row| Some(row["id"].to_string()),
        method: Method::PATCH,
        call: |id| format!("/api/v1/memos/{id}"),
        body: Some(r#"{"visibility":"PRIVATE"}"#),
        wanted: |_, note| note["uid"].clone(),
        document: (
            |size| format!("{{list:memos(creator:1,limit:{size}){{id}}}}"),
            |id| format!("updateMemo(id:{id},changeInput:{{visibility:\"PRIVATE\"}}){{uid}}"),
        ),
    },
    Workflow {
        name: "gitea.r",
        list: |size| format!("/api/v1/repos/o/r/branches?limit={size}"),
        key: |row| row["name"].as_str().map(str::to_owned),
        method: Method::GET,
        call: |name| format!("/api/v1/repos/o/r/commits?sha={name}"),
        body: None,
        wanted: |_, commits| commits[1]["sha"].clone(),
        document: (
            |size| format!("{{list:branches(limit:{size}){{name}}}}"),
            |name| format!("commits(sha:\"{name}\"){{sha}}"),
        ),
    },
    Workflow {
        name: "gitea.w",
        list: |size| format!("/api/v1/admin/users?limit={}", size + OTHERS),
        key: |row| row["login"].as_str().filter(|login| login.starts_with("bot")).map(str::to_owned),
        method: Method::DELETE,
        call: |login| format!("/api/v1/admin/users/{login}"),
        body: None,
        wanted: |login, _| login.into(),
        document: (
            |size| format!("{{list:accounts(limit:{}){{login}}}}", size + OTHERS),
            |login| format!("deleteAccount(login:\"{login}\"){{deleted}}"),
        ),
    },
];

/// A way to do them; programs by what ORFA keeps of them, and their language.
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

/// What came of a run.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) answer: Value,
    pub(super) requests: usize,
    pub(super) gzip_saves: u64,
}

/// The programs as they are sent, the first time and later: in the modes that keep them, by token.
pub(super) struct Programs(
    BTreeMap<(&'static str, &'static str, &'static str), (Vec<(HeaderName, HeaderValue)>, Bytes)>,
);

const ORFA_CACHE: HeaderName = HeaderName::from_static("orfa-cache");

impl Way {
    /// As the rows of Strapi have it: the programs make a call for each row.
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

    pub(super) fn is_in_table_5b(self) -> bool {
        !matches!(self, Self::OneByOne | Self::Program(_, "js"))
    }
}

impl Workflow {
    /// Whether it changes nothing.
    pub(super) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    fn keys(&self, list: &Value) -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(self.key).collect()
    }

    pub(super) async fn by_rest(&self, client: &Client, size: usize, at_once: bool) -> Result<Asked> {
        let (list, mut saved) = send(client, Method::GET, &(self.list)(size), None).await?;
        let keys = self.keys(&list);
        let call = async |key: &String| send(client, self.method.clone(), &(self.call)(key), self.body).await;
        let answers = if at_once {
            try_join_all(keys.iter().map(call)).await?
        } else {
            let mut answers = Vec::new();
            for key in &keys {
                answers.push(call(key).await?);
            }
            answers
        };
        saved += answers.iter().map(|(_, saved)| saved).sum::<u64>();
        let answer = keys.iter().zip(&answers).map(|(key, (answer, _))| (self.wanted)(key, answer)).collect();
        Ok(Asked { answer, requests: 1 + keys.len(), gzip_saves: saved })
    }

    pub(super) async fn by_graphql(&self, client: &Client, size: usize) -> Result<Asked> {
        let (list, call) = self.document;
        let (list, saved) = graphql(client, &list(size)).await?;
        let keys = self.keys(&list["list"]);
        let calls = keys.iter().enumerate().map(|(place, key)| format!("a{place}:{}", call(key)));
        let kind = if self.reads() { "" } else { "mutation" };
        let (data, more) = graphql(client, &format!("{kind}{{{}}}", calls.collect::<String>())).await?;
        let wanted = |(place, key): (usize, &String)| (self.wanted)(key, &data[format!("a{place}")]);
        let answer = keys.iter().enumerate().map(wanted).collect();
        Ok(Asked { answer, requests: 2, gzip_saves: saved + more })
    }
}

/// The data of a GraphQL answer.
async fn graphql(client: &Client, query: &str) -> Result<(Value, u64)> {
    let body = json!({ "query": query }).to_string();
    let (mut answer, saved) = send(client, Method::POST, "/graphql", Some(&body)).await?;
    ensure!(answer.get("errors").is_none(), "{query}: {answer:.300}");
    Ok((answer["data"].take(), saved))
}

/// A JSON answer, and what gzip would save of it.
async fn send(client: &Client, method: Method, path: &str, body: Option<&str>) -> Result<(Value, u64)> {
    let mut request = Request::builder().method(method).uri(path);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
    }
    let body = Full::new(Bytes::from(body.unwrap_or_default().to_owned()));
    read(client, request.body(body)?).await.with_context(|| path.to_owned())
}

async fn read(client: &Client, request: Request<Full<Bytes>>) -> Result<(Value, u64)> {
    let answer = client.send(request).await?;
    ensure!(answer.status.is_success(), "{} {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok((serde_json::from_slice(&answer.body)?, gzip_saves(&answer.body)?))
}

impl Programs {
    /// Builds them, and sends each in the modes that keep it.
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
                let mut sent = (vec![(CONTENT_TYPE, HeaderValue::from_static(kind))], Bytes::from(text));
                if mode != "base" {
                    let mut first = request(&sent, 4)?;
                    first.headers_mut().insert(ORFA_CACHE, HeaderValue::from_static(mode));
                    let answer = orfa.send(first).await?;
                    let token = token(&answer.headers, mode).with_context(|| name.clone())?;
                    sent.0.push((ORFA_CACHE, HeaderValue::try_from(token)?));
                    sent.1 = Bytes::new();
                }
                programs.insert((workflow, mode, language), sent);
            }
        }
        Ok(Self(programs))
    }

    pub(super) async fn run(
        &self,
        client: &Client,
        which: (&'static str, &'static str, &'static str),
        size: usize,
    ) -> Result<Asked> {
        let sent = self.0.get(&which).context("there is no such program")?;
        let (answer, gzip_saves) = read(client, request(sent, size)?).await?;
        Ok(Asked { answer, requests: 1, gzip_saves })
    }
}

fn request(
    (headers, program): &(Vec<(HeaderName, HeaderValue)>, Bytes),
    size: usize,
) -> Result<Request<Full<Bytes>>> {
    let input = json!({ "n": size }).to_string();
    let mut request = Request::post("/query");
    if !program.is_empty() {
        request = request.header("orfa-input", input.len());
    }
    let mut request = request.body(Full::new(Bytes::from([input.as_bytes(), program].concat())))?;
    request.headers_mut().extend(headers.iter().cloned());
    Ok(request)
}
