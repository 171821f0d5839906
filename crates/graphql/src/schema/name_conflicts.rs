//! Resolution of name conflicts: the first service of the route keeps a name that several services use; for
//! later services it gets the service's name as a prefix.

use std::collections::{HashMap, HashSet};

use diagnostics::Diagnostic;

use super::diagnostic::document_warning;
use super::graphql_names;

use super::model::{MUTATION, ModelProtocol, ModelTypeShape, QUERY, ServiceModel};

/// Gives every type and every root field a unique name.
pub(super) fn resolve_name_conflicts(models: &mut [ServiceModel], findings: &mut Vec<Diagnostic>) {
    // Federated subgraphs share types by their own rules, and their names can't be used by other services.
    let federated = models.iter().filter(|model| matches!(model.protocol, ModelProtocol::Federated { .. }));
    let mut types: HashSet<String> =
        federated.clone().flat_map(|model| model.types.values()).map(|it| it.name.clone()).collect();
    let mut scalars: HashSet<String> = HashSet::new();
    let mut fields: HashMap<&str, HashSet<String>> = HashMap::new();
    for root in [QUERY, MUTATION] {
        let theirs =
            federated.clone().filter_map(|model| model.fields(root)).flat_map(|fields| fields.values());
        fields.insert(root, theirs.map(|field| field.name.clone()).collect());
    }
    for model in models.iter_mut().filter(|model| !matches!(model.protocol, ModelProtocol::Federated { .. }))
    {
        let service = model.service.clone();
        let mut note = |was: &str, name: &str, key: &str| {
            let message = format!("another service also has `{was}`: this one is called `{name}`");
            let hint = format!("to choose another name, write `types: {{ {key} }}` in the file of links");
            findings.push(document_warning(&service, was, message, hint));
        };
        for (key, it) in &mut model.types {
            if let Some(taken) = fields.get_mut(&**key) {
                for field in it.shape.fields_mut().into_iter().flatten().map(|(_, field)| field) {
                    if !taken.insert(field.name.clone()) {
                        let like = graphql_names::to_camel_case(&format!("{service} {}", field.name));
                        let name = graphql_names::unique_name(taken, &mut HashMap::new(), like);
                        note(
                            &field.name,
                            &name,
                            &format!("{key}: {{ fields: {{ {name}: {{ rename: … }} }} }}"),
                        );
                        field.name = name;
                    }
                }
                continue;
            }
            let is_scalar = matches!(it.shape, ModelTypeShape::Scalar);
            if is_scalar && scalars.contains(&it.name) {
                continue;
            }
            if !types.insert(it.name.clone()) {
                let like = graphql_names::valid_name(&(graphql_names::to_pascal_case(&service) + &it.name));
                let name = graphql_names::unique_name(&mut types, &mut HashMap::new(), like);
                note(&it.name, &name, &format!("{service}.{key}: {{ rename: … }}"));
                it.original_name.clone_from(&name);
                it.name = name;
            }
            if is_scalar {
                scalars.insert(it.name.clone());
            }
        }
    }
}
