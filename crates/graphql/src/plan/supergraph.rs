//! Supergraphs with something left out, for the library that plans, and for clients.

use std::collections::HashSet;

use graphql_tools::static_graphql::schema::{Definition, Document, TypeDefinition};

/// Leaves out of the schema that clients see the names of types that it does not have: the library leaves the hidden types
/// out, and not that they are members of unions or interfaces of others.
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

/// Leaves the changes out.
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

/// The same without the marks of interfaces that are objects to a service; nothing if it has none. It is planned by where
/// the library finds no way to fields of one type of such an interface: it takes the first way to the type, by which the
/// service itself would have to tell it, and not the one through the services that know the types. Without that way it
/// takes this one.
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
