//! A check of literals that the library's rule ("Values of Correct Type", 5.6.1 of the specification) accepts
//! wrongly: objects for scalars and enums, and any value for the scalars that the gateway derives from
//! OpenAPI formats.
//!
//! Each value of a document is visited once. Values within a rejected value have no type, and thus no error
//! of their own.

use std::sync::Arc;

use graphql_tools::ast::{OperationVisitor, OperationVisitorContext};
use graphql_tools::static_graphql::query::{Type, Value};
use graphql_tools::validation::rules::{ValidationRule, ValidationVisitor};
use graphql_tools::validation::utils::{ValidationError, ValidationErrorContext};

use crate::plan::types::{ClientTypeKind, ClientTypes, ScalarKind};
use crate::subgraph::ScalarInput;

/// The library's name of the rule. Sharing it gives both the same messages for callers that may not see the
/// schema.
const RULE_CODE: &str = "ValuesOfCorrectType";

/// The rule, with a schema's types.
pub(super) struct LiteralRule(pub(super) Arc<ClientTypes>);

impl ValidationRule for LiteralRule {
    fn error_code(&self) -> &'static str {
        RULE_CODE
    }

    fn visitor<'doc>(&self) -> ValidationVisitor<'doc> {
        Box::new(LiteralVisitor(Arc::clone(&self.0)))
    }
}

struct LiteralVisitor(Arc<ClientTypes>);

impl LiteralVisitor {
    /// Reports a literal unless `is_fit` holds for its type.
    fn check_literal(
        &self,
        context: &OperationVisitorContext<'_>,
        errors: &mut ValidationErrorContext,
        shown: &str,
        is_fit: impl Fn(&ClientTypeKind, Option<ScalarInput>) -> bool,
    ) {
        let Some(ty) = context.current_input_type_literal() else { return };
        let Some(id) = self.0.find(ty.inner_type()) else { return };
        if !is_fit(self.0.kind_of(id), self.0.scalar_input(id)) {
            errors.report_error(ValidationError {
                error_code: RULE_CODE,
                message: format!("Expected value of type \"{ty}\", found {shown}."),
                locations: vec![],
            });
        }
    }
}

impl<'doc> OperationVisitor<'doc, ValidationErrorContext> for LiteralVisitor {
    fn enter_object_value(
        &mut self,
        context: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        _: &[(String, Value)],
    ) {
        self.check_literal(context, errors, "an object", |kind, input| match kind {
            ClientTypeKind::Scalar(ScalarKind::Custom) => input.is_none(),
            ClientTypeKind::Scalar(_) | ClientTypeKind::Enum(_) => false,
            // The library's rules check the other kinds.
            ClientTypeKind::Hidden
            | ClientTypeKind::Object(_)
            | ClientTypeKind::Abstract(..)
            | ClientTypeKind::Input { .. } => true,
        });
    }

    fn enter_list_value(
        &mut self,
        context: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        _: &Vec<Value>,
    ) {
        let is_list = context.current_input_type_literal().is_some_and(|ty| match ty {
            Type::NonNullType(inner) => matches!(**inner, Type::ListType(_)),
            other => matches!(other, Type::ListType(_)),
        });
        if !is_list {
            self.check_literal(context, errors, "a list", |_, input| input.is_none());
        }
    }

    fn enter_enum_value(
        &mut self,
        context: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        name: &String,
    ) {
        self.check_literal(context, errors, name, |_, input| input.is_none());
    }

    fn enter_scalar_value(
        &mut self,
        context: &mut OperationVisitorContext<'doc>,
        errors: &mut ValidationErrorContext,
        value: &Value,
    ) {
        let shown = match value {
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::String(_) => "a string",
            _ => "a boolean",
        };
        self.check_literal(context, errors, shown, |_, input| match input {
            None => true,
            Some(ScalarInput::Integer) => matches!(value, Value::Int(_)),
            Some(ScalarInput::Text) => matches!(value, Value::String(_)),
        });
    }
}
