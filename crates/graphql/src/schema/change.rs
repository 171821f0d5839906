//! The operator's changes to types and fields: names, descriptions and visibility.

use std::collections::{HashMap, HashSet};

use diagnostics::{DiagnosticLocation, Diagnostics, SourceDocument};
use json::pointer::append_step;
use services::config::did_you_mean;

use super::declaration::{FieldChange, SchemaDeclarations, TypeChange};
use super::diagnostic::SchemaErrorKind;
use super::graphql_names;
use super::model::{
    BUILT_IN_SCALARS, MUTATION, ModelField, ModelProtocol, ModelTypeShape, QUERY, ServiceModel,
};

/// The operator's changes to types, by model and key.
pub(super) type TypeChanges<'a> = HashMap<(usize, Box<str>), &'a TypeChange>;

/// The location of a change in the file of links.
fn change_location(parts: &[&str]) -> DiagnosticLocation {
    SourceDocument::Links.at(parts.iter().map(|part| append_step("", part)).collect::<String>())
}

/// Applies the changes. Changes to linked fields are applied when the links are added.
pub(super) fn apply_changes<'a>(
    models: &mut [ServiceModel],
    declarations: &'a SchemaDeclarations,
    mistakes: &mut Diagnostics,
) -> TypeChanges<'a> {
    let mut changes = TypeChanges::new();
    let mut of_fields: Vec<(usize, Box<str>, Box<str>, &FieldChange)> = Vec::new();
    for (name, change) in &declarations.types {
        let place = ["types", &**name];
        let found: Vec<(usize, Box<str>)> = if [QUERY, MUTATION].contains(&&**name) {
            if change.rename.is_some() || change.hide {
                mistakes.add(
                    SchemaErrorKind::Type,
                    change_location(&place),
                    format!("`{name}` can't be renamed or hidden"),
                    "change its `fields` instead",
                );
            }
            let with = models.iter().enumerate().filter(|(_, model)| model.types.contains_key(&**name));
            with.map(|(number, _)| (number, name.as_str().into())).collect()
        } else {
            match find_type(models, name) {
                Some(found) => vec![found],
                None => {
                    mistakes.add(
                        SchemaErrorKind::Type,
                        change_location(&place),
                        format!("there is no type `{name}`"),
                        type_name_hint(models, name),
                    );
                    continue;
                }
            }
        };
        let is_fixed = |number: &usize| matches!(models[*number].protocol, ModelProtocol::Federated { .. });
        if let Some((number, _)) =
            found.iter().find(|(number, _)| is_fixed(number)).filter(|_| found.len() == 1)
        {
            let message = format!(
                "`{}` is a federated subgraph, whose schema can't be changed here",
                models[*number].service
            );
            mistakes.add(
                SchemaErrorKind::Type,
                change_location(&place),
                message,
                "change it in the service itself",
            );
            continue;
        }
        for (field, change) in &change.fields {
            let mut known =
                found.iter().filter(|(number, _)| !is_fixed(number)).filter_map(|(number, key)| {
                    let (field, _) = models[*number].fields(key)?.iter().find(|(_, it)| it.name == *field)?;
                    Some((*number, key.clone(), field.clone()))
                });
            match known.next() {
                Some((number, key, field)) => of_fields.push((number, key, field, change)),
                None if will_be_linked(models, declarations, name, &found, field) => {}
                None if let Some(service) = federated_owner(models, &found, field) => {
                    let message = format!(
                        "`{name}.{field}` belongs to `{service}`, a federated subgraph: it can't be changed"
                    );
                    mistakes.add(
                        SchemaErrorKind::Type,
                        change_location(&["types", name, "fields", field]),
                        message,
                        "change it in the service itself",
                    );
                }
                None => {
                    let fields = found.iter().filter_map(|(number, key)| models[*number].fields(key));
                    let names: Vec<&str> = fields.flatten().map(|(_, field)| &*field.name).collect();
                    let message = format!("`{name}` has no field `{field}`");
                    let hint = did_you_mean(field, names.iter().copied());
                    let hint = hint.unwrap_or_else(|| "use one of its fields".to_owned());
                    mistakes.add(
                        SchemaErrorKind::Type,
                        change_location(&["types", name, "fields", field]),
                        message,
                        hint,
                    );
                }
            }
        }
        changes.extend(found.into_iter().map(|found| (found, change)));
    }
    for ((number, key), change) in &changes {
        let Some(it) = models[*number].types.get_mut(key) else { continue };
        if ![QUERY, MUTATION].contains(&&**key) {
            change.rename.iter().for_each(|name| it.name.clone_from(name));
            it.is_hidden |= change.hide;
        }
        change.description.iter().for_each(|text| it.description.clone_from(text));
    }
    for (number, key, field, change) in of_fields {
        let fields = models[number].types.get_mut(&key).and_then(|it| it.shape.fields_mut());
        fields
            .and_then(|fields| fields.get_mut(&field))
            .into_iter()
            .for_each(|field| change_field(field, change));
    }
    check_names(models, declarations, mistakes);
    changes
}

/// Changes a field.
pub(super) fn change_field(field: &mut ModelField, change: &FieldChange) {
    change.rename.iter().for_each(|name| field.name.clone_from(name));
    change.description.iter().for_each(|text| field.description.clone_from(text));
    field.is_hidden |= change.hide;
}

/// The type of this name: its name in the schema before changes, or `service.Type` with its name in the
/// service's document.
pub(super) fn find_type(models: &[ServiceModel], name: &str) -> Option<(usize, Box<str>)> {
    if let Some((service, own)) = name.rsplit_once('.') {
        let number = models.iter().position(|model| *model.service == *service)?;
        return models[number].types.contains_key(own).then(|| (number, own.into()));
    }
    let mut types = models
        .iter()
        .enumerate()
        .flat_map(|(number, model)| model.types.iter().map(move |(key, it)| (number, key, it)));
    types.find(|(_, _, it)| it.original_name == name).map(|(number, key, _)| (number, key.clone()))
}

/// A hint about an unknown type name.
pub(super) fn type_name_hint(models: &[ServiceModel], name: &str) -> String {
    let names = models.iter().flat_map(|model| model.types.values()).map(|it| &*it.original_name);
    did_you_mean(name, names).unwrap_or_else(|| "`orfa graphql schema` prints the types".to_owned())
}

/// The name of the federated subgraph that has this field.
fn federated_owner<'m>(
    models: &'m [ServiceModel],
    found: &[(usize, Box<str>)],
    field: &str,
) -> Option<&'m str> {
    let mut having = found.iter().map(|(number, key)| (&models[*number], key));
    let (model, _) = having.find(|(model, key)| {
        let is_fixed = matches!(model.protocol, ModelProtocol::Federated { .. });
        is_fixed && model.fields(key).is_some_and(|fields| fields.values().any(|it| it.name == field))
    })?;
    Some(&model.service)
}

/// Whether a link will add the field.
fn will_be_linked(
    models: &[ServiceModel],
    declarations: &SchemaDeclarations,
    name: &str,
    found: &[(usize, Box<str>)],
    field: &str,
) -> bool {
    declarations.links.contains_key(&format!("{name}.{field}"))
        || found.iter().any(|(number, key)| {
            models[*number].document_links.iter().any(|wish| wish.owner_key == *key && wish.name == field)
        })
}

/// Reports invalid and conflicting names.
fn check_names(models: &[ServiceModel], declarations: &SchemaDeclarations, mistakes: &mut Diagnostics) {
    let is_name = |name: &str| graphql_names::valid_name(name) == name;
    for (name, change) in &declarations.types {
        let fields =
            change.fields.iter().filter_map(|(field, it)| Some((Some(field), it.rename.as_deref()?)));
        for (field, renamed) in change.rename.iter().map(|renamed| (None, &**renamed)).chain(fields) {
            if !is_name(renamed) {
                let location = match field {
                    Some(field) => change_location(&["types", name, "fields", field, "rename"]),
                    None => change_location(&["types", name, "rename"]),
                };
                let hint =
                    "a name consists of letters, digits and `_`, and does not begin with a digit or `__`";
                mistakes.add(
                    SchemaErrorKind::Type,
                    location,
                    format!("`{renamed}` is not a valid name"),
                    hint,
                );
            }
        }
    }
    let type_renamed = |name: &str| {
        let change = declarations.types.iter().find(|(_, it)| it.rename.as_deref() == Some(name));
        change.map_or_else(
            || change_location(&["types"]),
            |(key, _)| change_location(&["types", key, "rename"]),
        )
    };
    let field_renamed = |of: (&str, &str), name: &str| {
        let is_of_it = |key: &str| key == of.1 || key.rsplit_once('.').is_some_and(|(_, own)| own == of.0);
        let mut fields = declarations.types.iter().filter(|(key, _)| is_of_it(key)).flat_map(|(key, it)| {
            it.fields.iter().map(move |(field, it)| (key, field, it.rename.as_deref()))
        });
        let change = fields.find(|(_, _, renamed)| *renamed == Some(name));
        change.map_or_else(
            || change_location(&["types"]),
            |(key, field, _)| change_location(&["types", key, "fields", field, "rename"]),
        )
    };
    let mut types: HashMap<&str, bool> = BUILT_IN_SCALARS.iter().map(|name| (*name, true)).collect();
    let mut roots: HashSet<(&str, &str)> = HashSet::new();
    for model in models.iter().filter(|model| !matches!(model.protocol, ModelProtocol::Federated { .. })) {
        for (key, it) in &model.types {
            let is_scalar = matches!(it.shape, ModelTypeShape::Scalar);
            let is_root = [QUERY, MUTATION].contains(&&**key);
            let is_taken = match types.insert(&it.name, is_scalar) {
                Some(was_scalar) => !(was_scalar && is_scalar),
                None => false,
            };
            if is_taken && !is_root {
                let message =
                    format!("two types would be called `{}`; one belongs to `{}`", it.name, model.service);
                mistakes.add(
                    SchemaErrorKind::Type,
                    type_renamed(&it.name),
                    message,
                    "`rename` one of them to something else",
                );
            }
            let mut siblings = HashSet::new();
            for field in it.shape.fields().into_iter().flat_map(|fields| fields.values()) {
                let is_new =
                    if is_root { roots.insert((key, &field.name)) } else { siblings.insert(&*field.name) };
                if !is_new {
                    let message = format!("two fields of `{}` would be called `{}`", it.name, field.name);
                    mistakes.add(
                        SchemaErrorKind::Type,
                        field_renamed((key, &it.original_name), &field.name),
                        message,
                        "`rename` one of them to something else",
                    );
                }
            }
            if !is_root
                && it.shape.fields().is_some_and(|fields| fields.values().all(|field| field.is_hidden))
            {
                let message = format!("all fields of `{}` are hidden", it.name);
                mistakes.add(
                    SchemaErrorKind::Type,
                    change_location(&["types"]),
                    message,
                    "keep one visible, or hide the type itself",
                );
            }
            let objects = model.possible_objects(key);
            if !it.is_hidden && !objects.is_empty() && objects.iter().all(|key| model.is_hidden(key)) {
                let message = format!("all possible types of `{}` are hidden", it.name);
                mistakes.add(
                    SchemaErrorKind::Type,
                    change_location(&["types"]),
                    message,
                    "keep one visible, or hide the type itself",
                );
            }
        }
    }
}
