//! Checks that visible elements do not depend on elements hidden by `@inaccessible`.

use diagnostics::Diagnostics;
use graphql_tools::parser::schema::Value as AstValue;

use super::error::{CompositionErrorKind, ReportError};
use super::merged_schema::{MergedType, MergedTypes};
use super::model::{
    ElementMetadata, SchemaValue, SubgraphInput, SubgraphName, SubgraphSchema, SubgraphTypeKind, TypeRef,
};

/// Checks all types.
pub(super) fn check_inaccessible<'a>(
    schemas: &[SubgraphSchema<'a>],
    types: &MergedTypes<'a>,
    errors: &mut Diagnostics,
) {
    let is_anything_hidden = types.values().any(|of| {
        of.metadata.is_inaccessible
            || of.fields.values().any(|field| {
                field.metadata.is_inaccessible
                    || field.arguments.values().any(|argument| argument.metadata.is_inaccessible)
            })
            || of.inputs.values().any(|input| input.input.metadata.is_inaccessible)
            || of.values.values().any(|value| value.metadata.is_inaccessible)
    });
    if !is_anything_hidden {
        return;
    }
    let mut hidden = HiddenElements { schemas, types, errors };
    for (name, of) in types {
        if of.metadata.is_inaccessible {
            if *name == "Query" {
                let message = "\"Query\" is inaccessible, so no query is possible.";
                hidden.report_error(
                    CompositionErrorKind::QueryRootTypeInaccessible,
                    "Query",
                    name,
                    message,
                    "remove @inaccessible",
                );
            }
            continue;
        }
        hidden.check_children(name, of);
        hidden.check_fields(name, of);
        for (input, merged) in &of.inputs {
            hidden.check_input(name, &format!("{name}.{input}"), &merged.input);
        }
    }
}

struct HiddenElements<'h, 'a> {
    schemas: &'h [SubgraphSchema<'a>],
    types: &'h MergedTypes<'a>,
    errors: &'h mut Diagnostics,
}

impl<'a> HiddenElements<'_, 'a> {
    /// Reports visible types whose elements are all hidden.
    fn check_children(&mut self, name: &str, of: &MergedType<'a>) {
        let shown = |shown: &ElementMetadata| !shown.is_inaccessible;
        let is_empty = match of.kind {
            SubgraphTypeKind::Object | SubgraphTypeKind::Interface => {
                !of.fields.values().any(|field| shown(&field.metadata))
            }
            SubgraphTypeKind::Enum => !of.values.values().any(|value| shown(&value.metadata)),
            SubgraphTypeKind::Input => !of.inputs.values().any(|input| shown(&input.input.metadata)),
            SubgraphTypeKind::Union => !of.members.iter().any(|member| self.is_visible(member)),
            SubgraphTypeKind::Scalar => false,
        };
        if is_empty {
            let message = format!("\"{name}\" is visible, but everything in it is inaccessible.");
            self.report_error(
                CompositionErrorKind::OnlyInaccessibleChildren,
                name,
                name,
                &message,
                "mark the type itself with @inaccessible",
            );
        }
    }

    fn check_fields(&mut self, name: &str, of: &MergedType<'a>) {
        for (field, merged_field) in &of.fields {
            let at = format!("{name}.{field}");
            let of_interface = of.interfaces.iter().find(|interface| {
                let field = self.types.get(**interface).and_then(|of| of.fields.get(field));
                self.is_visible(interface) && field.is_some_and(|field| !field.metadata.is_inaccessible)
            });
            if merged_field.metadata.is_inaccessible {
                if let Some(interface) = of_interface {
                    let message = format!(
                        "\"{at}\" is inaccessible, but the interface's \"{interface}.{field}\" is not."
                    );
                    self.report_error(
                        CompositionErrorKind::ImplementedByInaccessible,
                        &at,
                        name,
                        &message,
                        "hide both or neither",
                    );
                }
                continue;
            }
            self.check_reference(&at, name, &merged_field.type_ref);
            for (argument, input) in &merged_field.arguments {
                self.check_input(name, &format!("{at}({argument}:)"), input);
            }
        }
    }

    fn check_input(&mut self, owner: &str, at: &str, input: &SubgraphInput<'a>) {
        if !input.metadata.is_inaccessible {
            self.check_reference(at, owner, &input.type_ref);
            if input.default.as_ref().is_some_and(|value| self.uses_inaccessible(value, &input.type_ref)) {
                let message = format!("The default of \"{at}\" uses an inaccessible element.");
                self.report_error(
                    CompositionErrorKind::DefaultValueUsesInaccessible,
                    at,
                    owner,
                    &message,
                    "write another default",
                );
            }
        } else if input.is_required() {
            let message = format!("\"{at}\" is inaccessible, but required.");
            self.report_error(
                CompositionErrorKind::RequiredInaccessible,
                at,
                owner,
                &message,
                "give it a default, or make it nullable",
            );
        }
    }

    fn check_reference(&mut self, at: &str, owner: &str, of: &TypeRef<'_>) {
        if self.types.get(of.name()).is_some_and(|of| of.metadata.is_inaccessible) {
            let message = format!("\"{at}\" is visible, but its type \"{}\" is inaccessible.", of.name());
            self.report_error(
                CompositionErrorKind::ReferencedInaccessible,
                at,
                owner,
                &message,
                format!("mark \"{at}\" with @inaccessible too"),
            );
        }
    }

    fn uses_inaccessible(&self, value: &SchemaValue<'_>, of: &TypeRef<'_>) -> bool {
        let Some(merged_type) = self.types.get(of.name()) else { return false };
        match value {
            AstValue::Enum(value) => {
                merged_type.values.get(*value).is_some_and(|value| value.metadata.is_inaccessible)
            }
            AstValue::List(items) => items.iter().any(|item| self.uses_inaccessible(item, of)),
            AstValue::Object(members) => members.iter().any(|(name, value)| {
                merged_type.inputs.get(*name).is_some_and(|input| {
                    input.input.metadata.is_inaccessible
                        || self.uses_inaccessible(value, &input.input.type_ref)
                })
            }),
            _ => false,
        }
    }

    fn is_visible(&self, name: &str) -> bool {
        self.types.get(name).is_some_and(|of| !of.metadata.is_inaccessible)
    }

    fn report_error(
        &mut self,
        code: CompositionErrorKind,
        at: &str,
        owner: &str,
        message: &str,
        hint: impl Into<String>,
    ) {
        let has = |schema: &&SubgraphSchema<'_>| schema.types.contains_key(owner);
        let services: Vec<&SubgraphName> =
            self.schemas.iter().filter(has).map(|schema| &schema.name).collect();
        self.errors.report(code, &services, at, message, hint);
    }
}
