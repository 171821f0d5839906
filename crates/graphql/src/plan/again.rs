//! A second planner for what the first finds no way to: fields of one type of an interface that is an object to the service
//! where the way begins. The library takes the first way to the type, by which the service itself would have to tell it,
//! and not the one through the services that know the types; without that way it takes this one.

use graphql_tools::static_graphql::schema::{Definition, Document, TypeDefinition};

/// The supergraph without the mark of such interfaces; nothing if it has none.
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
