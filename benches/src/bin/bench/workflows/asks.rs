//! The workflows, which all are a list and then a call for some of its rows, and how each way does them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use benches::client::Client;
use benches::programs::{build, program, token};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use super::standins::OTHERS;
use crate::Tools;

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
    document: Document,
}

/// The list and a call in GraphQL.
type Document = (fn(usize) -> String, fn(&str) -> String);

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
    /// Of the answers, for what gzip would save to be counted when nobody takes the time.
    pub(super) bodies: Vec<Bytes>,
}

/// The programs as they are sent, the first time and later: in the modes that keep them, by token.
pub(super) struct Programs(BTreeMap<Which, (Vec<(HeaderName, HeaderValue)>, Bytes)>);

/// A workflow, a mode and a language.
type Which = (&'static str, &'static str, &'static str);

/// A request.
pub(super) struct Sent {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

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
        let (list, body) = ask(client, &self.list(size)).await?;
        let (keys, mut bodies) = (self.keys(&list), vec![body]);
        let call = async |key: &String| ask(client, &self.call(key)).await;
        let answers = if at_once {
            try_join_all(keys.iter().map(call)).await?
        } else {
            let mut answers = Vec::new();
            for key in &keys {
                answers.push(call(key).await?);
            }
            answers
        };
        let answer = keys.iter().zip(&answers).map(|(key, (answer, _))| (self.wanted)(key, answer)).collect();
        bodies.extend(answers.into_iter().map(|(_, body)| body));
        Ok(Asked { answer, requests: bodies.len(), bodies })
    }

    pub(super) async fn by_graphql(&self, client: &Client, size: usize) -> Result<Asked> {
        let (mut list, first) = ask(client, &graphql(&(self.document.0)(size))).await?;
        let keys = self.keys(&list["data"]["list"].take());
        let (data, second) = ask(client, &self.batch(&keys)).await?;
        ensure!(data.get("errors").is_none(), "GraphQL failed: {data:.300}");
        let wanted = |(place, key): (usize, &String)| (self.wanted)(key, &data["data"][format!("a{place}")]);
        let answer = keys.iter().enumerate().map(wanted).collect();
        Ok(Asked { answer, requests: 2, bodies: vec![first, second] })
    }

    /// All that a way sends for one run, when it knows already what the list has.
    pub(super) async fn all(
        &self,
        service: &Client,
        way: Way,
        size: usize,
        programs: &Programs,
    ) -> Result<Vec<Sent>> {
        let (list, _) = ask(service, &self.list(size)).await?;
        let keys = self.keys(&list);
        Ok(match way {
            Way::OneByOne | Way::AtOnce => {
                std::iter::once(self.list(size)).chain(keys.iter().map(|key| self.call(key))).collect()
            }
            Way::Graphql => vec![graphql(&(self.document.0)(size)), self.batch(&keys)],
            Way::Program(mode, language) => vec![programs.sent((self.name, mode, language), size)?],
        })
    }

    fn list(&self, size: usize) -> Sent {
        Sent { method: Method::GET, path: (self.list)(size), headers: Vec::new(), body: Bytes::new() }
    }

    fn call(&self, key: &str) -> Sent {
        let body = self.body.unwrap_or_default().into();
        let headers = if self.body.is_some() { json_headers() } else { Vec::new() };
        Sent { method: self.method.clone(), path: (self.call)(key), headers, body }
    }

    /// All calls as one document.
    fn batch(&self, keys: &[String]) -> Sent {
        let call = |(place, key): (usize, &String)| format!("a{place}:{}", (self.document.1)(key));
        let calls: String = keys.iter().enumerate().map(call).collect();
        graphql(&format!("{}{{{calls}}}", if self.reads() { "" } else { "mutation" }))
    }
}

fn graphql(query: &str) -> Sent {
    let body = json!({ "query": query }).to_string().into();
    Sent { method: Method::POST, path: "/graphql".into(), headers: json_headers(), body }
}

fn json_headers() -> Vec<(HeaderName, HeaderValue)> {
    let json = HeaderValue::from_static("application/json");
    vec![(CONTENT_TYPE, json.clone()), (ACCEPT, json)]
}

/// The JSON of an answer, and its body.
async fn ask(client: &Client, sent: &Sent) -> Result<(Value, Bytes)> {
    let answer = client.send(sent.request()?).await?;
    let text = || String::from_utf8_lossy(&answer.body);
    ensure!(answer.status.is_success(), "{}: {} {}", sent.path, answer.status, text());
    Ok((serde_json::from_slice(&answer.body)?, answer.body))
}

impl Sent {
    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(&self.method).uri(&self.path);
        let mut request = request.body(Full::new(self.body.clone()))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }
}

/// What wrk sends, one after the other, in Lua.
pub(super) fn script(sent: &[Sent]) -> Result<String> {
    let mut lines = "local sent, next = {}, 0\n".to_owned();
    for Sent { method, path, headers, body } in sent {
        let body: String = body.iter().map(|byte| format!("\\{byte:03}")).collect();
        let mut table = String::new();
        for (name, value) in headers {
            table += &format!("['{name}']='{}',", value.to_str()?);
        }
        lines += &format!("sent[#sent + 1] = {{ '{method}', '{path}', {{ {table} }}, '{body}' }}\n");
    }
    Ok(lines
        + "request = function()\n  next = next % #sent + 1\n  local one = sent[next]\n  \
           return wrk.format(one[1], one[2], one[3], one[4])\nend\n")
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
                let mut kept = (vec![(CONTENT_TYPE, HeaderValue::from_static(kind))], Bytes::from(text));
                if mode != "base" {
                    let mut first = sent(&kept, 4).request()?;
                    first.headers_mut().insert(ORFA_CACHE, HeaderValue::from_static(mode));
                    let answer = orfa.send(first).await?;
                    let token = token(&answer.headers, mode).with_context(|| name.clone())?;
                    kept.0.push((ORFA_CACHE, HeaderValue::try_from(token)?));
                    kept.1 = Bytes::new();
                }
                programs.insert((workflow, mode, language), kept);
            }
        }
        Ok(Self(programs))
    }

    pub(super) async fn run(&self, client: &Client, which: Which, size: usize) -> Result<Asked> {
        let (answer, body) = ask(client, &self.sent(which, size)?).await?;
        Ok(Asked { answer, requests: 1, bodies: vec![body] })
    }

    fn sent(&self, which: Which, size: usize) -> Result<Sent> {
        Ok(sent(self.0.get(&which).context("there is no such program")?, size))
    }
}

fn sent((headers, program): &(Vec<(HeaderName, HeaderValue)>, Bytes), size: usize) -> Sent {
    let (input, mut headers) = (json!({ "n": size }).to_string(), headers.clone());
    if !program.is_empty() {
        headers.push((HeaderName::from_static("orfa-input"), input.len().into()));
    }
    let body = [input.as_bytes(), program].concat().into();
    Sent { method: Method::POST, path: "/query".into(), headers, body }
}
