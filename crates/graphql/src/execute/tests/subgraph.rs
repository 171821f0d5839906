//! The parts of a supergraph that belong to one of its subgraphs.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{self, OperationDefinition, SelectionSet};
use graphql_tools::static_graphql::schema::{
    Definition, Directive, Document, Field, ObjectType, Type, TypeDefinition, Value,
};

/// A subgraph.
pub(super) struct TestSubgraph {
    pub(super) name: String,
    /// The subgraph's own schema.
    pub(super) schema: Document,
    fields: HashMap<(String, String), TestSubgraphField>,
    keys: HashMap<String, Vec<SelectionSet>>,
    /// The interfaces and unions of each object type in the supergraph, and the type itself.
    kinds: HashMap<String, Vec<String>>,
    /// The subgraph's object types, including interfaces that are objects in it.
    object_types: Vec<String>,
}

/// A field of a subgraph.
pub(super) struct TestSubgraphField {
    /// The type of the field or of its items.
    pub(super) type_name: String,
    pub(super) is_external: bool,
    pub(super) requires: Option<SelectionSet>,
    pub(super) provides: Option<SelectionSet>,
}

/// The definitions that every subgraph has for a gateway.
const FEDERATION_DEFINITIONS: &str = "scalar Int scalar Float scalar String scalar Boolean scalar ID
  directive @skip(if: Boolean!) on FIELD | FRAGMENT_SPREAD | INLINE_FRAGMENT
  directive @include(if: Boolean!) on FIELD | FRAGMENT_SPREAD | INLINE_FRAGMENT
  scalar _Any union _Entity = ENTITIES";
const ENTITIES_QUERY: &str = "type Query { _entities(representations: [_Any!]!): [_Entity]! }";

impl TestSubgraph {
    /// Returns the subgraphs of a supergraph by name.
    pub(super) fn from_supergraph(supergraph: &str) -> HashMap<String, Self> {
        let document =
            graphql_tools::parser::parse_schema::<String>(supergraph).expect("a supergraph").into_static();
        let graphs = type_definitions(&document).find_map(|of| match of {
            TypeDefinition::Enum(of) if of.name == "join__Graph" => Some(&of.values),
            _ => None,
        });
        let graphs = graphs.expect("graphs").iter().map(|value| {
            let name = string_argument(&value.directives[0], "name").expect("a name");
            (name.clone(), Self::from_graph(&document, &value.name, name))
        });
        graphs.collect()
    }

    fn from_graph(supergraph: &Document, graph: &str, name: String) -> Self {
        let mut service = Self {
            name,
            schema: Document { definitions: Vec::new() },
            fields: HashMap::new(),
            keys: HashMap::new(),
            kinds: abstract_types(supergraph),
            object_types: Vec::new(),
        };
        for definition in type_definitions(supergraph) {
            service.add_definition(definition, graph);
        }
        service.add_federation_definitions();
        service
    }

    /// Whether a type equals another type or is a member of it.
    pub(super) fn is_subtype(&self, ty: &str, other: &str) -> bool {
        ty == other || self.kinds.get(ty).is_some_and(|kinds| kinds.iter().any(|kind| kind == other))
    }

    pub(super) fn find_field(&self, ty: &str, name: &str) -> Option<&TestSubgraphField> {
        self.fields.get(&(ty.to_owned(), name.to_owned()))
    }

    /// Returns the subgraph's name for an object type of the supergraph; `None` if the subgraph does not have
    /// it.
    pub(super) fn object_type(&self, ty: &str) -> Option<&str> {
        self.object_types
            .iter()
            .find(|own| *own == ty)
            .or_else(|| self.object_types.iter().find(|own| self.is_subtype(ty, own)))
            .map(String::as_str)
    }

    /// Returns the keys by which entities of a type are fetched.
    pub(super) fn keys(&self, ty: &str) -> impl Iterator<Item = &SelectionSet> {
        self.keys.get(ty).into_iter().flatten()
    }

    /// Returns the object types of the supergraph that a type comprises.
    pub(super) fn possible_objects(&self, ty: &str) -> Vec<&str> {
        self.kinds.keys().map(String::as_str).filter(|object| self.is_subtype(object, ty)).collect()
    }

    fn add_definition(&mut self, definition: &TypeDefinition, graph: &str) {
        let of = |directives: &[Directive], name: &str| -> Vec<Directive> {
            directives
                .iter()
                .filter(|it| it.name == name && enum_argument(it, "graph").as_deref() == Some(graph))
                .cloned()
                .collect()
        };
        let mut definition = definition.clone();
        let (name, directives) = match &definition {
            TypeDefinition::Scalar(it) => (&it.name, &it.directives),
            TypeDefinition::Object(it) => (&it.name, &it.directives),
            TypeDefinition::Interface(it) => (&it.name, &it.directives),
            TypeDefinition::Union(it) => (&it.name, &it.directives),
            TypeDefinition::Enum(it) => (&it.name, &it.directives),
            TypeDefinition::InputObject(it) => (&it.name, &it.directives),
        };
        let name = name.clone();
        let joined = of(directives, "join__type");
        if joined.is_empty() {
            return;
        }
        for joined in &joined {
            if let (Some(key), false) =
                (string_argument(joined, "key"), has_boolean_argument(joined, "resolvable", false))
            {
                self.keys.entry(name.clone()).or_default().push(parse_selection(&key));
            }
        }
        let interfaces: Vec<String> = of(directives, "join__implements")
            .iter()
            .filter_map(|it| string_argument(it, "interface"))
            .collect();
        match &mut definition {
            TypeDefinition::Object(it) => {
                it.implements_interfaces = interfaces;
                it.fields = self.joined_fields(&name, &it.fields, graph);
                self.object_types.push(name);
            }
            TypeDefinition::Interface(it) => {
                it.implements_interfaces = interfaces;
                it.fields = self.joined_fields(&name, &it.fields, graph);
                if joined.iter().any(|joined| has_boolean_argument(joined, "isInterfaceObject", true)) {
                    let mut object = ObjectType::new(name.clone());
                    object.fields = std::mem::take(&mut it.fields);
                    definition = TypeDefinition::Object(object);
                    self.object_types.push(name);
                }
            }
            TypeDefinition::Union(it) => {
                it.types = of(&it.directives, "join__unionMember")
                    .iter()
                    .filter_map(|it| string_argument(it, "member"))
                    .collect();
            }
            TypeDefinition::Enum(it) => {
                it.values.retain(|value| !of(&value.directives, "join__enumValue").is_empty());
            }
            TypeDefinition::InputObject(it) => it.fields.retain(|field| {
                let joins = field.directives.iter().any(|it| it.name == "join__field");
                !joins || !of(&field.directives, "join__field").is_empty()
            }),
            TypeDefinition::Scalar(_) => {}
        }
        self.schema.definitions.push(Definition::TypeDefinition(definition));
    }

    /// Returns the fields of a type that the subgraph has.
    fn joined_fields(&mut self, ty: &str, fields: &[Field], graph: &str) -> Vec<Field> {
        let mut own = Vec::new();
        for field in fields {
            let mut joins = field.directives.iter().filter(|it| it.name == "join__field").peekable();
            let is_everywhere = joins.peek().is_none_or(|it| enum_argument(it, "graph").is_none());
            let joined = joins.find(|it| enum_argument(it, "graph").as_deref() == Some(graph));
            if joined.is_some_and(|it| has_boolean_argument(it, "usedOverridden", true))
                || (joined.is_none() && !is_everywhere)
            {
                continue;
            }
            let set =
                |name| joined.and_then(|it| string_argument(it, name)).map(|fields| parse_selection(&fields));
            let subgraph_field = TestSubgraphField {
                type_name: innermost_type(&field.field_type).to_owned(),
                is_external: joined.is_some_and(|it| has_boolean_argument(it, "external", true)),
                requires: set("requires"),
                provides: set("provides"),
            };
            self.fields.insert((ty.to_owned(), field.name.clone()), subgraph_field);
            let mut field = field.clone();
            if let Some(ty) = joined.and_then(|it| string_argument(it, "type")) {
                field.field_type = parse_type(&ty);
            }
            own.push(field);
        }
        own
    }

    fn add_federation_definitions(&mut self) {
        let mut entities: Vec<&str> = self
            .keys
            .keys()
            .map(String::as_str)
            .filter(|ty| self.object_types.iter().any(|own| own == ty))
            .collect();
        entities.push("Query");
        let text =
            format!("{} {ENTITIES_QUERY}", FEDERATION_DEFINITIONS.replace("ENTITIES", &entities.join(" | ")));
        let machinery = graphql_tools::parser::parse_schema::<String>(&text).expect("a schema").into_static();
        for definition in machinery.definitions {
            let root = self.schema.definitions.iter_mut().find_map(|known| match known {
                Definition::TypeDefinition(TypeDefinition::Object(known)) if known.name == "Query" => {
                    Some(known)
                }
                _ => None,
            });
            match (definition, root) {
                (Definition::TypeDefinition(TypeDefinition::Object(query)), Some(root)) => {
                    root.fields.extend(query.fields)
                }
                (definition, _) => self.schema.definitions.push(definition),
            }
        }
    }
}

fn type_definitions(document: &Document) -> impl Iterator<Item = &TypeDefinition> {
    document.definitions.iter().filter_map(|definition| match definition {
        Definition::TypeDefinition(of) => Some(of),
        _ => None,
    })
}

fn abstract_types(document: &Document) -> HashMap<String, Vec<String>> {
    let mut kinds: HashMap<String, Vec<String>> = HashMap::new();
    for of in type_definitions(document) {
        match of {
            TypeDefinition::Object(of) => {
                let kinds = kinds.entry(of.name.clone()).or_default();
                kinds.extend(of.implements_interfaces.iter().cloned());
            }
            TypeDefinition::Union(of) => {
                of.types.iter().for_each(|ty| kinds.entry(ty.clone()).or_default().push(of.name.clone()));
            }
            _ => {}
        }
    }
    kinds
}

fn parse_selection(fields: &str) -> SelectionSet {
    let document =
        graphql_tools::parser::parse_query::<String>(&format!("{{{fields}}}")).expect("fields").into_static();
    match document.definitions.into_iter().next() {
        Some(query::Definition::Operation(OperationDefinition::SelectionSet(set))) => set,
        other => panic!("{other:?}"),
    }
}

/// Parses a type reference.
fn parse_type(ty: &str) -> Type {
    let text = format!("type T {{ f: {ty} }}");
    let document = graphql_tools::parser::parse_schema::<String>(&text).expect("a type").into_static();
    match document.definitions.into_iter().next() {
        Some(Definition::TypeDefinition(TypeDefinition::Object(object))) => {
            object.fields[0].field_type.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn directive_argument<'d>(directive: &'d Directive, name: &str) -> Option<&'d Value> {
    directive.arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn string_argument(directive: &Directive, name: &str) -> Option<String> {
    match directive_argument(directive, name)? {
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn enum_argument(directive: &Directive, name: &str) -> Option<String> {
    match directive_argument(directive, name)? {
        Value::Enum(word) => Some(word.clone()),
        _ => None,
    }
}

fn has_boolean_argument(directive: &Directive, name: &str, value: bool) -> bool {
    directive_argument(directive, name) == Some(&Value::Boolean(value))
}

fn innermost_type(ty: &Type) -> &str {
    match ty {
        Type::NamedType(name) => name,
        Type::ListType(inner) | Type::NonNullType(inner) => innermost_type(inner),
    }
}
