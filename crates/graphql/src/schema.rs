//! Services as subgraphs: their own documents, with the operator's changes.
//!
//! The steps for each service, a file each: `rest.rs` or `remote.rs` (converts its document to a
//! [`model::ServiceModel`]) → `name_conflicts.rs` (resolves conflicts of names between services) →
//! `change.rs` (applies the operator's names, descriptions and hidden elements) → `link.rs` (turns links into
//! fields) → `subgraph_writer.rs` (writes the schema's text and its bindings). `diagnostic.rs`
//! has the kinds of the errors and warnings that they report.

mod change;
mod declaration;
pub(crate) mod diagnostic;
mod graphql_names;
mod link;
mod model;
mod name_conflicts;
mod remote;
mod rest;
mod subgraph_writer;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::subgraph::Subgraph;
use diagnostic::{SchemaErrorKind, document_warning};
use diagnostics::{Diagnostic, Diagnostics, SourceDocument};

pub use declaration::{FieldChange, LinkDeclaration, SchemaDeclarations, TypeChange};

/// A service of a route.
#[derive(Clone, Debug)]
pub(crate) struct SchemaSource<'a> {
    /// Its name in the config.
    pub(crate) name: Arc<str>,
    /// Its schema description.
    pub(crate) description: SchemaDescription<'a>,
}

/// The schema description of a service.
#[derive(Clone, Debug)]
pub(crate) enum SchemaDescription<'a> {
    /// The OpenAPI document of a REST service.
    OpenApi(&'a openapi::OpenApiDocument),
    /// The schema of a GraphQL service.
    Graphql {
        /// The path of its GraphQL endpoint, below its URL.
        path: Arc<str>,
        /// Its SDL, or its response to introspection.
        text: &'a str,
        /// Whether it is an Apollo Federation subgraph.
        is_federated: bool,
    },
}

/// Builds the subgraphs of a route's services, with warnings about parts of their documents that cannot be
/// mapped.
///
/// # Errors
/// Every mistake in the file of links, and every schema that cannot be read.
pub(crate) fn build_subgraphs(
    sources: &[SchemaSource<'_>],
    links: &SchemaDeclarations,
) -> Result<(Vec<Subgraph>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (mut models, mut findings, mut mistakes) = (Vec::new(), Vec::new(), Diagnostics::default());
    for SchemaSource { name, description: says } in sources {
        let read = match says {
            SchemaDescription::OpenApi(document) => Ok(rest::build_model(name, document)),
            SchemaDescription::Graphql { path, text, is_federated } => {
                remote::build_model(name, path, text, *is_federated)
            }
        };
        match read {
            Ok((model, found)) => {
                models.push(model);
                findings.extend(found);
            }
            Err(why) => {
                let at = SourceDocument::Service(Arc::clone(name)).at("/graphql/schema");
                let hint = "give its schema as SDL, or as the JSON that introspection answers";
                mistakes.add(SchemaErrorKind::Schema, at, format!("the schema can't be read: {why}"), hint);
            }
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes.into_vec());
    }
    name_conflicts::resolve_name_conflicts(&mut models, &mut findings);
    let changes = change::apply_changes(&mut models, links, &mut mistakes);
    link::add_declared_links(&mut models, links, &changes, &mut mistakes);
    link::add_document_links(&mut models, &changes, &mut findings);
    if !mistakes.is_empty() {
        return Err(mistakes.into_vec());
    }
    link::declare_keys(&mut models);
    let mut subgraphs = Vec::new();
    for (number, model) in models.iter().enumerate() {
        match subgraph_writer::write_subgraph(&models, number) {
            Some(subgraph) => subgraphs.push(subgraph),
            None => findings.push(document_warning(
                &model.service,
                "",
                "it has no operations for the schema: it is left out",
                "check its document, or remove it from the route's `services`",
            )),
        }
    }
    Ok((subgraphs, findings))
}
