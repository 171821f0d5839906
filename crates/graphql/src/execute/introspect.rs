//! Execution of `__schema` and `__type` on the schema that is visible to clients.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use graphql_tools::static_graphql::query::{Field as AstField, Selection, SelectionSet, Value as AstValue};
use graphql_tools::static_graphql::schema::{
    Definition, Directive, DirectiveDefinition, Document, EnumValue, Field, InputValue, Type, TypeDefinition,
    Value,
};
use serde_json::Value as JsonValue;

use super::variables::CoercedVariables;
use crate::plan::QueryPlan;
use crate::plan::shape::FieldSource;

/// An element of the schema that introspection can describe.
#[derive(Clone, Copy)]
enum SchemaElement<'s> {
    Schema,
    Type(&'s TypeDefinition),
    /// A type reference with its list and non-null wrappers.
    TypeRef(&'s Type),
    Field(&'s Field),
    Input(&'s InputValue),
    Value(&'s EnumValue),
    Directive(&'s DirectiveDefinition),
}

struct IntrospectionWriter<'s> {
    schema: &'s Document,
    /// The types by name. Each field and argument looks its type up here.
    types: HashMap<&'s str, &'s TypeDefinition, RandomState>,
    plan: &'s QueryPlan,
    variables: &'s CoercedVariables,
    out: &'s mut Vec<u8>,
    max_bytes: usize,
    visits: usize,
}

/// The limits of introspection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntrospectionLimits {
    /// The maximum size of the result in bytes.
    pub(crate) bytes: usize,
    /// The maximum number of visited selections. Selections on list items count once for each item.
    pub(crate) visits: usize,
}

impl IntrospectionLimits {
    /// The limits for a response of this size. The introspection query of common tools visits a million
    /// selections in a schema of a thousand types.
    pub(crate) fn for_response(bytes: usize) -> Self {
        Self { bytes, visits: 10_000_000 }
    }

    /// Limits that keep introspection to some milliseconds.
    pub(crate) fn small(bytes: usize) -> Self {
        Self { bytes: bytes.min(64 << 10), visits: 5_000 }
    }
}

/// Evaluates the introspection fields of `Query`, by response key; `None` if a limit is exceeded.
pub(crate) fn introspection_values(
    schema: &Document,
    plan: &QueryPlan,
    variables: &CoercedVariables,
    limits: IntrospectionLimits,
) -> Option<Vec<(Arc<str>, Bytes)>> {
    let variants = plan.shapes.get(plan.root).map(|shape| shape.variants.as_slice()).unwrap_or_default();
    let (mut values, mut left) = (Vec::new(), limits);
    for field in variants.first().iter().flat_map(|variant| &variant.fields) {
        let FieldSource::Introspection(asked) = &field.source else { continue };
        let mut out = Vec::new();
        left = write_introspection(schema, plan, variables, asked, &mut out, left)?;
        values.push((Arc::clone(&field.key), out.into()));
    }
    Some(values)
}

/// Writes the value of an introspection field of `Query`, with its fragments inlined. Returns the remaining
/// limits, or `None` if they were exceeded.
pub(super) fn write_introspection(
    schema: &Document,
    plan: &QueryPlan,
    variables: &CoercedVariables,
    asked: &AstField,
    out: &mut Vec<u8>,
    limits: IntrospectionLimits,
) -> Option<IntrospectionLimits> {
    let types = type_definitions(schema).map(|definition| (definition.name(), definition)).collect();
    let start = out.len();
    let most = start.saturating_add(limits.bytes);
    let mut introspection =
        IntrospectionWriter { schema, types, plan, variables, out, max_bytes: most, visits: limits.visits };
    let thing = match asked.name.as_str() {
        "__schema" => Some(SchemaElement::Schema),
        _ => introspection.string_argument(asked, "name").and_then(|name| introspection.find_type(&name)),
    };
    introspection.write_optional(thing, &[&asked.selection_set]);
    let (is_over, visits) = (introspection.is_limit_exceeded(), introspection.visits);
    let bytes = limits.bytes.saturating_sub(out.len() - start);
    (!is_over).then_some(IntrospectionLimits { bytes, visits })
}

fn type_definitions(schema: &Document) -> impl Iterator<Item = &TypeDefinition> {
    schema.definitions.iter().filter_map(|definition| match definition {
        Definition::TypeDefinition(definition) => Some(definition),
        _ => None,
    })
}

impl<'s> IntrospectionWriter<'s> {
    /// Whether a limit is exceeded; then nothing more is written.
    fn is_limit_exceeded(&self) -> bool {
        self.visits == 0 || self.out.len() > self.max_bytes
    }

    fn string_argument(&self, asked: &AstField, name: &str) -> Option<String> {
        match asked.arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value)? {
            AstValue::String(text) => Some(text.clone()),
            AstValue::Variable(variable) => self.variables.string_value(variable),
            _ => None,
        }
    }

    fn includes_deprecated(&self, asked: &AstField) -> bool {
        let given = asked.arguments.iter().find(|(known, _)| known == "includeDeprecated");
        match given.map(|(_, value)| value) {
            Some(AstValue::Boolean(value)) => *value,
            Some(AstValue::Variable(variable)) => self.variables.is_true(variable),
            _ => false,
        }
    }

    fn find_type(&self, name: &str) -> Option<SchemaElement<'s>> {
        self.types.get(name).copied().map(SchemaElement::Type)
    }

    fn write_optional(&mut self, thing: Option<SchemaElement<'s>>, sets: &[&SelectionSet]) {
        match thing {
            Some(thing) => self.write_object(thing, sets),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn write_list(&mut self, things: Option<Vec<SchemaElement<'s>>>, sets: &[&SelectionSet]) {
        let Some(things) = things else { return self.out.extend_from_slice(b"null") };
        self.out.push(b'[');
        for (place, thing) in things.into_iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            self.write_object(thing, sets);
        }
        self.out.push(b']');
    }

    fn write_object(&mut self, thing: SchemaElement<'s>, sets: &[&SelectionSet]) {
        if self.is_limit_exceeded() {
            return;
        }
        let mut fields: Vec<(&str, Vec<&AstField>)> = Vec::new();
        for set in sets {
            self.collect_fields(thing.typename(), set, &mut fields);
        }
        self.out.push(b'{');
        for (place, (key, fields)) in fields.into_iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            self.write_json(&key.into());
            self.out.push(b':');
            let Some(first) = fields.first() else { continue };
            let below: Vec<&SelectionSet> = fields.iter().map(|field| &field.selection_set).collect();
            self.write_field(thing, first, &below);
        }
        self.out.push(b'}');
    }

    fn collect_fields<'d>(
        &mut self,
        ty: &str,
        set: &'d SelectionSet,
        out: &mut Vec<(&'d str, Vec<&'d AstField>)>,
    ) {
        // Each field is compared with those collected before.
        let visits = set.items.len() * (1 + out.len() / 16 + set.items.len() / 32);
        self.visits = self.visits.saturating_sub(visits);
        if self.is_limit_exceeded() {
            return;
        }
        for item in &set.items {
            match item {
                Selection::Field(field) if self.is_included(&field.directives) => {
                    let key = field.alias.as_ref().unwrap_or(&field.name).as_str();
                    match out.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, fields)) => fields.push(field),
                        None => out.push((key, vec![field])),
                    }
                }
                Selection::InlineFragment(fragment) if self.is_included(&fragment.directives) => {
                    let condition = fragment.type_condition.as_ref().map(|name| name.as_ref().as_str());
                    if condition.is_none_or(|condition| condition == ty) {
                        self.collect_fields(ty, &fragment.selection_set, out);
                    }
                }
                _ => {}
            }
        }
    }

    fn is_included(&self, directives: &[graphql_tools::static_graphql::query::Directive]) -> bool {
        directives.iter().all(|directive| {
            let wanted = match directive.name.as_str() {
                "skip" => false,
                "include" => true,
                _ => return true,
            };
            let given = directive.arguments.iter().find(|(name, _)| name == "if").map(|(_, value)| value);
            match given {
                Some(AstValue::Boolean(value)) => *value == wanted,
                Some(AstValue::Variable(name)) => self.variables.is_true(name) == wanted,
                _ => true,
            }
        })
    }

    fn write_json(&mut self, value: &JsonValue) {
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn write_field(&mut self, thing: SchemaElement<'s>, asked: &AstField, below: &[&SelectionSet]) {
        let name = asked.name.as_str();
        if name == "__typename" {
            return self.write_json(&thing.typename().into());
        }
        match thing {
            SchemaElement::Schema => self.write_schema_field(name, below),
            SchemaElement::Type(definition) => self.write_type_field(definition, name, asked, below),
            SchemaElement::TypeRef(Type::NamedType(_)) => self.out.extend_from_slice(b"null"),
            SchemaElement::TypeRef(written) => match name {
                "kind" => self.write_json(
                    &matches!(written, Type::ListType(_)).then_some("LIST").unwrap_or("NON_NULL").into(),
                ),
                "ofType" => match written {
                    Type::ListType(inner) | Type::NonNullType(inner) => {
                        let inner = self.type_element(inner);
                        self.write_optional(inner, below);
                    }
                    Type::NamedType(_) => self.out.extend_from_slice(b"null"),
                },
                _ => self.out.extend_from_slice(b"null"),
            },
            SchemaElement::Field(field) => match name {
                "name" => self.write_json(&field.name.as_str().into()),
                "description" => self.write_json(&field.description.clone().into()),
                "args" => self.write_inputs(&field.arguments, asked, below),
                "type" => {
                    let element = self.type_element(&field.field_type);
                    self.write_optional(element, below);
                }
                _ => self.write_deprecation(&field.directives, name),
            },
            SchemaElement::Input(input) => match name {
                "name" => self.write_json(&input.name.as_str().into()),
                "description" => self.write_json(&input.description.clone().into()),
                "type" => {
                    let schema_element = self.type_element(&input.value_type);
                    self.write_optional(schema_element, below);
                }
                "defaultValue" => self.write_json(&input.default_value.as_ref().map(Value::to_string).into()),
                _ => self.write_deprecation(&input.directives, name),
            },
            SchemaElement::Value(value) => match name {
                "name" => self.write_json(&value.name.as_str().into()),
                "description" => self.write_json(&value.description.clone().into()),
                _ => self.write_deprecation(&value.directives, name),
            },
            SchemaElement::Directive(directive) => match name {
                "name" => self.write_json(&directive.name.as_str().into()),
                "description" => self.write_json(&directive.description.clone().into()),
                "isRepeatable" => self.write_json(&directive.repeatable.into()),
                "locations" => {
                    let places = directive.locations.iter().map(|place| JsonValue::from(place.as_str()));
                    self.write_json(&places.collect());
                }
                "args" => self.write_inputs(&directive.arguments, asked, below),
                _ => self.out.extend_from_slice(b"null"),
            },
        }
    }

    /// Returns the element for a type reference; a named type without wrappers is its definition.
    fn type_element(&self, written: &'s Type) -> Option<SchemaElement<'s>> {
        match written {
            Type::NamedType(name) => self.find_type(name),
            wrapped => Some(SchemaElement::TypeRef(wrapped)),
        }
    }

    fn write_schema_field(&mut self, name: &str, below: &[&SelectionSet]) {
        let types = &self.plan.types;
        let (query, mutation) =
            (Arc::clone(types.name(types.query)), types.mutation.map(|id| types.name(id)));
        match name {
            "types" => {
                let all = type_definitions(self.schema).map(SchemaElement::Type).collect();
                self.write_list(Some(all), below);
            }
            "queryType" => {
                let thing = self.find_type(&query);
                self.write_optional(thing, below);
            }
            "mutationType" => {
                let thing = mutation.and_then(|name| self.find_type(name));
                self.write_optional(thing, below);
            }
            "directives" => {
                let directives = self.schema.definitions.iter().filter_map(|definition| match definition {
                    Definition::DirectiveDefinition(directive) => Some(SchemaElement::Directive(directive)),
                    _ => None,
                });
                self.write_list(Some(directives.collect()), below);
            }
            _ => self.out.extend_from_slice(b"null"),
        }
    }

    fn write_type_field(
        &mut self,
        definition: &'s TypeDefinition,
        name: &str,
        asked: &AstField,
        below: &[&SelectionSet],
    ) {
        match name {
            "kind" => self.write_json(&type_kind(definition).into()),
            "name" => self.write_json(&definition.name().into()),
            "description" => self.write_json(&type_description(definition).clone().into()),
            "specifiedByURL" => {
                let url = match definition {
                    TypeDefinition::Scalar(scalar) => {
                        directive_argument(&scalar.directives, "specifiedBy", "url")
                    }
                    _ => None,
                };
                self.write_json(&url.into());
            }
            "isOneOf" => {
                let is_one_of = match definition {
                    TypeDefinition::InputObject(input) => {
                        Some(input.directives.iter().any(|directive| directive.name == "oneOf"))
                    }
                    _ => None,
                };
                self.write_json(&is_one_of.into());
            }
            "fields" => {
                let fields = match definition {
                    TypeDefinition::Object(object) => Some(&object.fields),
                    TypeDefinition::Interface(interface) => Some(&interface.fields),
                    _ => None,
                };
                let all = self.includes_deprecated(asked);
                let seen = |field: &&Field| {
                    !field.name.starts_with("__") && (all || !is_deprecated(&field.directives))
                };
                let fields =
                    fields.map(|fields| fields.iter().filter(seen).map(SchemaElement::Field).collect());
                self.write_list(fields, below);
            }
            "interfaces" => {
                let names = match definition {
                    TypeDefinition::Object(object) => Some(&object.implements_interfaces),
                    TypeDefinition::Interface(interface) => Some(&interface.implements_interfaces),
                    _ => None,
                };
                let things =
                    names.map(|names| names.iter().filter_map(|name| self.find_type(name)).collect());
                self.write_list(things, below);
            }
            "possibleTypes" => {
                let types = &self.plan.types;
                let is_abstract =
                    matches!(definition, TypeDefinition::Interface(_) | TypeDefinition::Union(_));
                let objects = types.find(definition.name()).map(|id| types.objects(id)).unwrap_or_default();
                let things = objects.iter().filter_map(|id| self.find_type(types.name(*id))).collect();
                self.write_list(is_abstract.then_some(things), below);
            }
            "enumValues" => {
                let all = self.includes_deprecated(asked);
                let values = match definition {
                    TypeDefinition::Enum(named) => Some(&named.values),
                    _ => None,
                };
                let seen = |value: &&EnumValue| all || !is_deprecated(&value.directives);
                let things =
                    values.map(|values| values.iter().filter(seen).map(SchemaElement::Value).collect());
                self.write_list(things, below);
            }
            "inputFields" => match definition {
                TypeDefinition::InputObject(input) => self.write_inputs(&input.fields, asked, below),
                _ => self.out.extend_from_slice(b"null"),
            },
            _ => self.out.extend_from_slice(b"null"),
        }
    }

    fn write_inputs(&mut self, inputs: &'s [InputValue], asked: &AstField, below: &[&SelectionSet]) {
        let all = self.includes_deprecated(asked);
        let seen = |input: &&InputValue| all || !is_deprecated(&input.directives);
        self.write_list(Some(inputs.iter().filter(seen).map(SchemaElement::Input).collect()), below);
    }

    fn write_deprecation(&mut self, directives: &[Directive], name: &str) {
        let is_deprecated = is_deprecated(directives);
        match name {
            "isDeprecated" => self.write_json(&is_deprecated.into()),
            "deprecationReason" if is_deprecated => {
                let reason = directive_argument(directives, "deprecated", "reason");
                self.write_json(&reason.unwrap_or_else(|| "No longer supported".to_owned()).into());
            }
            _ => self.out.extend_from_slice(b"null"),
        }
    }
}

impl SchemaElement<'_> {
    fn typename(self) -> &'static str {
        match self {
            Self::Schema => "__Schema",
            Self::Type(_) | Self::TypeRef(_) => "__Type",
            Self::Field(_) => "__Field",
            Self::Input(_) => "__InputValue",
            Self::Value(_) => "__EnumValue",
            Self::Directive(_) => "__Directive",
        }
    }
}

fn type_kind(definition: &TypeDefinition) -> &'static str {
    match definition {
        TypeDefinition::Scalar(_) => "SCALAR",
        TypeDefinition::Object(_) => "OBJECT",
        TypeDefinition::Interface(_) => "INTERFACE",
        TypeDefinition::Union(_) => "UNION",
        TypeDefinition::Enum(_) => "ENUM",
        TypeDefinition::InputObject(_) => "INPUT_OBJECT",
    }
}

fn type_description(definition: &TypeDefinition) -> &Option<String> {
    match definition {
        TypeDefinition::Scalar(scalar) => &scalar.description,
        TypeDefinition::Object(object) => &object.description,
        TypeDefinition::Interface(interface) => &interface.description,
        TypeDefinition::Union(union) => &union.description,
        TypeDefinition::Enum(named) => &named.description,
        TypeDefinition::InputObject(input) => &input.description,
    }
}

fn is_deprecated(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| directive.name == "deprecated")
}

/// Returns a string argument of a directive.
fn directive_argument(directives: &[Directive], name: &str, argument: &str) -> Option<String> {
    let directive = directives.iter().find(|directive| directive.name == name)?;
    match directive.arguments.iter().find(|(known, _)| known == argument).map(|(_, value)| value)? {
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}
