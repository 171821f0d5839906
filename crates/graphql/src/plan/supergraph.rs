//! Supergraphs with something left out, for the library that plans.

use graphql_tools::static_graphql::schema::{Definition, Document, TypeDefinition};

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
