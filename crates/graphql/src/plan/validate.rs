//! Validation according to the specification: the library's rules, except for field selection merging
//! (`limits/overlap.rs`), and additional rules for errors that the library misses (`validate/`).
//!
//! The library's output is bounded: it visits the fragments once for each operation, whose number is limited,
//! and its messages repeat names and literals, whose length is limited. A client gets the first errors, each
//! shortened if necessary. Each message has a variant without the schema's own names, for callers that may
//! not see the schema.

mod literals;
mod typename;

use std::sync::Arc;

use graphql_tools::static_graphql::query::Document;
use graphql_tools::static_graphql::schema::Document as SchemaDocument;
use graphql_tools::validation::rules::{ValidationRule, default_rules_validation_plan};
use graphql_tools::validation::utils::ValidationError;
use graphql_tools::validation::validate::{ValidationPlan, validate};

use super::catch_panic;
use super::limits::fragments::FragmentIndex;
use super::limits::overlap;
use super::types::ClientTypes;
use crate::error::{GraphqlError, GraphqlErrorKind};
use literals::LiteralRule;
use typename::TypenameRule;

/// The maximum number of errors that a client gets.
const MAX_ERRORS: usize = 20;
/// The maximum length of a message in characters, and the maximum number of positions of an error.
const MAX_MESSAGE_CHARS: usize = 400;
const MAX_LOCATIONS: usize = 10;

/// The validation rules.
pub(super) struct ValidationRules(ValidationPlan);

impl ValidationRules {
    pub(super) fn new(types: &Arc<ClientTypes>) -> Self {
        let mut rules = default_rules_validation_plan();
        rules.rules.retain(|rule| rule.error_code() != "OverlappingFieldsCanBeMerged");
        let own: [Box<dyn ValidationRule>; 2] =
            [Box::new(LiteralRule(Arc::clone(types))), Box::new(TypenameRule)];
        rules.rules.extend(own.map(Arc::new));
        Self(rules)
    }

    /// Validates a document whose size has been checked; `selections` is the number in its largest operation.
    pub(super) fn validate_document(
        &self,
        schema: &SchemaDocument,
        types: &ClientTypes,
        document: &Document,
        fragments: &FragmentIndex<'_>,
        selections: u64,
    ) -> Result<(), Vec<GraphqlError>> {
        let errors = catch_panic(|| validate(schema, document, &self.0));
        let errors = errors.ok_or_else(|| {
            vec![GraphqlError::new(GraphqlErrorKind::Invalid, "the document can't be validated")]
        })?;
        if errors.is_empty() {
            return overlap::check_overlap(document, fragments, types, selections);
        }
        let left = errors.len().saturating_sub(MAX_ERRORS);
        let mut graphql_errors: Vec<GraphqlError> =
            errors.into_iter().take(MAX_ERRORS).map(convert_error).collect();
        if left > 0 {
            graphql_errors.push(GraphqlError::new(
                GraphqlErrorKind::Invalid,
                format!("{left} further errors are left out"),
            ));
        }
        Err(graphql_errors)
    }
}

fn convert_error(error: ValidationError) -> GraphqlError {
    let places = error.locations.iter().map(|place| (place.line as u32, place.column as u32));
    let locations = places.take(MAX_LOCATIONS).collect();
    let plain = plain_message(error.error_code, &error.message);
    let graphql_error = GraphqlError::new(GraphqlErrorKind::Invalid, shorten_text(&error.message));
    let known = match plain {
        Some(plain) => graphql_error.with_plain_message(shorten_text(&plain)),
        None => graphql_error,
    };
    GraphqlError { locations, ..known }
}

/// A text, truncated if it is too long.
pub(crate) fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A rule's message without names from the schema; `None` if the message contains only names from the
/// document.
fn plain_message(rule: &str, message: &str) -> Option<String> {
    // The library's messages mention names from the document first.
    let name = message.split('"').nth(1).unwrap_or_default();
    Some(match rule {
        "FieldsOnCorrectType" => format!("Cannot query field \"{name}\"."),
        "LeafFieldSelections" if message.contains("must not have") => {
            format!("Field \"{name}\" must not have a selection.")
        }
        "LeafFieldSelections" => format!("Field \"{name}\" must have a selection of subfields."),
        "KnownArgumentNames" => format!("Unknown argument \"{name}\"."),
        "ProvidedRequiredArguments" => format!("\"{name}\" lacks a required argument."),
        "VariablesInAllowedPosition" => {
            format!("Variable \"{name}\" is used in a position that expects another type.")
        }
        "ValuesOfCorrectType" => "A literal is not of the type that is expected in its position.".to_owned(),
        "PossibleFragmentSpreads" => {
            "A fragment is spread where objects can never be of its type.".to_owned()
        }
        "KnownTypeNames"
        | "FragmentsOnCompositeTypes"
        | "VariablesAreInputTypes"
        | "UniqueOperationNames"
        | "LoneAnonymousOperation"
        | "SingleFieldSubscriptions"
        | "UniqueFragmentNames"
        | "KnownFragmentNames"
        | "NoUnusedFragments"
        | "NoFragmentsCycle"
        | "NoUnusedVariables"
        | "NoUndefinedVariables"
        | "UniqueArgumentNames"
        | "UniqueVariableNames"
        | "KnownDirectives"
        | "UniqueInputFieldNames"
        | "UniqueDirectivesPerLocation" => return None,
        _ => "The document violates a validation rule.".to_owned(),
    })
}
