//! Variants of the supergraph with some elements removed, for the planner library and for clients.

use std::collections::HashSet;

use graphql_tools::static_graphql::schema::{Definition, Document, TypeDefinition};

/// Removes the names of hidden types from the schema that clients see: the library removes the types
/// themselves, but not their names from unions and from implementing types.
pub(super) fn without_hidden_names(schema: &Document) -> Document {
    let mut shown = schema.clone();
    let names: HashSet<&str> = schema.definitions.iter().filter_map(type_name).collect();
    for definition in &mut shown.definitions {
        let Definition::TypeDefinition(definition) = definition else { continue };
        let named = match definition {
            TypeDefinition::Object(object) => &mut object.implements_interfaces,
            TypeDefinition::Interface(interface) => &mut interface.implements_interfaces,
            TypeDefinition::Union(union) => &mut union.types,
            _ => continue,
        };
        named.retain(|name| names.contains(name.as_str()));
    }
    shown
}

fn type_name<'s>(definition: &'s Definition<'static, String>) -> Option<&'s str> {
    match definition {
        Definition::TypeDefinition(definition) => Some(definition.name()),
        _ => None,
    }
}

/// Removes the mutations.
pub(super) fn without_mutations(supergraph: &mut Document) {
    let mut root = "Mutation".to_owned();
    for definition in &mut supergraph.definitions {
        let Definition::SchemaDefinition(schema) = definition else { continue };
        schema.mutation.take().into_iter().for_each(|name| root = name);
    }
    supergraph.definitions.retain(|definition| match definition {
        Definition::TypeDefinition(TypeDefinition::Object(object)) => object.name != root,
        _ => true,
    });
}

/// Returns the supergraph without its `isInterfaceObject` marks, or `None` if it has no such marks. It is a
/// fallback for fields of a single type of such an interface, if the library finds no path to them: the
/// library chooses the first path to the type, which requires the service itself to determine the type,
/// instead of the path through the services that can. Without the marks, that first path does not exist.
pub(super) fn without_interface_objects(supergraph: &Document) -> Option<Document> {
    let mut supergraph = supergraph.clone();
    let mut is_changed = false;
    for definition in &mut supergraph.definitions {
        let Definition::TypeDefinition(TypeDefinition::Interface(interface)) = definition else { continue };
        for directive in interface.directives.iter_mut().filter(|directive| directive.name == "join__type") {
            let before = directive.arguments.len();
            directive.arguments.retain(|(name, _)| name != "isInterfaceObject");
            is_changed |= directive.arguments.len() < before;
        }
    }
    is_changed.then_some(supergraph)
}
