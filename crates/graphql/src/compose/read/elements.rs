//! The elements of a schema's types: fields, arguments, values, and their directives.

use graphql_tools::parser::schema::{self as ast, Directive};
use indexmap::IndexMap;

use super::{Directives, MACHINERY, NO_REASON, Reader};
use crate::compose::error::Code;
use crate::compose::model::{Field, FieldSet, Input, Override, Shown, Type, TypeRef, Used, Value};
use crate::compose::names::{Mark, argument, text};
use crate::compose::selection::Selection;

impl<'a> Reader<'_, 'a> {
    pub(super) fn fields(
        &mut self,
        name: &'a str,
        of: &mut Type<'a>,
        fields: Vec<ast::Field<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        let has = |mark| directives.iter().any(|directive| self.names.mark(directive.name) == Some(mark));
        let (is_external, is_shareable) = (has(Mark::External) && !self.names.is_first, has(Mark::Shareable));
        for field in fields {
            if MACHINERY.contains(&field.name) && name == "Query" {
                continue;
            }
            let coordinate = format!("{name}.{}", field.name);
            let field_name = field.name;
            let mut field = self.field(&coordinate, field);
            field.is_external |= is_external;
            field.is_shareable |= is_shareable;
            if of.fields.insert(field_name, field).is_some() {
                self.twice(&coordinate, "field");
            }
        }
    }

    fn field(&mut self, coordinate: &str, field: ast::Field<'a, &'a str>) -> Field<'a> {
        let mut read = Field {
            shown: self.shown(coordinate, field.description, &field.directives),
            of: self.type_ref(&field.field_type),
            arguments: self.input_values(coordinate, field.arguments, ("(", ":)")),
            is_external: false,
            is_shareable: self.names.is_first,
            requires: None,
            provides: None,
            overrides: None,
            used: Used::default(),
        };
        for directive in &field.directives {
            match self.names.mark(directive.name) {
                Some(Mark::External) => read.is_external = true,
                Some(Mark::Shareable) => read.is_shareable = true,
                Some(Mark::Requires) => read.requires = self.field_set(directive, coordinate, Mark::Requires),
                Some(Mark::Provides) => read.provides = self.field_set(directive, coordinate, Mark::Provides),
                Some(Mark::Override) => {
                    let label = text(argument(directive, "label")).map(str::to_owned);
                    let from = text(argument(directive, "from")).unwrap_or("").to_owned();
                    read.overrides = Some(Override { from, label });
                }
                _ => {}
            }
        }
        read
    }

    pub(super) fn values(
        &mut self,
        name: &str,
        of: &mut Type<'a>,
        values: Vec<ast::EnumValue<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        for value in values {
            let coordinate = format!("{name}.{}", value.name);
            let shown = self.shown(&coordinate, value.description, &value.directives);
            if of.values.insert(value.name, shown).is_some() {
                self.twice(&coordinate, "value");
            }
        }
    }

    pub(super) fn inputs(
        &mut self,
        name: &str,
        of: &mut Type<'a>,
        inputs: Vec<ast::InputValue<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        for (input, value) in self.input_values(name, inputs, (".", "")) {
            if of.inputs.insert(input, value).is_some() {
                self.twice(&format!("{name}.{input}"), "field");
            }
        }
    }

    fn input_values(
        &mut self,
        owner: &str,
        values: Vec<ast::InputValue<'a, &'a str>>,
        (before, after): (&str, &str),
    ) -> IndexMap<&'a str, Input<'a>> {
        let mut inputs = IndexMap::with_capacity(values.len());
        for value in values {
            let coordinate = format!("{owner}{before}{}{after}", value.name);
            let shown = self.shown(&coordinate, value.description, &value.directives);
            let input = Input { shown, of: self.type_ref(&value.value_type), default: value.default_value };
            if inputs.insert(value.name, input).is_some() {
                self.twice(&coordinate, "argument");
            }
        }
        inputs
    }

    fn type_ref(&self, of: &ast::Type<'a, &'a str>) -> TypeRef<'a> {
        match of {
            ast::Type::NamedType(name) => TypeRef::Named(self.usual(name)),
            ast::Type::ListType(inner) => TypeRef::List(Box::new(self.type_ref(inner))),
            ast::Type::NonNullType(inner) => TypeRef::NonNull(Box::new(self.type_ref(inner))),
        }
    }

    /// Reads the metadata of an element, and reports unsupported directives.
    pub(super) fn shown(
        &mut self,
        coordinate: &str,
        description: Option<String>,
        directives: &Directives<'a>,
    ) -> Shown {
        let mut shown =
            Shown { description: description.filter(|text| !text.is_empty()), ..Shown::default() };
        for directive in directives {
            match self.names.mark(directive.name) {
                Some(Mark::Inaccessible) => shown.is_inaccessible = true,
                Some(Mark::Tag) => shown.tags.extend(text(argument(directive, "name")).map(str::to_owned)),
                Some(Mark::Unknown) => self.unsupported(coordinate, directive.name),
                Some(_) => {}
                None if directive.name == "deprecated" => {
                    let reason = text(argument(directive, "reason")).unwrap_or(NO_REASON);
                    shown.deprecated = Some(reason.to_owned());
                }
                None if self.names.is_forgotten(directive.name) && !self.own.contains(&directive.name) => {
                    self.forgotten(coordinate, directive.name);
                }
                None => {}
            }
        }
        shown
    }

    fn unsupported(&mut self, coordinate: &str, directive: &str) {
        self.errors.add(
            Code::UnsupportedLinkedFeature,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which the gateway would not enforce.",
                self.service
            ),
            "protect the route or the service instead, and remove the directive",
        );
    }

    fn forgotten(&mut self, coordinate: &str, directive: &str) {
        self.errors.add(
            Code::InvalidGraphql,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which its schema doesn't import.",
                self.service
            ),
            format!("add \"@{directive}\" to the import of the @link to Federation"),
        );
    }

    pub(super) fn field_set(
        &mut self,
        directive: &Directive<'a, &'a str>,
        coordinate: &str,
        mark: Mark,
    ) -> Option<FieldSet> {
        let value = argument(directive, "fields");
        let written = match value {
            Some(Value::String(text)) => Some(text.clone()),
            // Federation v1 also accepts lists of strings.
            Some(Value::List(items)) if self.names.is_first => items
                .iter()
                .map(|item| text(Some(item)))
                .collect::<Option<Vec<_>>>()
                .map(|texts| texts.join(" ")),
            _ => None,
        };
        let (wrong_type, wrong) = match mark {
            Mark::Requires => (Code::RequiresInvalidFieldsType, Code::RequiresInvalidFields),
            Mark::Provides => (Code::ProvidesInvalidFieldsType, Code::ProvidesInvalidFields),
            _ => (Code::KeyInvalidFieldsType, Code::KeyInvalidFields),
        };
        let complaint = match written.as_deref().map(Selection::parse) {
            Some(Ok(selection)) => {
                let text = written.as_deref().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
                return Some(FieldSet { text, selection });
            }
            Some(Err(complaint)) => (wrong, complaint),
            None => (wrong_type, "is not a string".to_owned()),
        };
        let service = self.service;
        let message =
            format!("`fields` of @{} at \"{coordinate}\" of \"{service}\" {}.", directive.name, complaint.1);
        self.errors.add(
            complaint.0,
            &[service],
            coordinate,
            message,
            "write the names of fields, such as \"id organization { id }\"",
        );
        None
    }
}
