//! Conversion of a schema's text to a [`SubgraphSchema`]: the types here, their elements in
//! `subgraph_reader/elements.rs`.

mod elements;

use diagnostics::Diagnostics;
use graphql_tools::parser::schema::{
    Definition, Directive, Document, SchemaDefinition, TypeDefinition, TypeExtension,
};
use indexmap::IndexMap;
use indexmap::map::Entry;

use super::directive_names::{DirectiveMeaning, SchemaDirectives, directive_argument, string_value};
use super::error::{CompositionErrorKind, ReportError};
use super::model::{
    ElementMetadata, EntityKey, SchemaValue, SubgraphName, SubgraphSchema, SubgraphType, SubgraphTypeKind,
};

/// The reason of a deprecation without a reason.
pub(super) const DEFAULT_DEPRECATION_REASON: &str = "No longer supported";

type DirectiveList<'a> = [Directive<'a, &'a str>];

/// Elements of a schema that belong to Federation, not to the service.
const FEDERATION_ELEMENTS: &[&str] =
    &["_Any", "_Entity", "_Service", "_FieldSet", "FieldSet", "_service", "_entities"];

/// Reads a schema that `text::prepared` has processed.
pub(super) fn read_schema<'a>(
    name: &SubgraphName,
    graph: String,
    sdl: &'a str,
    errors: &mut Diagnostics,
) -> Option<SubgraphSchema<'a>> {
    let document = match graphql_tools::parser::parse_schema::<&'a str>(sdl) {
        Ok(document) => document,
        Err(error) => {
            let error = error.to_string();
            let error = error.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ");
            errors.report(
                CompositionErrorKind::InvalidGraphql,
                &[name],
                "",
                format!("The schema of \"{name}\" is not valid GraphQL: {error}"),
                "correct the schema at that position",
            );
            return None;
        }
    };
    let definitions = document.definitions.iter();
    let schemas: Vec<_> = definitions
        .filter_map(|definition| match definition {
            Definition::SchemaDefinition(schema) => Some(schema),
            _ => None,
        })
        .collect();
    let directives: Vec<_> = schemas.iter().flat_map(|schema| schema.directives.iter().cloned()).collect();
    let names = SchemaDirectives::from_directives(&directives, name, errors);
    let roots = renamed_roots(&schemas);
    let mut reader = SubgraphReader {
        service: name,
        names,
        roots,
        own_directives: defined_directives(&document),
        errors,
        types: IndexMap::new(),
    };
    for definition in document.definitions {
        match definition {
            Definition::TypeDefinition(definition) => reader.read_definition(definition),
            Definition::TypeExtension(extension) => reader.read_extension(extension),
            Definition::SchemaDefinition(_) | Definition::DirectiveDefinition(_) => {}
        }
    }
    reader.drop_empty_roots();
    reader.check_references();
    let SubgraphReader { names, types, .. } = reader;
    Some(SubgraphSchema { name: name.clone(), graph, is_federation_v1: names.is_federation_v1, types })
}

/// The root types with non-standard names, and their standard names.
fn renamed_roots<'a>(schemas: &[&SchemaDefinition<'a, &'a str>]) -> Vec<(&'a str, &'static str)> {
    let all = schemas.iter().flat_map(|schema| {
        [(schema.query, "Query"), (schema.mutation, "Mutation"), (schema.subscription, "Subscription")]
    });
    all.filter_map(|(name, usual)| Some((name?, usual))).filter(|(name, usual)| name != usual).collect()
}

/// The directives that the schema defines.
fn defined_directives<'a>(document: &Document<'a, &'a str>) -> Vec<&'a str> {
    let definitions = document.definitions.iter();
    definitions
        .filter_map(|definition| match definition {
            Definition::DirectiveDefinition(directive) => Some(directive.name),
            _ => None,
        })
        .collect()
}

struct SubgraphReader<'r, 'a> {
    service: &'r SubgraphName,
    names: SchemaDirectives,
    roots: Vec<(&'a str, &'static str)>,
    own_directives: Vec<&'a str>,
    errors: &'r mut Diagnostics,
    types: IndexMap<&'a str, SubgraphType<'a>>,
}

impl<'a> SubgraphReader<'_, 'a> {
    fn read_definition(&mut self, definition: TypeDefinition<'a, &'a str>) {
        let (name, kind, description) = match &definition {
            TypeDefinition::Scalar(of) => (of.name, SubgraphTypeKind::Scalar, &of.description),
            TypeDefinition::Object(of) => (of.name, SubgraphTypeKind::Object, &of.description),
            TypeDefinition::Interface(of) => (of.name, SubgraphTypeKind::Interface, &of.description),
            TypeDefinition::Union(of) => (of.name, SubgraphTypeKind::Union, &of.description),
            TypeDefinition::Enum(of) => (of.name, SubgraphTypeKind::Enum, &of.description),
            TypeDefinition::InputObject(of) => (of.name, SubgraphTypeKind::Input, &of.description),
        };
        let description = description.clone();
        let Some((name, mut of)) = self.begin_type(name, kind) else { return };
        if of.is_defined {
            self.report_duplicate(name, "type");
        }
        of.is_defined = true;
        of.metadata.description = description.or(of.metadata.description);
        match definition {
            TypeDefinition::Scalar(scalar) => self.apply_directives(name, &mut of, &scalar.directives),
            TypeDefinition::Object(object) => {
                of.interfaces.extend(object.implements_interfaces);
                self.read_fields(name, &mut of, object.fields, &object.directives);
            }
            TypeDefinition::Interface(interface) => {
                of.interfaces.extend(interface.implements_interfaces);
                self.read_fields(name, &mut of, interface.fields, &interface.directives);
            }
            TypeDefinition::Union(union) => {
                of.members.extend(union.types);
                self.apply_directives(name, &mut of, &union.directives);
            }
            TypeDefinition::Enum(values) => {
                self.read_enum_values(name, &mut of, values.values, &values.directives)
            }
            TypeDefinition::InputObject(input) => {
                self.read_input_fields(name, &mut of, input.fields, &input.directives)
            }
        }
        self.types.insert(name, of);
    }

    fn read_extension(&mut self, extension: TypeExtension<'a, &'a str>) {
        let (name, kind) = match &extension {
            TypeExtension::Scalar(of) => (of.name, SubgraphTypeKind::Scalar),
            TypeExtension::Object(of) => (of.name, SubgraphTypeKind::Object),
            TypeExtension::Interface(of) => (of.name, SubgraphTypeKind::Interface),
            TypeExtension::Union(of) => (of.name, SubgraphTypeKind::Union),
            TypeExtension::Enum(of) => (of.name, SubgraphTypeKind::Enum),
            TypeExtension::InputObject(of) => (of.name, SubgraphTypeKind::Input),
        };
        let Some((name, mut of)) = self.begin_type(name, kind) else { return };
        match extension {
            TypeExtension::Scalar(scalar) => self.apply_directives(name, &mut of, &scalar.directives),
            TypeExtension::Object(object) => {
                of.interfaces.extend(object.implements_interfaces);
                self.read_fields(name, &mut of, object.fields, &object.directives);
            }
            TypeExtension::Interface(interface) => {
                of.interfaces.extend(interface.implements_interfaces);
                self.read_fields(name, &mut of, interface.fields, &interface.directives);
            }
            TypeExtension::Union(union) => {
                of.members.extend(union.types);
                self.apply_directives(name, &mut of, &union.directives);
            }
            TypeExtension::Enum(values) => {
                self.read_enum_values(name, &mut of, values.values, &values.directives)
            }
            TypeExtension::InputObject(input) => {
                self.read_input_fields(name, &mut of, input.fields, &input.directives)
            }
        }
        self.types.insert(name, of);
    }

    /// Returns the type as read so far. A placeholder keeps its position.
    fn begin_type(&mut self, name: &'a str, kind: SubgraphTypeKind) -> Option<(&'a str, SubgraphType<'a>)> {
        let is_linked = ["link__", "federation__"].iter().any(|space| name.starts_with(space));
        if is_linked || FEDERATION_ELEMENTS.contains(&name) || is_built_in(name) {
            return None;
        }
        if ["__", "join__"].iter().any(|space| name.starts_with(space)) {
            let message = format!(
                "The schema of \"{}\" has a type \"{name}\", which is a reserved name.",
                self.service
            );
            let hint = "rename it: \"__\" is reserved for GraphQL, and \"join__\" for supergraphs";
            self.errors.report(CompositionErrorKind::InvalidGraphql, &[self.service], name, message, hint);
            return None;
        }
        let usual = self.standard_name(name);
        if usual == name && self.roots.iter().any(|&(_, root)| root == name) {
            let code = match name {
                "Query" => CompositionErrorKind::RootQueryUsed,
                "Mutation" => CompositionErrorKind::RootMutationUsed,
                _ => CompositionErrorKind::RootSubscriptionUsed,
            };
            self.errors.report(
                code,
                &[self.service],
                name,
                format!("The schema of \"{}\" has a type \"{name}\" in addition to the root type that gets this name.", self.service),
                format!("rename \"{name}\", or make it the root type"),
            );
            return None;
        }
        let subgraph_type = match self.types.entry(usual) {
            Entry::Occupied(mut known) => known.insert(SubgraphType::new(kind)),
            Entry::Vacant(place) => {
                place.insert(SubgraphType::new(kind));
                SubgraphType::new(kind)
            }
        };
        if subgraph_type.kind != kind {
            self.report_duplicate(name, "type");
        }
        Some((usual, subgraph_type))
    }

    fn standard_name(&self, name: &'a str) -> &'a str {
        self.roots.iter().find(|&&(root, _)| root == name).map_or(name, |&(_, usual)| usual)
    }

    fn report_duplicate(&mut self, coordinate: &str, what: &str) {
        let message =
            format!("The schema of \"{}\" defines the {what} \"{coordinate}\" twice.", self.service);
        self.errors.report(
            CompositionErrorKind::InvalidGraphql,
            &[self.service],
            coordinate,
            message,
            "remove one of them",
        );
    }

    fn apply_directives(
        &mut self,
        coordinate: &str,
        of: &mut SubgraphType<'a>,
        directives: &DirectiveList<'a>,
    ) {
        let description = of.metadata.description.take();
        let shown = self.read_metadata(coordinate, description, directives);
        let has_tags = std::mem::take(&mut of.metadata.tags);
        of.metadata = ElementMetadata {
            is_inaccessible: of.metadata.is_inaccessible || shown.is_inaccessible,
            ..shown
        };
        of.metadata.tags.extend(has_tags);
        for directive in directives {
            match self.names.meaning(directive.name) {
                Some(DirectiveMeaning::Key) => {
                    let Some(fields) = self.read_field_set(directive, coordinate, DirectiveMeaning::Key)
                    else {
                        continue;
                    };
                    let is_resolvable =
                        directive_argument(directive, "resolvable") != Some(&SchemaValue::Boolean(false));
                    of.keys.push(EntityKey { fields, is_resolvable });
                }
                Some(DirectiveMeaning::InterfaceObject) => of.is_interface_object = true,
                Some(DirectiveMeaning::Extends) => of.is_defined = false,
                None if directive.name == "specifiedBy" => {
                    of.specified_by = string_value(directive_argument(directive, "url")).map(str::to_owned);
                }
                None if directive.name == "oneOf" => of.is_one_of = true,
                _ => {}
            }
        }
    }

    /// Removes empty root types, which a subgraph that only resolves entities may have.
    fn drop_empty_roots(&mut self) {
        let is_root = |name: &str| matches!(name, "Query" | "Mutation" | "Subscription");
        self.types.retain(|name, of| !(is_root(name) && of.fields.is_empty()));
    }

    /// Reports references to types that do not exist.
    fn check_references(&mut self) {
        let mut unknown = Vec::new();
        let is_known = |name: &str| self.types.contains_key(name) || is_built_in(name);
        for (name, of) in &self.types {
            let mut see = |coordinate: String, named: &str| {
                if !is_known(named) {
                    unknown.push((coordinate, named.to_owned()));
                }
            };
            for named in of.interfaces.iter().chain(&of.members) {
                see((*name).to_owned(), named);
            }
            for (field, value) in &of.fields {
                see(format!("{name}.{field}"), value.type_ref.name());
                for (argument, value) in &value.arguments {
                    see(format!("{name}.{field}({argument}:)"), value.type_ref.name());
                }
            }
            for (input, value) in &of.inputs {
                see(format!("{name}.{input}"), value.type_ref.name());
            }
        }
        for (coordinate, named) in unknown {
            self.errors.report(
                CompositionErrorKind::InvalidGraphql,
                &[self.service],
                &coordinate,
                format!(
                    "\"{coordinate}\" of \"{}\" refers to the type \"{named}\", which its schema doesn't have.",
                    self.service
                ),
                "define the type in that schema too, since each schema must be complete",
            );
        }
    }
}

/// Whether the type is a built-in scalar.
pub(super) fn is_built_in(name: &str) -> bool {
    matches!(name, "String" | "Int" | "Float" | "Boolean" | "ID")
}
