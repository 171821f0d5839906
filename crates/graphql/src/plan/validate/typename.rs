//! Checks of fields whose names begin with two underscores. The library's rules ("Field Selections" and "Leaf
//! Field Selections", 5.3.1 and 5.3.3 of the specification) do not look them up in the schema.

use graphql_tools::ast::{OperationVisitor, OperationVisitorContext};
use graphql_tools::static_graphql::query::Field;
use graphql_tools::validation::rules::{ValidationRule, ValidationVisitor};
use graphql_tools::validation::utils::{ValidationError, ValidationErrorContext};

/// The library's name of the rule. Sharing it gives both the same messages for callers that may not see the
/// schema.
const RULE_CODE: &str = "LeafFieldSelections";
/// The library's name of the rule for unknown fields.
const UNKNOWN_FIELD_CODE: &str = "FieldsOnCorrectType";

/// Rejects selections below `__typename`, and introspection fields where they do not exist.
pub(super) struct TypenameRule;

impl ValidationRule for TypenameRule {
    fn error_code(&self) -> &'static str {
        RULE_CODE
    }

    fn visitor<'doc>(&self) -> ValidationVisitor<'doc> {
        Box::new(Self)
    }
}

impl<'doc> OperationVisitor<'doc, ValidationErrorContext> for TypenameRule {
    fn enter_field(
        &mut self,
        context: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        field: &Field,
    ) {
        if field.name == "__typename" && !field.selection_set.items.is_empty() {
            errors.report_error(ValidationError {
                error_code: RULE_CODE,
                message:
                    "Field \"__typename\" must not have a selection since type \"String!\" has no subfields."
                        .to_owned(),
                locations: vec![field.position],
            });
        }
        let is_known = match &*field.name {
            "__schema" | "__type" => {
                let root = &context.schema.query_type().name;
                context.current_parent_type().is_none_or(|parent| parent.name() == root)
            }
            name => name == "__typename" || !name.starts_with("__"),
        };
        if !is_known {
            errors.report_error(ValidationError {
                error_code: UNKNOWN_FIELD_CODE,
                message: format!("Cannot query field \"{}\" here.", field.name),
                locations: vec![field.position],
            });
        }
    }
}
