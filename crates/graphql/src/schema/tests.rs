//! Tests of the schemas built from documents and links, and of the reported mistakes.

mod links;
mod marketplace;
mod rest;

use std::sync::Arc;

use openapi::OpenApiDocument;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::Value;

use super::{Links, Says, Source, subgraphs};
use crate::mistake::{Finding, Mistake};
use crate::subgraph::{Bindings, Kind, Subgraph};

/// A service: its name, and an OpenAPI document or a GraphQL schema.
type Service<'a> = (&'a str, &'a str);

fn made(services: &[Service<'_>], links: &str) -> Result<(Vec<Subgraph>, Vec<Finding>), Vec<Mistake>> {
    let documents: Vec<Option<OpenApiDocument>> =
        services.iter().map(|(_, text)| OpenApiDocument::read(text).ok().map(|it| it.below(""))).collect();
    let sources: Vec<Source<'_>> = services
        .iter()
        .zip(&documents)
        .map(|((name, text), document)| Source {
            name: Arc::from(*name),
            says: match document {
                Some(document) => Says::OpenApi(document),
                None => Says::Graphql { path: "/graphql".into(), text, is_federated: text.contains("@link") },
            },
        })
        .collect();
    subgraphs(&sources, &read(links))
}

/// Reads links from YAML.
fn read(links: &str) -> Links {
    if links.is_empty() {
        return Links::default();
    }
    let documents = Yaml::load_from_str(links).expect("YAML");
    serde_json::from_value(json(&documents[0])).expect("links")
}

fn json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Mapping(members) => {
            let members = members.iter();
            members.map(|(name, value)| (name.as_str().expect("a key").to_owned(), json(value))).collect()
        }
        Yaml::Sequence(items) => items.iter().map(json).collect(),
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        other => other.as_str().expect("a text").into(),
    }
}

/// The concatenated schemas.
fn sdl(subgraphs: &[Subgraph]) -> String {
    let texts = subgraphs.iter().map(|it| format!("# {}\n{}", it.name, it.sdl));
    texts.collect::<Vec<_>>().join("\n")
}

fn bindings<'a>(subgraphs: &'a [Subgraph], service: &str) -> &'a Bindings {
    let found = subgraphs.iter().find(|it| &*it.name == service).expect("the service");
    match &found.kind {
        Kind::Rest(bindings) | Kind::Remote { bindings, .. } => bindings,
    }
}

fn told(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
