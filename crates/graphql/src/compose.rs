//! Composition of the services' schemas: from subgraphs according to the Apollo Federation specification (v2
//! and v1) to a supergraph according to the join specification, which the planner reads.
//!
//! For each schema: `sdl_text.rs` (syntax that the parser can't handle) → `subgraph_reader.rs` with
//! `directive_names.rs` (the meaning of directives) builds the `model.rs` → `check.rs` with `fieldsets.rs`
//! (errors within one schema). For all of them: `merge.rs` with `fields.rs`, `inputs.rs` and `relations.rs`
//! builds `merged_schema.rs` → `merged_checks.rs` and `inaccessible.rs` (errors across schemas) →
//! `satisfiability.rs` (whether every field can be reached) → `print.rs`. `supergraph.rs` with
//! `join_directives.rs` reads a supergraph that was composed elsewhere.

mod check;
mod directive_names;
mod error;
mod fields;
mod fieldsets;
mod inaccessible;
mod inputs;
mod join_directives;
mod merge;
mod merged_checks;
mod merged_schema;
mod model;
mod print;
mod relations;
mod satisfiability;
pub(crate) mod sdl_text;
mod selection;
mod subgraph_reader;
mod supergraph;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

pub use supergraph::read_supergraph;

use diagnostics::{Diagnostic, Diagnostics};
use error::{CompositionErrorKind, ReportError};
use merge::SchemaMerger;
use model::SubgraphSchema;
use relations::TypeRelations;

/// A service's schema.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSchema<'p> {
    /// The service's name.
    pub name: &'p Arc<str>,
    /// The subgraph's schema.
    pub sdl: &'p str,
}

/// The composed schema.
#[derive(Clone, Debug)]
pub struct Supergraph {
    /// The schema, according to the join specification.
    pub sdl: String,
    /// The names of its services.
    pub services: Vec<Arc<str>>,
}

/// Composes the schemas, or returns all errors that prevent it.
pub fn compose(parts: &[ServiceSchema<'_>]) -> Result<Supergraph, Vec<Diagnostic>> {
    let mut errors = Diagnostics::default();
    let graphs = graph_names(parts, &mut errors);
    let texts: Vec<Option<Cow<'_, str>>> =
        parts.iter().map(|part| prepare_schema(part, &mut errors)).collect();
    let read = parts.iter().zip(graphs).zip(&texts).filter_map(|((part, graph), text)| {
        let text: &str = text.as_ref()?;
        subgraph_reader::read_schema(part.name, graph, text, &mut errors)
    });
    let mut schemas: Vec<SubgraphSchema<'_>> = read.collect();
    if schemas.len() < parts.len() {
        return Err(errors.into_vec());
    }
    schemas.iter_mut().for_each(|schema| check::check_subgraph(schema, &mut errors));
    let relations = TypeRelations::from_schemas(&schemas);
    let mut merger = SchemaMerger { schemas: &schemas, relations, errors: &mut errors };
    let types = merger.merge_types();
    let relations = merger.relations;
    merged_checks::check_merged_types(&schemas, &relations, &types, &mut errors);
    inaccessible::check_inaccessible(&schemas, &types, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    satisfiability::check_satisfiability(&schemas, &types, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    let services = parts.iter().map(|part| part.name.clone()).collect();
    Ok(Supergraph { sdl: print::print_supergraph(&schemas, &types), services })
}

fn prepare_schema<'p>(part: &ServiceSchema<'p>, errors: &mut Diagnostics) -> Option<Cow<'p, str>> {
    let prepared = sdl_text::normalize_sdl(part.sdl);
    if prepared.is_err() {
        let message = format!("The brackets in the schema of \"{}\" are nested too deeply.", part.name);
        errors.report(
            CompositionErrorKind::InvalidGraphql,
            &[part.name],
            "",
            message,
            "reduce the nesting of lists and objects",
        );
    }
    prepared.ok()
}

/// The distinct enum values that represent the services in the supergraph.
fn graph_names(parts: &[ServiceSchema<'_>], errors: &mut Diagnostics) -> Vec<String> {
    let mut names: Vec<&str> = parts.iter().map(|part| &**part.name).collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        let message = format!("Two services are called \"{}\".", pair[0]);
        errors.report(CompositionErrorKind::InvalidSubgraphName, &[], "", message, "rename one of them");
    }
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut graph = |part: &ServiceSchema<'_>| {
        let letter = |byte: char| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { '_' };
        let mut graph: String = part.name.chars().map(letter).collect();
        if !graph.starts_with(|first: char| first.is_ascii_alphabetic()) {
            graph.insert_str(0, "G_");
        }
        loop {
            let count = taken.entry(graph.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                return graph;
            }
            graph = format!("{graph}_{count}");
        }
    };
    parts.iter().map(&mut graph).collect()
}
