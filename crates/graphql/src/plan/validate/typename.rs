//! The field `__typename`, which the library's rule ("Leaf Field Selections", 5.3.3 of the specification) does not find in the schema.

use graphql_tools::ast::{OperationVisitor, OperationVisitorContext};
use graphql_tools::static_graphql::query::Field;
use graphql_tools::validation::rules::{ValidationRule, ValidationVisitor};
use graphql_tools::validation::utils::{ValidationError, ValidationErrorContext};

/// The library's name of the rule: both have the same texts for callers who may not see the schema.
const RULE: &str = "LeafFieldSelections";

/// Refuses selections below `__typename`.
pub(super) struct TypenameRule;

impl ValidationRule for TypenameRule {
    fn error_code(&self) -> &'static str {
        RULE
    }

    fn visitor<'doc>(&self) -> ValidationVisitor<'doc> {
        Box::new(Self)
    }
}

impl<'doc> OperationVisitor<'doc, ValidationErrorContext> for TypenameRule {
    fn enter_field(
        &mut self,
        _: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        field: &Field,
    ) {
        if field.name == "__typename" && !field.selection_set.items.is_empty() {
            errors.report_error(ValidationError {
                error_code: RULE,
                message:
                    "Field \"__typename\" must not have a selection since type \"String!\" has no subfields."
                        .to_owned(),
                locations: vec![field.position],
            });
        }
    }
}
