//! Links: fields whose values come from other calls, declared by services' documents and by the operator.
//!
//! A link is a field of the called service. It belongs to a stub of the type that gets the field; the stub's
//! key consists of the object's fields that the calls need. If the type belongs to the same service, the link
//! is a field of the type itself. The planner thus treats the type as an entity, and all links are executed
//! in the same way.

mod call;

use diagnostics::{Diagnostic, Diagnostics, SourceDocument};
use indexmap::{IndexMap, IndexSet};
use json::pointer::append_step;
use services::config::did_you_mean;

use super::change::{TypeChanges, change_field, find_type, type_name_hint};
use super::declaration::{LinkDeclaration, SchemaDeclarations};
use super::diagnostic::{SchemaErrorKind, document_warning};
use super::graphql_names;
use super::model::{
    DocumentLink, KeyedCalls, LinkParameter, MUTATION, ModelField, ModelFieldSource, ModelFields,
    ModelTypeRef, ModelTypeShape, QUERY, ServiceModel, StubType,
};
use crate::subgraph::{BatchStrategy, BoundCall, ItemMatch, LinkedField, ParameterSource};
use call::ResolvedCall;

/// The value of a call's parameter: a field of the object, or a constant.
#[derive(Clone, Debug)]
enum ParameterFilling {
    Field(Box<str>),
    Fixed(serde_json::Value),
}

/// A mistake in a link: the member that it is in, the message, and the hint.
type LinkError = (&'static str, String, String);

/// The type that gets a field.
#[derive(Clone, Copy)]
struct LinkedType<'a> {
    number: usize,
    key: &'a str,
    name: &'a str,
    fields: &'a ModelFields,
}

/// A resolved link.
struct ResolvedLink {
    target: usize,
    /// The fields of the object, by their keys.
    needed_fields: IndexSet<Box<str>>,
    field: ModelField,
}

/// Adds the links that the operator declares.
pub(super) fn add_declared_links(
    models: &mut [ServiceModel],
    links: &SchemaDeclarations,
    changes: &TypeChanges<'_>,
    mistakes: &mut Diagnostics,
) {
    for (name, declaration) in &links.links {
        let place = append_step("/links", name);
        if let Err((member, message, hint)) = add_declared_link(models, name, declaration, changes) {
            mistakes.add(SchemaErrorKind::Link, SourceDocument::Links.at(place + member), message, hint);
        }
    }
}

/// Adds the links in the services' documents.
pub(super) fn add_document_links(
    models: &mut [ServiceModel],
    changes: &TypeChanges<'_>,
    findings: &mut Vec<Diagnostic>,
) {
    for number in 0..models.len() {
        for wish in std::mem::take(&mut models[number].document_links) {
            let understood = resolve_document_link(models, number, &wish);
            let result = understood.and_then(|mut understood| {
                let key = (number, wish.owner_key.clone());
                let change = changes.get(&key).and_then(|change| change.fields.get(&wish.name));
                change.into_iter().for_each(|change| change_field(&mut understood.field, change));
                add_linked_field(models, number, &wish.owner_key, understood)
            });
            if let Err(why) = result {
                let message = format!("{why}: the link is left out");
                findings.push(document_warning(&models[number].service, wish.location, message, ""));
            }
        }
    }
}

/// Declares the keys of stubs on the types themselves.
pub(super) fn declare_keys(models: &mut [ServiceModel]) {
    for number in 0..models.len() {
        let stubs = models[number].stubs.iter();
        let keys: Vec<_> =
            stubs.map(|stub| (stub.model, stub.type_key.clone(), stub.needed_fields.clone())).collect();
        for (model, key, needs) in keys {
            let Some(it) = models[model].types.get_mut(&key) else { continue };
            if !it.keys.contains(&needs) {
                it.keys.push(needs);
            }
        }
    }
}

fn add_declared_link(
    models: &mut [ServiceModel],
    name: &str,
    declaration: &LinkDeclaration,
    changes: &TypeChanges<'_>,
) -> Result<(), LinkError> {
    let at = |message: String, hint: String| ("", message, hint);
    // Since `service.Type` may precede the field, the whole name is first tried as a type.
    let (type_name, field_name) = match (find_type(models, name), name.rsplit_once('.')) {
        (Some(_), _) | (None, None) => (name, None),
        (None, Some((type_name, field))) => (type_name, Some(field)),
    };
    let Some((number, key)) = find_type(models, type_name) else {
        return Err(at(format!("there is no type `{type_name}`"), type_name_hint(models, type_name)));
    };
    let Some(it) = models[number].types.get(&key) else { return Ok(()) };
    let ModelTypeShape::Object { fields, .. } = &it.shape else {
        let hint = "only object types can get linked fields".to_owned();
        return Err(at(format!("`{type_name}` is not an object type"), hint));
    };
    if [QUERY, MUTATION].contains(&&*key) {
        let hint = "its fields are operations of services".to_owned();
        return Err(at(format!("`{type_name}` can't get linked fields"), hint));
    }
    let object = LinkedType { number, key: &key, name: type_name, fields };
    let Some(field_name) = field_name else {
        let (target, calls) = resolve_keyed_calls(models, object, declaration)?;
        models[target].keyed_calls.push(calls);
        return Ok(());
    };
    if graphql_names::valid_name(field_name) != field_name {
        let hint = "a name consists of letters, digits and `_`".to_owned();
        return Err(at(format!("`{field_name}` is not a valid name"), hint));
    }
    let mut understood = resolve_declared_link(models, object, declaration)?;
    understood.field.name = field_name.to_owned();
    understood.field.description.clone_from(&declaration.description);
    let change = changes.get(&(number, key.clone())).and_then(|change| change.fields.get(field_name));
    change.into_iter().for_each(|change| change_field(&mut understood.field, change));
    add_linked_field(models, number, &key, understood)
        .map_err(|message| at(message, "rename the link or the existing field".to_owned()))
}

/// Adds a field to the service that its calls go to. A hidden type gets no field, since the field would
/// reveal it in the called service.
fn add_linked_field(
    models: &mut [ServiceModel],
    number: usize,
    key: &str,
    understood: ResolvedLink,
) -> Result<(), String> {
    if models[number].is_hidden(key) {
        return Ok(());
    }
    let ResolvedLink { target, needed_fields: needs, field } = understood;
    let name = &field.name;
    let is_of_it = |stub: &&StubType| stub.model == number && *stub.type_key == *key;
    let known =
        models.iter().flat_map(|model| model.stubs.iter().filter(is_of_it)).flat_map(|stub| &stub.fields);
    let own = models[number].fields(key).into_iter().flat_map(ModelFields::values);
    if own.chain(known).any(|other| other.name == *name) {
        return Err(format!("`{}` has a field `{name}` already", models[number].type_name(key)));
    }
    if target == number {
        let fields = models[number].types.get_mut(key).and_then(|it| it.shape.fields_mut());
        fields.into_iter().for_each(|fields| drop(fields.insert(field.name.as_str().into(), field.clone())));
        return Ok(());
    }
    match models[target].stubs.iter().position(|stub| is_of_it(&stub)) {
        Some(at) => {
            let stub = &mut models[target].stubs[at];
            stub.needed_fields.extend(needs);
            stub.fields.push(field);
        }
        None => {
            models[target].stubs.push(StubType {
                model: number,
                type_key: key.into(),
                needed_fields: needs,
                fields: vec![field],
            });
        }
    }
    Ok(())
}

/// Resolves a declared link.
fn resolve_declared_link(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    declaration: &LinkDeclaration,
) -> Result<ResolvedLink, LinkError> {
    let call = call::resolve_call(models, object, declaration)?;
    let keyed: IndexSet<Box<str>> = call.key_parameters().map(|(_, field)| field.clone()).collect();
    let Some(on) = &declaration.on else {
        if declaration.one {
            let hint = "remove it: without `on`, the field is the response of the call".to_owned();
            return Err(("/one", "`one` requires `on`".to_owned(), hint));
        }
        if keyed.is_empty() {
            let hint = format!(
                "insert `{{field}}` for a field of `{}`, or match items with objects by `on`",
                object.name
            );
            return Err((call.member, "the call is the same for every object".to_owned(), hint));
        }
        let mut field = call.linked_field(models, call.type_ref.nullable().clone());
        field.arguments = call.unfilled_arguments(models);
        field.source = ModelFieldSource::Link(LinkedField {
            needed_fields: schema_field_names(object, &keyed),
            strategy: BatchStrategy::PerObject(call.bind_call(models, object)),
        });
        return Ok(ResolvedLink { target: call.target, needed_fields: keyed, field });
    };
    let (batch_strategy, item, needed) = resolve_batch_strategy(models, object, &call, on, declaration)?;
    let of = if declaration.one { item } else { ModelTypeRef::list(item.required()) };
    let mut field = call.linked_field(models, of);
    let needs = IndexSet::from([needed]);
    field.source = ModelFieldSource::Link(LinkedField {
        needed_fields: schema_field_names(object, &needs),
        strategy: batch_strategy,
    });
    Ok(ResolvedLink { target: call.target, needed_fields: needs, field })
}

/// Resolves how the objects of a type are fetched.
fn resolve_keyed_calls(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    declaration: &LinkDeclaration,
) -> Result<(usize, KeyedCalls), LinkError> {
    let call = call::resolve_call(models, object, declaration)?;
    if call.target != object.number {
        let hint = format!("call `{}`, which owns the type", models[object.number].service);
        return Err((call.member, format!("`{}` belongs to another service", object.name), hint));
    }
    let (batch_strategy, item, needs) = match &declaration.on {
        Some(on) => {
            let (how, item, needed) = resolve_batch_strategy(
                models,
                object,
                &call,
                on,
                &LinkDeclaration { one: true, ..declaration.clone() },
            )?;
            (how, item, IndexSet::from([needed]))
        }
        None => {
            let needs: IndexSet<Box<str>> = call.key_parameters().map(|(_, field)| field.clone()).collect();
            (
                BatchStrategy::PerObject(call.bind_call(models, object)),
                call.type_ref.nullable().clone(),
                needs,
            )
        }
    };
    if item.nullable() != &ModelTypeRef::named(object.key) || needs.is_empty() {
        let hint = format!("request a `{}` by its key: `get: service/path/{{id}}`", object.name);
        return Err((call.member, format!("the call does not return `{}` by a key", object.name), hint));
    }
    Ok((
        call.target,
        KeyedCalls { type_key: object.key.into(), needed_fields: needs, strategy: batch_strategy },
    ))
}

/// Resolves how items are fetched for many objects at once; also returns the type of the items, and the
/// object's field to compare.
fn resolve_batch_strategy(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    call: &ResolvedCall,
    on: &str,
    declaration: &LinkDeclaration,
) -> Result<(BatchStrategy, ModelTypeRef, Box<str>), LinkError> {
    let wrong = |message: String, hint: String| Err(("/on", message, hint));
    let Some((own, theirs)) = on.split_once('=').map(|(own, theirs)| (own.trim(), theirs.trim())) else {
        let hint = "write `on: id = buyer_id`: a field of the object, and one of the items".to_owned();
        return wrong(format!("`{on}` is not a pair of fields"), hint);
    };
    let Some((own_key, own_field)) = call::find_field(object, own) else {
        let known = object.fields.values().map(|field| &*field.member);
        let hint = did_you_mean(own, known).unwrap_or_else(|| "the object's field comes first".to_owned());
        return wrong(format!("`{}` has no field `{own}`", object.name), hint);
    };
    let Some(item) = call.type_ref.items() else {
        let hint = "remove `on` to make a call for each object, whose response is the field's value; \
                    or give the list's location by `at`"
            .to_owned();
        return wrong("the call does not return a list".to_owned(), hint);
    };
    let model = &models[call.target];
    let fields = model.fields(item.key()).filter(|_| item.items().is_none());
    let Some(fields) = fields else {
        return wrong("the items of the list are not objects".to_owned(), "remove `on`".to_owned());
    };
    let their = fields.values().find(|field| *field.member == *theirs || field.name == theirs);
    let Some(their) = their else {
        let known = fields.values().map(|field| &*field.member);
        let hint = did_you_mean(theirs, known).unwrap_or_else(|| "the items' field comes second".to_owned());
        return wrong(format!("`{}` has no field `{theirs}`", model.type_name(item.key())), hint);
    };
    let kinds = (
        call::comparable_kind(&models[object.number], &own_field.type_ref),
        call::comparable_kind(model, &their.type_ref),
    );
    if let (Some(own_kind), Some(their_kind)) = kinds
        && own_kind != their_kind
        && !declaration.text
    {
        let message = format!("`{own}` is {own_kind}, and `{theirs}` {their_kind}: they are never equal");
        return wrong(message, "add `text: true` to treat 7 and \"7\" as equal".to_owned());
    }
    if kinds.1 == Some("an object") || kinds.0 == Some("an object") {
        return wrong(
            "objects can't be compared".to_owned(),
            "compare two fields with scalar values".to_owned(),
        );
    }
    let joined = ItemMatch {
        key: own_field.name.as_str().into(),
        item: their.member.clone(),
        is_many: !declaration.one,
        is_text: declaration.text,
        batch: declaration.batch,
    };
    if let Some((name, _)) =
        call.unfilled_arguments(models).iter().find(|(_, it)| call::is_required_argument(it))
    {
        let hint = "one call is made for all objects, so specify its value".to_owned();
        return Err((call.member, format!("the required argument `{name}` has no value"), hint));
    }
    let bound_call = call.bind_call(models, object);
    let keyed: Vec<(&str, &Box<str>)> = call.key_parameters().collect();
    let strategy = match keyed.as_slice() {
        [] => BatchStrategy::WholeList(bound_call, joined),
        [(argument, field)] if call.takes_list(models, argument) && ***field == *own_key => {
            BatchStrategy::KeyBatches(bound_call, joined)
        }
        [(argument, field)] if call.takes_list(models, argument) => {
            return wrong(
                format!("the call uses `{field}`, but `on` compares `{own}`"),
                "use the same field in both".to_owned(),
            );
        }
        [(argument, _)] => {
            let hint = "remove `on` to make a call for each object, or fill a parameter that takes a list";
            return Err((
                call.member,
                format!("`{argument}` takes one value, not the values of all objects"),
                hint.to_owned(),
            ));
        }
        _ => {
            return Err((
                call.member,
                "with `on`, at most one parameter can be filled".to_owned(),
                "remove `on` to make a call for each object".to_owned(),
            ));
        }
    };
    Ok((strategy, item.nullable().clone(), own_key.into()))
}

/// The schema's names of fields.
fn schema_field_names(object: LinkedType<'_>, keys: &IndexSet<Box<str>>) -> Vec<Box<str>> {
    keys.iter().filter_map(|key| object.fields.get(key)).map(|field| field.name.as_str().into()).collect()
}

/// Resolves a link of a service's document.
fn resolve_document_link(
    models: &[ServiceModel],
    number: usize,
    wish: &DocumentLink,
) -> Result<ResolvedLink, String> {
    let model = &models[number];
    let Some(ModelTypeShape::Object { fields, .. }) = model.types.get(&wish.owner_key).map(|it| &it.shape)
    else {
        return Err("the response is not an object".to_owned());
    };
    let object = LinkedType { number, key: &wish.owner_key, name: model.type_name(&wish.owner_key), fields };
    let root = model
        .fields(QUERY)
        .and_then(|fields| fields.get(&wish.target))
        .ok_or("the operation does not exist")?;
    let mut filled = IndexMap::new();
    for (name, filling) in &wish.parameters {
        let argument = root.arguments.iter().find(|(_, it)| it.member == *name);
        let (argument, _) = argument.ok_or_else(|| format!("the operation has no parameter `{name}`"))?;
        filled.insert(
            argument.clone(),
            match filling {
                LinkParameter::Fixed(value) => ParameterFilling::Fixed(value.clone()),
                LinkParameter::Member(member) => {
                    let known = call::find_field(object, member);
                    let (key, _) = known.ok_or_else(|| format!("`{}` has no `{member}`", object.name))?;
                    ParameterFilling::Field(key.into())
                }
            },
        );
    }
    let call = ResolvedCall {
        target: number,
        root_key: wish.target.clone(),
        fillings: filled,
        type_ref: root.type_ref.clone(),
        response_path: None,
        member: "",
    };
    let needs: IndexSet<Box<str>> = call.key_parameters().map(|(_, field)| field.clone()).collect();
    if needs.is_empty() {
        return Err("the call uses no field of the object".to_owned());
    }
    let mut field = call.linked_field(models, call.type_ref.nullable().clone());
    field.name.clone_from(&wish.name);
    field.description.clone_from(&wish.description);
    field.arguments = call.unfilled_arguments(models);
    field.source = ModelFieldSource::Link(LinkedField {
        needed_fields: schema_field_names(object, &needs),
        strategy: BatchStrategy::PerObject(call.bind_call(models, object)),
    });
    Ok(ResolvedLink { target: number, needed_fields: needs, field })
}
