//! Tests of the schemas built from documents and links, and of the reported mistakes.

mod links;
mod marketplace;
mod rest;

use std::sync::Arc;

use diagnostics::Diagnostic;
use openapi::OpenApiDocument;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::Value;

use super::{SchemaDeclarations, SchemaDescription, SchemaSource, build_subgraphs};
use crate::subgraph::{Subgraph, SubgraphBindings, SubgraphProtocol};

/// A service: its name, and an OpenAPI document or a GraphQL schema.
type TestServiceSchema<'a> = (&'a str, &'a str);

fn build_test_subgraphs(
    services: &[TestServiceSchema<'_>],
    links: &str,
) -> Result<(Vec<Subgraph>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let documents: Vec<Option<OpenApiDocument>> = services
        .iter()
        .map(|(_, text)| OpenApiDocument::parse(text).ok().map(|it| it.relative_to("")))
        .collect();
    let sources: Vec<SchemaSource<'_>> = services
        .iter()
        .zip(&documents)
        .map(|((name, text), document)| SchemaSource {
            name: Arc::from(*name),
            description: match document {
                Some(document) => SchemaDescription::OpenApi(document),
                None => SchemaDescription::Graphql {
                    path: "/graphql".into(),
                    text,
                    is_federated: text.contains("@link"),
                },
            },
        })
        .collect();
    build_subgraphs(&sources, &parse_links(links))
}

/// Reads links from YAML.
fn parse_links(links: &str) -> SchemaDeclarations {
    if links.is_empty() {
        return SchemaDeclarations::default();
    }
    let documents = Yaml::load_from_str(links).expect("YAML");
    serde_json::from_value(yaml_to_json(&documents[0])).expect("links")
}

fn yaml_to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Mapping(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (name.as_str().expect("a key").to_owned(), yaml_to_json(value)))
                .collect()
        }
        Yaml::Sequence(items) => items.iter().map(yaml_to_json).collect(),
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        other => other.as_str().expect("a text").into(),
    }
}

/// The concatenated schemas.
fn concatenated_sdl(subgraphs: &[Subgraph]) -> String {
    let texts = subgraphs.iter().map(|it| format!("# {}\n{}", it.name, it.sdl));
    texts.collect::<Vec<_>>().join("\n")
}

fn service_bindings<'a>(subgraphs: &'a [Subgraph], service: &str) -> &'a SubgraphBindings {
    let subgraph = subgraphs.iter().find(|it| &*it.name == service).expect("the service");
    match &subgraph.kind {
        SubgraphProtocol::Rest(bindings) | SubgraphProtocol::Remote { bindings, .. } => bindings,
    }
}

fn warning_texts(findings: &[Diagnostic]) -> Vec<String> {
    findings.iter().map(|it| format!("{it:#}")).collect()
}
