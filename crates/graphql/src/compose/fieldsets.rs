//! Checks of the fields in `@key`, `@requires` and `@provides`: they must exist, and be external if another
//! service resolves them.

use diagnostics::Diagnostics;
use indexmap::IndexMap;

use super::error::{CompositionErrorKind, ReportError};
use super::model::{FieldSet, FieldUsage, SubgraphSchema, SubgraphType, SubgraphTypeKind};
use super::selection::{FieldSetSelection, SelectedElement};
use super::subgraph_reader::is_built_in;

/// The directive that selects the fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldSetDirective {
    Key,
    Requires,
    Provides,
}

impl FieldSetDirective {
    fn directive_name(self) -> &'static str {
        match self {
            Self::Key => "@key",
            Self::Requires => "@requires",
            Self::Provides => "@provides",
        }
    }

    fn invalid_fields_error(self) -> CompositionErrorKind {
        match self {
            Self::Key => CompositionErrorKind::KeyInvalidFields,
            Self::Requires => CompositionErrorKind::RequiresInvalidFields,
            Self::Provides => CompositionErrorKind::ProvidesInvalidFields,
        }
    }

    fn nested_directive_error(self) -> CompositionErrorKind {
        match self {
            Self::Key => CompositionErrorKind::KeyDirectiveInFieldsArg,
            Self::Requires => CompositionErrorKind::RequiresDirectiveInFieldsArg,
            Self::Provides => CompositionErrorKind::ProvidesDirectiveInFieldsArg,
        }
    }
}

/// Checks all field sets, and marks the fields that they use.
pub(super) fn check_field_sets(schema: &mut SubgraphSchema<'_>, errors: &mut Diagnostics) {
    let mut uses = FieldUses::default();
    for (&name, of) in &schema.types {
        for key in &of.keys {
            let mut walk = FieldSetWalk {
                schema,
                by: FieldSetDirective::Key,
                coordinate: name,
                uses: &mut uses,
                errors,
                is_extended: !of.is_defined,
            };
            walk.check_set(name, &key.fields);
        }
        for (field_name, field) in &of.fields {
            let at = format!("{name}.{field_name}");
            if let Some(set) = &field.requires {
                FieldSetWalk {
                    schema,
                    by: FieldSetDirective::Requires,
                    coordinate: &at,
                    uses: &mut uses,
                    errors,
                    is_extended: false,
                }
                .check_set(name, set);
            }
            if let Some(set) = &field.provides {
                let mut walk = FieldSetWalk {
                    schema,
                    by: FieldSetDirective::Provides,
                    coordinate: &at,
                    uses: &mut uses,
                    errors,
                    is_extended: false,
                };
                walk.check_provided(field.type_ref.name(), set);
            }
        }
    }
    let indices: Vec<(usize, usize, FieldSetDirective, bool)> = uses.into_indices(schema);
    for (of, field, by, is_extended) in indices {
        let field = &mut schema.types[of].fields[field];
        mark_usage(&mut field.usage, by);
        // An extension declares the fields of its key as external, but still provides them.
        field.is_external &= !is_extended;
    }
}

fn mark_usage(used: &mut FieldUsage, by: FieldSetDirective) {
    match by {
        FieldSetDirective::Key => used.by_key = true,
        FieldSetDirective::Requires => used.by_requires = true,
        FieldSetDirective::Provides => used.by_provides = true,
    }
}

/// The used fields, by type and name, and whether the key of an extension uses them.
#[derive(Default)]
struct FieldUses(IndexMap<String, IndexMap<String, Vec<(FieldSetDirective, bool)>>>);

impl FieldUses {
    fn add(&mut self, of: &str, field: &str, directive: FieldSetDirective, is_extended: bool) {
        let uses = self.0.entry(of.to_owned()).or_default().entry(field.to_owned()).or_default();
        if !uses.contains(&(directive, is_extended)) {
            uses.push((directive, is_extended));
        }
    }

    fn into_indices(self, schema: &SubgraphSchema<'_>) -> Vec<(usize, usize, FieldSetDirective, bool)> {
        let mut indices = Vec::new();
        for (name, fields) in self.0 {
            let Some((of, _, found)) = schema.types.get_full(name.as_str()) else { continue };
            for (field, uses) in fields {
                let Some(field) = found.fields.get_index_of(field.as_str()) else { continue };
                indices.extend(uses.into_iter().map(|(by, is_extended)| (of, field, by, is_extended)));
            }
        }
        indices
    }
}

struct FieldSetWalk<'w, 'a> {
    schema: &'w SubgraphSchema<'a>,
    by: FieldSetDirective,
    coordinate: &'w str,
    uses: &'w mut FieldUses,
    errors: &'w mut Diagnostics,
    is_extended: bool,
}

impl<'w, 'a> FieldSetWalk<'w, 'a> {
    fn check_set(&mut self, of: &str, set: &FieldSet) {
        self.check_selection(of, &set.selection, false);
    }

    fn check_provided(&mut self, of: &str, set: &FieldSet) {
        let kind = self.schema.types.get(of).map(|of| of.kind);
        if matches!(
            kind,
            Some(SubgraphTypeKind::Object | SubgraphTypeKind::Interface | SubgraphTypeKind::Union)
        ) {
            self.check_set(of, set);
        } else {
            let what = format!("\"{of}\" has no fields to provide");
            self.report_error(CompositionErrorKind::ProvidesOnNonObjectField, &what, "remove @provides");
        }
    }

    fn check_selection(&mut self, of: &str, selection: &FieldSetSelection, is_external: bool) {
        for picked in &selection.0 {
            match picked {
                SelectedElement::InlineFragment { type_condition: on, below } => {
                    self.check_selection(on.as_deref().unwrap_or(of), below, is_external)
                }
                SelectedElement::Field { name, .. } if &**name == "__typename" => {}
                SelectedElement::Field { name, has_arguments, has_directives, subselection: below } => {
                    if *has_directives {
                        let what = format!("the field \"{name}\" has a directive there");
                        self.report_error(self.by.nested_directive_error(), &what, "remove the directive");
                    }
                    self.check_field(of, name, *has_arguments, below, is_external);
                }
            }
        }
    }

    fn check_field(
        &mut self,
        of: &str,
        name: &str,
        has_arguments: bool,
        below: &FieldSetSelection,
        is_external: bool,
    ) {
        let Some((owner, field)) = self.find_field(of, name) else {
            let what = format!("\"{of}\" has no field \"{name}\" in that service");
            return self.report_error(
                self.by.invalid_fields_error(),
                &what,
                "use a field of the type, or add the field to that schema",
            );
        };
        self.uses.add(of, name, self.by, self.is_extended);
        if self.by != FieldSetDirective::Requires && (has_arguments || !field.arguments.is_empty()) {
            let code = if self.by == FieldSetDirective::Key {
                CompositionErrorKind::KeyFieldsHasArgs
            } else {
                CompositionErrorKind::ProvidesFieldsHasArgs
            };
            self.report_error(
                code,
                &format!("\"{of}.{name}\" has arguments"),
                "use a field without arguments",
            );
        }
        let inner = field.type_ref.name();
        let kind = self.schema.types.get(inner).map(|of| of.kind);
        let is_leaf =
            is_built_in(inner) || matches!(kind, Some(SubgraphTypeKind::Scalar | SubgraphTypeKind::Enum));
        if self.by == FieldSetDirective::Key
            && matches!(kind, Some(SubgraphTypeKind::Interface | SubgraphTypeKind::Union))
        {
            let what = format!("\"{of}.{name}\" is of the abstract type \"{inner}\"");
            return self.report_error(
                CompositionErrorKind::KeyFieldsSelectInvalidType,
                &what,
                "use fields of objects and scalars",
            );
        }
        if is_leaf != below.0.is_empty() {
            let what = format!(
                "\"{of}.{name}\" of type \"{}\" must be selected with{} subfields",
                field.type_ref,
                if is_leaf { "out" } else { "" }
            );
            return self.report_error(self.by.invalid_fields_error(), &what, "write it as in a query");
        }
        let is_external = is_external || self.is_external(owner, of, name);
        if is_leaf && !is_external && self.by != FieldSetDirective::Key && !self.schema.is_federation_v1 {
            let what = format!("\"{of}.{name}\" is not external, so the service resolves it anyway");
            let code = match self.by {
                FieldSetDirective::Requires => CompositionErrorKind::RequiresFieldsMissingExternal,
                _ => CompositionErrorKind::ProvidesFieldsMissingExternal,
            };
            return self.report_error(
                code,
                &what,
                "mark the field with @external, or remove it from the directive",
            );
        }
        self.check_selection(inner, below, is_external);
    }

    fn find_field(
        &self,
        of: &str,
        name: &str,
    ) -> Option<(&'w SubgraphType<'a>, &'w super::model::SubgraphField<'a>)> {
        let of = self.schema.types.get(of)?;
        Some((of, of.fields.get(name)?))
    }

    /// An interface field counts as external if it is external in a type that implements the interface.
    fn is_external(&self, owner: &SubgraphType<'_>, of: &str, name: &str) -> bool {
        let external = |of: &SubgraphType<'_>| of.fields.get(name).is_some_and(|field| field.is_external);
        let implements = |other: &SubgraphType<'_>| {
            other.kind == SubgraphTypeKind::Object && other.interfaces.contains(of)
        };
        external(owner)
            || owner.kind == SubgraphTypeKind::Interface
                && self.schema.types.values().any(|other| implements(other) && external(other))
    }

    fn report_error(&mut self, code: CompositionErrorKind, what: &str, hint: &str) {
        let service = &self.schema.name;
        let message =
            format!("{} at \"{}\" of \"{service}\": {what}.", self.by.directive_name(), self.coordinate);
        self.errors.report(code, &[service], self.coordinate, message, hint);
    }
}
