//! REST services that are a table of JSON texts by path, and what was asked of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use json::Document;
use serde_json::Value;

use crate::execute::Source;
use crate::execute::source::Asked;
use crate::plan::Planner;
use crate::plan::data::{Call, Step};
use crate::schema::{Says, Source as Described, subgraphs};
use crate::{
    Ask, Fetched, Found, GraphqlLimits, How, Joined, Links, Part, Place, SourceError, Subgraph, compose,
};

/// Services, and what they answer.
pub(super) struct Rig {
    pub(super) planner: Planner,
    answers: BTreeMap<String, String>,
    asked: Mutex<Vec<String>>,
}

impl Rig {
    /// Services by their OpenAPI documents, with links, and what they answer by `service/path`.
    pub(super) fn rest(services: &[(&str, &str)], links: &str, answers: &[(&str, &str)]) -> Self {
        let documents: Vec<(Arc<str>, openapi::Document)> = services
            .iter()
            .map(|(name, text)| ((*name).into(), openapi::Document::read(text).expect("an OpenAPI document")))
            .collect();
        let described: Vec<Described<'_>> = documents
            .iter()
            .map(|(name, document)| Described { name: Arc::clone(name), says: Says::OpenApi(document) })
            .collect();
        let links: Links = serde_json::from_str(links).expect("links");
        let (subgraphs, _) = subgraphs(&described, &links).expect("subgraphs");
        Self::of(subgraphs, answers)
    }

    pub(super) fn of(subgraphs: Vec<Subgraph>, answers: &[(&str, &str)]) -> Self {
        let parts: Vec<Part<'_>> =
            subgraphs.iter().map(|subgraph| Part { name: &subgraph.name, sdl: &subgraph.sdl }).collect();
        let supergraph = compose(&parts).expect("a supergraph");
        let planner = Planner::new(&supergraph.sdl, subgraphs, &GraphqlLimits::default()).expect("a planner");
        let answers = answers.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { planner, answers, asked: Mutex::default() }
    }

    pub(super) async fn ask(&self, document: &str) -> String {
        self.ask_with(document, "{}").await
    }

    /// The whole answer to a document.
    pub(super) async fn ask_with(&self, document: &str, variables: &str) -> String {
        let plan = match self.planner.plan(document, None) {
            Ok(plan) => plan,
            Err(errors) => {
                return format!(
                    "{:?}",
                    errors.iter().map(|error| error.json().to_string()).collect::<Vec<_>>()
                );
            }
        };
        let variables = Bytes::copy_from_slice(variables.as_bytes());
        let answer = super::super::run(&plan, self.planner.schema(), variables, self).await;
        let mut text = Vec::new();
        answer.tree.write(&mut text);
        String::from_utf8(text).expect("UTF-8")
    }

    /// What was asked since the last time, in the order of the letters.
    pub(super) fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }

    fn answer(&self, line: String) -> Result<Value, SourceError> {
        self.asked.lock().unwrap().push(line.clone());
        match self.answers.get(&line) {
            Some(text) => Ok(serde_json::from_str(text).expect("JSON")),
            None => Err(SourceError {
                message: format!("nobody answers {line}"),
                code: "upstream-status",
                service: line.split('/').next().unwrap_or_default().into(),
                status: Some(500),
                told: Vec::new(),
            }),
        }
    }

    fn by_key(&self, step: &Step, how: &How, asked: &Asked) -> Fetched {
        let nodes = asked.keys.nodes();
        let rows: Vec<HashMap<&str, String>> = nodes
            .chunks(step.needs().len().max(1))
            .map(|row| {
                let text = |node: &json::Node<'_>| String::from_utf8_lossy(node.text()).into_owned();
                step.needs().iter().map(|need| &**need).zip(row.iter().map(text)).collect()
            })
            .collect();
        let mut fetched = Fetched::default();
        match how {
            How::Each(ask) => {
                for row in &rows {
                    let found = match self.answer(line(step, ask, row)) {
                        Ok(value) if value.is_null() => Found::Nothing,
                        Ok(value) => Found::One(add(&mut fetched, &value)),
                        Err(error) => failed(&mut fetched, error),
                    };
                    fetched.found.push(found);
                }
            }
            How::List(ask, joined) | How::Ids(ask, joined) => {
                let all: Vec<String> = rows.iter().map(|row| row[&*joined.key].clone()).collect();
                let keys = HashMap::from([(&*joined.key, all.join(","))]);
                match self.answer(line(step, ask, &keys)) {
                    Ok(list) => join(&mut fetched, &list, joined, &all),
                    Err(error) => {
                        let found = failed(&mut fetched, error);
                        fetched.found = vec![found; rows.len()];
                    }
                }
            }
        }
        fetched
    }
}

/// `service/path?parameters`
fn line(step: &Step, ask: &Ask, keys: &HashMap<&str, String>) -> String {
    let Ask::Rest(operation) = ask else { return format!("{}/?", step.service) };
    let mut path = operation.path.to_string();
    let mut query = Vec::new();
    for parameter in &operation.parameters {
        let crate::subgraph::From::Key(key) = &parameter.from else { continue };
        let value = keys.get(&**key).cloned().unwrap_or_default();
        let place = format!("{{{}}}", parameter.name);
        match path.contains(&place) {
            true => path = path.replace(&place, &value),
            false => query.push(format!("{}={value}", parameter.name)),
        }
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{}{path}{query}", step.service)
}

fn add(fetched: &mut Fetched, value: &Value) -> Place {
    fetched.documents.push(Arc::new(Document::new(value.to_string().into()).expect("JSON")));
    Place { document: fetched.documents.len() as u32 - 1, start: 0 }
}

fn failed(fetched: &mut Fetched, error: SourceError) -> Found {
    fetched.errors.push(error);
    Found::Failed(fetched.errors.len() as u32 - 1)
}

fn join(fetched: &mut Fetched, list: &Value, joined: &Joined, keys: &[String]) {
    let place = add(fetched, list);
    let document = Arc::clone(&fetched.documents[place.document as usize]);
    for key in keys {
        let items = document.root().items().filter(|item| {
            item.member(joined.item.as_bytes()).is_some_and(|found| found.text() == key.as_bytes())
        });
        let places = items.map(|item| Place { document: place.document, start: item.start() as u32 });
        let places: Vec<Place> = places.collect();
        fetched.found.push(match (joined.is_many, places.first()) {
            (true, _) => Found::Many(places),
            (false, Some(place)) => Found::One(*place),
            (false, None) => Found::Nothing,
        });
    }
}

impl Source for Rig {
    fn fetch<'a>(&'a self, step: &'a Step, asked: Asked) -> BoxFuture<'a, Fetched> {
        let fetched = match &step.call {
            Call::Operation(operation, _) => {
                let mut path = operation.path.to_string();
                let arguments = asked.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"));
                let arguments: Value = serde_json::from_slice(&arguments).expect("arguments");
                let mut rest = Vec::new();
                for (name, value) in arguments.as_object().expect("an object") {
                    let place = format!("{{{name}}}");
                    match path.contains(&place) {
                        true => path = path.replace(&place, &value.to_string()),
                        false => rest.push(format!("{name}={value}")),
                    }
                }
                let method =
                    if operation.method == http::Method::GET { "" } else { operation.method.as_str() };
                let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
                let mut fetched = Fetched::default();
                let found = match self.answer(format!("{method}{}{path}{query}", step.service)) {
                    Ok(value) => Found::One(add(&mut fetched, &value)),
                    Err(error) => failed(&mut fetched, error),
                };
                fetched.found.push(found);
                fetched
            }
            Call::Keys(how, _) => self.by_key(step, how, &asked),
            Call::Document(_) | Call::Entities(..) | Call::Linked { .. } => Fetched::default(),
        };
        Box::pin(async move { fetched })
    }
}
