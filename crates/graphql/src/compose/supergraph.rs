//! Reading of a supergraph that was composed elsewhere: its services, and whether the planner supports it.

use std::collections::HashSet;
use std::sync::Arc;

use diagnostics::{Diagnostic, Diagnostics};
use graphql_tools::parser::schema::{Definition, Directive, Document, TypeDefinition, Value};

use super::directive_names::{directive_argument, string_value};
use super::error::{CompositionErrorKind, ReportError};
use super::{Supergraph, join_directives, sdl_text as source};

/// The versions of the join specification that the planner supports.
const JOIN_VERSIONS: &[&str] = &["v0.2", "v0.3", "v0.4", "v0.5"];
/// The supported features among those that a supergraph may require for security. The specification demands
/// that a supergraph with other such features is rejected.
const SECURITY_FEATURES: &[&str] = &["inaccessible"];

/// Reads a supergraph.
pub fn read_supergraph(sdl: &str) -> Result<Supergraph, Vec<Diagnostic>> {
    let mut errors = Diagnostics::default();
    let parsed = if source::is_too_deep(sdl) {
        Err("its brackets are nested too deeply".to_owned())
    } else {
        graphql_tools::parser::parse_schema::<&str>(sdl).map_err(|error| error.to_string())
    };
    let document = match parsed {
        Ok(document) => document,
        Err(error) => {
            let error = error.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ");
            let message = format!("The supergraph is not valid GraphQL: {error}");
            errors.report(
                CompositionErrorKind::InvalidGraphql,
                &[],
                "",
                message,
                "use the unmodified output of a composition",
            );
            return Err(errors.into_vec());
        }
    };
    let (services, graphs) = read_services(&document);
    let features = linked_features(&document);
    if services.is_empty() || !features.iter().any(|feature| feature.name == "join") {
        let message = "The schema is not a supergraph: it does not link to a join specification, or has no services in `join__Graph`.";
        let hint = "compose a supergraph of the services' schemas, or list the services in the route so that the gateway composes them";
        errors.report(CompositionErrorKind::InvalidGraphql, &[], "", message, hint);
    }
    for feature in features {
        let LinkedSpecification { name, version, is_security } = feature;
        if name == "join" && !JOIN_VERSIONS.contains(&version) {
            let message = format!("The supergraph uses join {version}, which the gateway doesn't support.");
            let hint = format!("compose it for one of these versions: {}", JOIN_VERSIONS.join(", "));
            errors.report(CompositionErrorKind::UnknownLinkVersion, &[], "", message, hint);
        }
        if is_security && !SECURITY_FEATURES.contains(&name) {
            let message = format!(
                "The supergraph requires \"{name}\" for its security, which the gateway would not enforce."
            );
            let hint = "protect the route or the services instead, and compose the supergraph without it";
            errors.report(CompositionErrorKind::UnsupportedLinkedFeature, &[], "", message, hint);
        }
    }
    if errors.is_empty() {
        join_directives::check_join_directives(&document, &graphs, &mut errors);
    }
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    Ok(Supergraph { sdl: sdl.to_owned(), services })
}

/// A specification that the schema links to.
struct LinkedSpecification<'d> {
    name: &'d str,
    version: &'d str,
    is_security: bool,
}

fn linked_features<'d, 'a>(document: &'d Document<'a, &'a str>) -> Vec<LinkedSpecification<'d>> {
    let schemas = document.definitions.iter().filter_map(|definition| match definition {
        Definition::SchemaDefinition(schema) => Some(&schema.directives),
        _ => None,
    });
    let links = schemas.flatten().filter(|directive| matches!(directive.name, "link" | "core"));
    links.filter_map(parse_feature).collect()
}

fn parse_feature<'d, 'a>(link: &'d Directive<'a, &'a str>) -> Option<LinkedSpecification<'d>> {
    let url = string_value(directive_argument(link, "url"))
        .or_else(|| string_value(directive_argument(link, "feature")))?;
    let (rest, version) = url.rsplit_once('/')?;
    let name = rest.rsplit('/').next()?;
    let is_security =
        matches!(directive_argument(link, "for"), Some(Value::Enum(purpose)) if *purpose == "SECURITY");
    Some(LinkedSpecification { name, version, is_security })
}

/// The services' names, and the enum values that represent them in the supergraph.
fn read_services<'a>(document: &Document<'a, &'a str>) -> (Vec<Arc<str>>, HashSet<&'a str>) {
    let graphs = document.definitions.iter().find_map(|definition| match definition {
        Definition::TypeDefinition(TypeDefinition::Enum(of)) if of.name == "join__Graph" => Some(&of.values),
        _ => None,
    });
    let named = graphs.into_iter().flatten().filter_map(|value| {
        let directive = value.directives.iter().find(|directive| directive.name == "join__graph")?;
        Some((Arc::from(string_value(directive_argument(directive, "name"))?), value.name))
    });
    named.unzip()
}
