//! The elements of a schema's types: fields, arguments, values, and their directives.

use graphql_tools::parser::schema::{self as ast, Directive};
use indexmap::IndexMap;

use super::{DEFAULT_DEPRECATION_REASON, DirectiveList, FEDERATION_ELEMENTS, SubgraphReader};
use crate::compose::directive_names::{DirectiveMeaning, directive_argument, string_value};
use crate::compose::error::{CompositionErrorKind, ReportError};
use crate::compose::model::{
    ElementMetadata, FieldOverride, FieldSet, FieldUsage, SchemaValue, SubgraphField, SubgraphInput,
    SubgraphType, TypeRef,
};
use crate::compose::selection::FieldSetSelection;

impl<'a> SubgraphReader<'_, 'a> {
    pub(super) fn read_fields(
        &mut self,
        name: &'a str,
        of: &mut SubgraphType<'a>,
        fields: Vec<ast::Field<'a, &'a str>>,
        directives: &DirectiveList<'a>,
    ) {
        self.apply_directives(name, of, directives);
        let has = |mark| directives.iter().any(|directive| self.names.meaning(directive.name) == Some(mark));
        let (is_external, is_shareable) = (
            has(DirectiveMeaning::External) && !self.names.is_federation_v1,
            has(DirectiveMeaning::Shareable),
        );
        for field in fields {
            if FEDERATION_ELEMENTS.contains(&field.name) && name == "Query" {
                continue;
            }
            let coordinate = format!("{name}.{}", field.name);
            let field_name = field.name;
            let mut field = self.read_field(&coordinate, field);
            field.is_external |= is_external;
            field.is_shareable |= is_shareable;
            if of.fields.insert(field_name, field).is_some() {
                self.report_duplicate(&coordinate, "field");
            }
        }
    }

    fn read_field(&mut self, coordinate: &str, field: ast::Field<'a, &'a str>) -> SubgraphField<'a> {
        let mut read = SubgraphField {
            metadata: self.read_metadata(coordinate, field.description, &field.directives),
            type_ref: self.read_type_ref(&field.field_type),
            arguments: self.read_input_values(coordinate, field.arguments, ("(", ":)")),
            is_external: false,
            is_shareable: self.names.is_federation_v1,
            requires: None,
            provides: None,
            overrides: None,
            usage: FieldUsage::default(),
        };
        for directive in &field.directives {
            match self.names.meaning(directive.name) {
                Some(DirectiveMeaning::External) => read.is_external = true,
                Some(DirectiveMeaning::Shareable) => read.is_shareable = true,
                Some(DirectiveMeaning::Requires) => {
                    read.requires = self.read_field_set(directive, coordinate, DirectiveMeaning::Requires)
                }
                Some(DirectiveMeaning::Provides) => {
                    read.provides = self.read_field_set(directive, coordinate, DirectiveMeaning::Provides)
                }
                Some(DirectiveMeaning::Override) => {
                    let label = string_value(directive_argument(directive, "label")).map(str::to_owned);
                    let from = string_value(directive_argument(directive, "from")).unwrap_or("").to_owned();
                    read.overrides = Some(FieldOverride { from_service: from, label });
                }
                _ => {}
            }
        }
        read
    }

    pub(super) fn read_enum_values(
        &mut self,
        name: &str,
        of: &mut SubgraphType<'a>,
        values: Vec<ast::EnumValue<'a, &'a str>>,
        directives: &DirectiveList<'a>,
    ) {
        self.apply_directives(name, of, directives);
        for value in values {
            let coordinate = format!("{name}.{}", value.name);
            let shown = self.read_metadata(&coordinate, value.description, &value.directives);
            if of.values.insert(value.name, shown).is_some() {
                self.report_duplicate(&coordinate, "value");
            }
        }
    }

    pub(super) fn read_input_fields(
        &mut self,
        name: &str,
        of: &mut SubgraphType<'a>,
        inputs: Vec<ast::InputValue<'a, &'a str>>,
        directives: &DirectiveList<'a>,
    ) {
        self.apply_directives(name, of, directives);
        for (input, value) in self.read_input_values(name, inputs, (".", "")) {
            if of.inputs.insert(input, value).is_some() {
                self.report_duplicate(&format!("{name}.{input}"), "field");
            }
        }
    }

    fn read_input_values(
        &mut self,
        owner: &str,
        values: Vec<ast::InputValue<'a, &'a str>>,
        (before, after): (&str, &str),
    ) -> IndexMap<&'a str, SubgraphInput<'a>> {
        let mut inputs = IndexMap::with_capacity(values.len());
        for value in values {
            let coordinate = format!("{owner}{before}{}{after}", value.name);
            let shown = self.read_metadata(&coordinate, value.description, &value.directives);
            let input = SubgraphInput {
                metadata: shown,
                type_ref: self.read_type_ref(&value.value_type),
                default: value.default_value,
            };
            if inputs.insert(value.name, input).is_some() {
                self.report_duplicate(&coordinate, "argument");
            }
        }
        inputs
    }

    fn read_type_ref(&self, of: &ast::Type<'a, &'a str>) -> TypeRef<'a> {
        match of {
            ast::Type::NamedType(name) => TypeRef::Named(self.standard_name(name)),
            ast::Type::ListType(inner) => TypeRef::List(Box::new(self.read_type_ref(inner))),
            ast::Type::NonNullType(inner) => TypeRef::NonNull(Box::new(self.read_type_ref(inner))),
        }
    }

    /// Reads the metadata of an element, and reports unsupported directives.
    pub(super) fn read_metadata(
        &mut self,
        coordinate: &str,
        description: Option<String>,
        directives: &DirectiveList<'a>,
    ) -> ElementMetadata {
        let mut shown = ElementMetadata {
            description: description.filter(|text| !text.is_empty()),
            ..ElementMetadata::default()
        };
        for directive in directives {
            match self.names.meaning(directive.name) {
                Some(DirectiveMeaning::Inaccessible) => shown.is_inaccessible = true,
                Some(DirectiveMeaning::Tag) => {
                    shown.tags.extend(string_value(directive_argument(directive, "name")).map(str::to_owned))
                }
                Some(DirectiveMeaning::Unknown) => self.report_unsupported(coordinate, directive.name),
                Some(_) => {}
                None if directive.name == "deprecated" => {
                    let reason = string_value(directive_argument(directive, "reason"))
                        .unwrap_or(DEFAULT_DEPRECATION_REASON);
                    shown.deprecated = Some(reason.to_owned());
                }
                None if self.names.is_missing_import(directive.name)
                    && !self.own_directives.contains(&directive.name) =>
                {
                    self.report_missing_import(coordinate, directive.name);
                }
                None => {}
            }
        }
        shown
    }

    fn report_unsupported(&mut self, coordinate: &str, directive: &str) {
        self.errors.report(
            CompositionErrorKind::UnsupportedLinkedFeature,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which the gateway would not enforce.",
                self.service
            ),
            "protect the route or the service instead, and remove the directive",
        );
    }

    fn report_missing_import(&mut self, coordinate: &str, directive: &str) {
        self.errors.report(
            CompositionErrorKind::InvalidGraphql,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which its schema doesn't import.",
                self.service
            ),
            format!("add \"@{directive}\" to the import of the @link to Federation"),
        );
    }

    pub(super) fn read_field_set(
        &mut self,
        directive: &Directive<'a, &'a str>,
        coordinate: &str,
        mark: DirectiveMeaning,
    ) -> Option<FieldSet> {
        let value = directive_argument(directive, "fields");
        let written = match value {
            Some(SchemaValue::String(text)) => Some(text.clone()),
            // Federation v1 also accepts lists of strings.
            Some(SchemaValue::List(items)) if self.names.is_federation_v1 => items
                .iter()
                .map(|item| string_value(Some(item)))
                .collect::<Option<Vec<_>>>()
                .map(|texts| texts.join(" ")),
            _ => None,
        };
        let (wrong_type, kind) = match mark {
            DirectiveMeaning::Requires => {
                (CompositionErrorKind::RequiresInvalidFieldsType, CompositionErrorKind::RequiresInvalidFields)
            }
            DirectiveMeaning::Provides => {
                (CompositionErrorKind::ProvidesInvalidFieldsType, CompositionErrorKind::ProvidesInvalidFields)
            }
            _ => (CompositionErrorKind::KeyInvalidFieldsType, CompositionErrorKind::KeyInvalidFields),
        };
        let complaint = match written.as_deref().map(FieldSetSelection::parse) {
            Some(Ok(selection)) => {
                let text = written.as_deref().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
                return Some(FieldSet { text, selection });
            }
            Some(Err(complaint)) => (kind, complaint),
            None => (wrong_type, "is not a string".to_owned()),
        };
        let service = self.service;
        let message =
            format!("`fields` of @{} at \"{coordinate}\" of \"{service}\" {}.", directive.name, complaint.1);
        self.errors.report(
            complaint.0,
            &[service],
            coordinate,
            message,
            "write the names of fields, such as \"id organization { id }\"",
        );
        None
    }
}
