//! Services as subgraphs: what their own documents say, and what the operator adds.
//!
//! The way of a service, a file a step: `rest.rs` or `remote.rs` (its document becomes a [`model::Model`]) → `apart.rs` (names
//! that several services have) → `change.rs` (names, descriptions and what is hidden, as the operator has it) → `link.rs` (links
//! become fields) → `write.rs` (the schema as text, and its bindings).

mod apart;
mod change;
mod declaration;
mod link;
mod model;
mod remote;
mod rest;
mod word;
mod write;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::mistake::{At, Finding, Kind, Mistake, Mistakes};
use crate::subgraph::Subgraph;

pub use declaration::{FieldChange, LinkDeclaration, Links, TypeChange};

/// A service of a route.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a> {
    /// Its name in the config.
    pub(crate) name: Arc<str>,
    /// What it says of itself.
    pub(crate) says: Says<'a>,
}

/// What a service says of itself.
#[derive(Clone, Debug)]
pub(crate) enum Says<'a> {
    /// It is a REST service with an OpenAPI document.
    OpenApi(&'a openapi::Document),
    /// It is a GraphQL service.
    Graphql {
        /// Where it answers, below its URL.
        path: Arc<str>,
        /// Its SDL, or what it answered to introspection.
        text: &'a str,
        /// Whether it is a subgraph by itself.
        is_federated: bool,
    },
}

/// The subgraphs of a route's services, and what of their documents has no place in them.
///
/// # Errors
/// Every mistake in the file of links, and every schema that can't be read.
pub(crate) fn subgraphs(
    sources: &[Source<'_>],
    links: &Links,
) -> Result<(Vec<Subgraph>, Vec<Finding>), Vec<Mistake>> {
    let (mut models, mut findings, mut mistakes) = (Vec::new(), Vec::new(), Mistakes::default());
    for Source { name, says } in sources {
        let read = match says {
            Says::OpenApi(document) => Ok(rest::model(name, document)),
            Says::Graphql { path, text, is_federated } => remote::model(name, path, text, *is_federated),
        };
        match read {
            Ok((model, found)) => {
                models.push(model);
                findings.extend(found);
            }
            Err(why) => {
                let at = At::Service(Arc::clone(name), "/graphql/schema".to_owned());
                let hint = "give its schema as SDL, or as the JSON that introspection answers";
                mistakes.add(Kind::Schema, at, format!("the schema can't be read: {why}"), hint);
            }
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes.into_vec());
    }
    apart::set_apart(&mut models, &mut findings);
    let changes = change::apply(&mut models, links, &mut mistakes);
    link::declared(&mut models, links, &changes, &mut mistakes);
    link::wished(&mut models, &changes, &mut findings);
    if !mistakes.is_empty() {
        return Err(mistakes.into_vec());
    }
    link::declare_keys(&mut models);
    let mut subgraphs = Vec::new();
    for (number, model) in models.iter().enumerate() {
        match write::subgraph(&models, number) {
            Some(subgraph) => subgraphs.push(subgraph),
            None => findings.push(Finding {
                service: Arc::clone(&model.service),
                place: String::new(),
                message: "nothing of it can be asked: the schema is without it".to_owned(),
                hint: "look into its document, or take it out of the route's `services`".to_owned(),
            }),
        }
    }
    Ok((subgraphs, findings))
}
