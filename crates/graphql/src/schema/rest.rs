//! A REST service as a model: its operations become fields of `Query` and `Mutation`, its schemas become
//! types.
//!
//! Parts without an equivalent in GraphQL (files, forms, cookies) are left out with a warning.

mod flat;
mod types;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diagnostics::Diagnostic;
use http::Method;
use json::pointer::{escape_step, unescape_step};
use openapi::{
    BodyContent, LinkTarget, OpenApiDocument, OpenApiOperation as Described, OpenApiSchema,
    OperationParameter as Taken, ParameterLocation,
};
use serde_json::Value;

use super::graphql_names;

use super::model::{
    DocumentLink, LinkParameter, MUTATION, ModelField, ModelFieldSource, ModelFields, ModelProtocol,
    ModelTypeRef, QUERY, ServiceModel,
};
use crate::subgraph::{ParameterSource, RestOperation, RestParameter};
use types::{SchemaLocation, TypeBuilder, ValueDirection};

/// Headers that never become parameters, even if a document declares them.
const EXCLUDED_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// Builds the model of a service, with warnings about parts of its document that cannot be mapped.
pub(super) fn build_model(service: &Arc<str>, document: &OpenApiDocument) -> (ServiceModel, Vec<Diagnostic>) {
    let mut types = TypeBuilder::new(document, ServiceModel::new(service, ModelProtocol::Rest));
    let names = operation_names(document, &mut types);
    for (operation, name) in document.operations.iter().zip(&names) {
        let Some(name) = name else { continue };
        let at = operation_pointer(document, operation);
        match convert_operation(&mut types, operation, name, &at) {
            Ok(field) => {
                let root = if operation.method == "GET" { QUERY } else { MUTATION };
                let fields = types.model.object_fields_mut(root);
                fields
                    .into_iter()
                    .for_each(|fields| drop(fields.insert(name.as_str().into(), field.clone())));
            }
            Err(why) => types.add_warning(&at, format!("{} {}: left out", operation.method, why), ""),
        }
    }
    collect_links(document, &names, &mut types);
    types.build_pending_fields();
    (types.model, types.warnings)
}

fn operation_pointer(document: &OpenApiDocument, operation: &Described) -> String {
    let path = escape_step(document.document_path(&operation.path));
    format!("/paths/{path}/{}", operation.method.to_ascii_lowercase())
}

/// The name of each operation; `None` for operations that do not become fields. The names are independent of
/// the order in the document: operations that would get the same name are named by method and path.
fn operation_names(document: &OpenApiDocument, types: &mut TypeBuilder<'_>) -> Vec<Option<String>> {
    let of_path = |operation: &Described| {
        let path = document.document_path(&operation.path);
        let parts = path.split('/').map(|part| match part.split_once('{') {
            Some((before, parameter)) => format!("{before} by {}", parameter.replace(['{', '}'], " ")),
            None => part.to_owned(),
        });
        graphql_names::to_camel_case(&format!(
            "{} {}",
            operation.method.to_ascii_lowercase(),
            parts.collect::<Vec<_>>().join(" ")
        ))
    };
    let of_id = |operation: &Described| {
        let id =
            operation.id.as_deref().filter(|id| id.contains(|letter: char| letter.is_ascii_alphanumeric()));
        id.map(graphql_names::to_camel_case)
    };
    let mut wanted: HashMap<String, usize> = HashMap::new();
    for name in document.operations.iter().filter_map(of_id) {
        *wanted.entry(name).or_default() += 1;
    }
    let (mut taken, mut next) = (HashSet::new(), HashMap::new());
    let mut names = Vec::with_capacity(document.operations.len());
    for operation in &document.operations {
        if operation.method == "HEAD" {
            names.push(None);
            continue;
        }
        let by_id = of_id(operation);
        let name = match by_id {
            Some(name) if wanted.get(&name) == Some(&1) => name,
            Some(name) => {
                let by_path = of_path(operation);
                let message = format!("several operations would be called `{name}`: this one is `{by_path}`");
                types.add_warning(
                    &operation_pointer(document, operation),
                    message,
                    "give each a unique `operationId`",
                );
                by_path
            }
            None => of_path(operation),
        };
        names.push(Some(graphql_names::unique_name(&mut taken, &mut next, name)));
    }
    names
}

/// Converts an operation to a field. The error explains why this is impossible.
fn convert_operation<'a>(
    types: &mut TypeBuilder<'a>,
    operation: &'a Described,
    name: &str,
    at: &str,
) -> Result<ModelField, String> {
    let type_name = graphql_names::to_pascal_case(name);
    let answer = response_type(types, operation, &type_name, at)?;
    let mut arguments = ModelFields::new();
    let mut parameters = Vec::new();
    let (mut taken, mut next) = (HashSet::new(), HashMap::new());
    for (number, taking) in operation.parameters.iter().enumerate() {
        let pointer = format!("{at}/parameters/{number}");
        if taking.place == ParameterLocation::Header
            && EXCLUDED_HEADERS.contains(&&*taking.name.to_ascii_lowercase())
        {
            continue;
        }
        if taking.place == ParameterLocation::Cookie {
            types.add_warning(
                &pointer,
                format!("the cookie parameter `{}` is not supported: left out", taking.name),
                "",
            );
            continue;
        }
        let argument =
            graphql_names::unique_name(&mut taken, &mut next, graphql_names::valid_name(&taking.name));
        let like = format!("{type_name}{}", graphql_names::to_pascal_case(&taking.name));
        let at = SchemaLocation::new(format!("{pointer}/schema"), like);
        let Some(of) = parameter_type(types, taking, &at) else {
            if taking.is_required {
                return Err(format!("requires an object in its {} (`{}`)", taking.place.name(), taking.name));
            }
            types.add_warning(
                &pointer,
                format!("`{}` would be an object in the URL: left out", taking.name),
                "",
            );
            continue;
        };
        let mut field = ModelField::new(&argument, &taking.name, of);
        field.description.clone_from(&taking.description);
        arguments.insert(argument.as_str().into(), field);
        parameters.push(RestParameter {
            name: taking.name.as_str().into(),
            location: taking.place,
            is_required: taking.is_required,
            is_repeated: taking.is_repeated,
            source: ParameterSource::Argument(argument.into()),
        });
    }
    let body = match &operation.body {
        Some((BodyContent::Json(schema), is_required)) => {
            let argument = graphql_names::unique_name(&mut taken, &mut next, "input".to_owned());
            let like = SchemaLocation::new(format!("{at}/requestBody"), type_name);
            let of = types.field_type(schema, *is_required, ValueDirection::Input, &like);
            arguments.insert(argument.as_str().into(), ModelField::new(&argument, &argument, of));
            Some(argument.into())
        }
        Some((BodyContent::Empty, _)) | None => None,
        Some((_, true)) => return Err("sends a file, a form or a text".to_owned()),
        Some((_, false)) => {
            types.add_warning(
                at,
                "a body other than JSON is not supported: the operation is called without a body",
                "",
            );
            None
        }
    };
    let mut field = ModelField::new(name, name, answer.type_ref);
    field.description =
        [&operation.summary, &operation.description].map(|text| text.trim()).join("\n\n").trim().to_owned();
    field.deprecated = operation.is_deprecated.then(|| "Deprecated by the service.".to_owned());
    field.arguments = arguments;
    field.source = ModelFieldSource::Operation(Arc::new(RestOperation {
        method: operation.method.parse().unwrap_or(Method::GET),
        path: operation.path.as_str().into(),
        parameters,
        body,
        response_path: json::JsonPath::default(),
        is_text: answer.is_text,
        is_empty: answer.is_empty,
    }));
    Ok(field)
}

/// The type of a parameter; `None` if it would be an object.
fn parameter_type<'a>(
    types: &mut TypeBuilder<'a>,
    parameter: &'a Taken,
    at: &SchemaLocation,
) -> Option<ModelTypeRef> {
    let of = match &parameter.schema {
        // A text or a number, unchanged.
        OpenApiSchema::Unknown => ModelTypeRef::named("String"),
        schema => types.parameter_type(schema, at)?,
    };
    Some(if parameter.is_required { of.required() } else { of })
}

struct OperationResponse {
    type_ref: ModelTypeRef,
    is_text: bool,
    is_empty: bool,
}

/// The type of an operation's response. It is always nullable, since the response may be missing or the call
/// may fail.
fn response_type<'a>(
    types: &mut TypeBuilder<'a>,
    operation: &'a Described,
    type_name: &str,
    at: &str,
) -> Result<OperationResponse, String> {
    let mut schemas = operation.answers.iter().filter_map(|content| match content {
        BodyContent::Json(schema) => Some(schema),
        _ => None,
    });
    let at = format!("{at}/responses");
    if let Some(schema) = schemas.next() {
        if schemas.next().is_some() {
            types.add_warning(&at, "there are several success responses: only the first is used", "");
        }
        let (of, _) = types.value_type(
            schema,
            ValueDirection::Output,
            &SchemaLocation::new(at, format!("{type_name}Answer")),
        );
        return Ok(OperationResponse { type_ref: of, is_text: false, is_empty: false });
    }
    let has = |is: fn(&BodyContent) -> bool| operation.answers.iter().any(is);
    if has(|content| matches!(content, BodyContent::Text)) {
        Ok(OperationResponse { type_ref: ModelTypeRef::named("String"), is_text: true, is_empty: false })
    } else if has(|content| matches!(content, BodyContent::Empty)) {
        Ok(OperationResponse { type_ref: ModelTypeRef::named("Boolean"), is_text: false, is_empty: true })
    } else {
        Err("returns a file".to_owned())
    }
}

/// Collects the links of the document that can become fields of objects.
fn collect_links(document: &OpenApiDocument, names: &[Option<String>], types: &mut TypeBuilder<'_>) {
    let find = |target: &LinkTarget| {
        let is_target = |operation: &Described| match target {
            LinkTarget::Id(id) => operation.id.as_ref() == Some(id),
            LinkTarget::Path(method, path) => {
                operation.method == method && document.document_path(&operation.path) == path
            }
        };
        let number = document.operations.iter().position(is_target)?;
        names[number].clone().filter(|_| document.operations[number].method == "GET")
    };
    for (operation, name) in document.operations.iter().zip(names) {
        let root = if operation.method == "GET" { QUERY } else { MUTATION };
        let model_field = name.as_deref().and_then(|name| types.model.fields(root)?.get(name));
        let Some(on) = model_field.map(|field| Box::<str>::from(field.type_ref.key())) else { continue };
        for link in &operation.links {
            let wish = match (find(&link.target), link.has_body) {
                (Some(target), false) => link_parameters(link).map(|filled| DocumentLink {
                    location: link.pointer.clone(),
                    owner_key: on.clone(),
                    name: graphql_names::to_camel_case(&link.name),
                    description: link.description.clone(),
                    target: target.into(),
                    parameters: filled,
                }),
                (_, true) => Err("the link would send a body".to_owned()),
                (None, _) => Err("the link's target is not a field of `Query`".to_owned()),
            };
            match wish {
                Ok(wish)
                    if !types
                        .model
                        .document_links
                        .iter()
                        .any(|document_link| document_link.is_same_field(&wish)) =>
                {
                    types.model.document_links.push(wish);
                }
                Ok(_) => {}
                Err(why) => types.add_warning(&link.pointer, format!("{why}: left out"), ""),
            }
        }
    }
}

/// The values of a link's parameters.
fn link_parameters(link: &openapi::ResponseLink) -> Result<Vec<(Box<str>, LinkParameter)>, String> {
    let filled = link.parameters.iter().map(|(name, value)| {
        // `path.id` includes the parameter's location.
        let place = name.split_once('.').filter(|(place, _)| ["path", "query", "header"].contains(place));
        Ok((Box::from(place.map_or(&**name, |(_, name)| name)), parse_expression(value)?))
    });
    filled.collect()
}

fn parse_expression(value: &Value) -> Result<LinkParameter, String> {
    let Some(expression) = value.as_str().and_then(|text| text.trim_matches(['{', '}']).strip_prefix('$'))
    else {
        return Ok(LinkParameter::Fixed(value.clone()));
    };
    let pointer = expression
        .strip_prefix("response.body#/")
        .ok_or_else(|| format!("`${expression}` is not part of the response"))?;
    // An item of a list: the index is irrelevant.
    let of_item = |first: &str| first == "*" || first.bytes().all(|byte| byte.is_ascii_digit());
    let member = match pointer.split_once('/') {
        Some((first, rest)) if of_item(first) => rest,
        _ => pointer,
    };
    if member.is_empty() || member.contains('/') {
        return Err(format!("`${expression}` is not a member of the object"));
    }
    Ok(LinkParameter::Member(unescape_step(member).into()))
}

impl DocumentLink {
    /// Whether both define the same field, for example because several operations return the same type.
    fn is_same_field(&self, other: &Self) -> bool {
        self.owner_key == other.owner_key && self.name == other.name
    }
}
