//! The call of a link: an operation of a REST service or a field of a GraphQL service, with the values of its
//! parameters.

use std::sync::Arc;

use graphql_tools::parser::query::{
    self, Definition, OperationDefinition, Selection, SelectionSet, Value as AstValue,
};
use indexmap::IndexMap;
use json::{JsonPath, JsonPathStep};
use services::config::did_you_mean;

use super::{BoundCall, LinkError, LinkedType, ParameterFilling, ParameterSource};
use crate::schema::declaration::LinkDeclaration;
use crate::schema::model::{
    ModelField, ModelFieldSource, ModelFields, ModelProtocol, ModelTypeRef, ModelTypeShape, QUERY,
    ServiceModel,
};

/// A resolved call.
pub(super) struct ResolvedCall {
    /// The model of the service.
    pub(super) target: usize,
    /// The key of the `Query` field that represents the operation.
    pub(super) root_key: Box<str>,
    /// The values of parameters, by the key of the argument.
    pub(super) fillings: IndexMap<Box<str>, ParameterFilling>,
    /// The type of the response, at the location `at`.
    pub(super) type_ref: ModelTypeRef,
    pub(super) response_path: Option<JsonPath>,
    /// The member of the declaration that contains the call.
    pub(super) member: &'static str,
}

/// Resolves a declaration's call.
pub(super) fn resolve_call(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    declaration: &LinkDeclaration,
) -> Result<ResolvedCall, LinkError> {
    let call = match (&declaration.get, &declaration.query) {
        (Some(text), None) => parse_get(models, object, text)?,
        (None, Some(text)) => parse_query_field(models, object, text)?,
        _ => {
            let hint =
                "write `get: service/path`, or `query: service/field` for a GraphQL service".to_owned();
            return Err(("", "a link has exactly one of `get` and `query`".to_owned(), hint));
        }
    };
    let Some(text) = &declaration.at else { return Ok(call) };
    let wrong = |message: &str, hint: &str| Err(("/at", message.to_owned(), hint.to_owned()));
    if call.is_graphql(models) {
        return wrong("`at` does not apply to GraphQL services", "remove `at`");
    }
    let Ok(path) = JsonPath::parse(text) else {
        return wrong("this is not a JSON Pointer", "write `/items`");
    };
    let mut of = call.type_ref.clone();
    for step in path.steps() {
        let JsonPathStep::Name(name) = step else {
            return wrong("the pointer must select a single value", "write `/items`");
        };
        let field = models[call.target].fields(of.nullable().key()).filter(|_| of.items().is_none());
        match field.and_then(|fields| fields.values().find(|field| field.member == *name)) {
            Some(field) => of = field.type_ref.clone(),
            None if of.key() == "JSON" => {}
            None => {
                return wrong(&format!("the response has no `{name}`"), "use one of its members");
            }
        }
    }
    Ok(ResolvedCall { type_ref: of, response_path: Some(path), ..call })
}

/// Parses `service/path/{field}?name={field}`.
fn parse_get(models: &[ServiceModel], object: LinkedType<'_>, text: &str) -> Result<ResolvedCall, LinkError> {
    let wrong = |message: String, hint: String| Err(("/get", message, hint));
    let (service, rest) = text.split_once('/').unwrap_or((text, ""));
    let target = find_service(models, "/get", service)?;
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let path = format!("/{path}");
    if models[target].protocol != ModelProtocol::Rest {
        let hint = format!("write `query: {service}/field(argument: {{field}})`");
        return wrong(format!("`{service}` is a GraphQL service"), hint);
    }
    let roots = models[target].fields(QUERY);
    let operations = roots.into_iter().flatten().filter_map(|(key, field)| match &field.source {
        ModelFieldSource::Operation(operation) => Some((key, field, operation)),
        _ => None,
    });
    // `/users/me` takes precedence over `/users/{id}`.
    let fitting = operations.clone().filter(|(_, _, it)| matches_template(&it.path, &path));
    let Some((key, root, operation)) = fitting.min_by_key(|(_, _, it)| it.path.matches('{').count()) else {
        let known = operations.map(|(_, _, it)| &*it.path);
        let hint = did_you_mean(&path, known).unwrap_or_else(|| {
            "use a path of its OpenAPI document with a `GET` operation that returns JSON".to_owned()
        });
        return wrong(format!("`{service}` has no `GET {path}`"), hint);
    };
    let mut filled = IndexMap::new();
    let argument = |name: &str, place: openapi::ParameterLocation| {
        let parameter = operation.parameters.iter().find(|it| *it.name == *name && it.location == place)?;
        match &parameter.source {
            ParameterSource::Argument(argument) => Some(argument.clone()),
            _ => None,
        }
    };
    for (known, written) in operation.path.split('/').zip(path.split('/')) {
        let name = known.strip_prefix('{').and_then(|known| known.strip_suffix('}'));
        let Some(argument) = name.and_then(|name| argument(name, openapi::ParameterLocation::Path)) else {
            continue;
        };
        filled.insert(argument, parse_filling(models, object, "/get", written)?);
    }
    for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
        let Some(argument) = argument(&name, openapi::ParameterLocation::Query) else {
            let known =
                operation.parameters.iter().filter(|it| it.location == openapi::ParameterLocation::Query);
            let hint = did_you_mean(&name, known.map(|it| &*it.name));
            let hint = hint.unwrap_or_else(|| "use a parameter from the service's document".to_owned());
            return wrong(format!("`GET {}` has no parameter `{name}`", operation.path), hint);
        };
        filled.insert(argument, parse_filling(models, object, "/get", &value)?);
    }
    let call = ResolvedCall {
        target,
        root_key: key.clone(),
        fillings: filled,
        type_ref: root.type_ref.clone(),
        response_path: None,
        member: "/get",
    };
    call.check_values(models, object)?;
    Ok(call)
}

/// Parses `service/field(argument: {field}, other: 7)`.
fn parse_query_field(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    text: &str,
) -> Result<ResolvedCall, LinkError> {
    let wrong = |message: String, hint: String| Err(("/query", message, hint));
    let (service, rest) = text.split_once('/').unwrap_or((text, ""));
    let target = find_service(models, "/query", service)?;
    if models[target].protocol == ModelProtocol::Rest {
        return wrong(
            format!("`{service}` is not a GraphQL service"),
            format!("write `get: {service}/path`"),
        );
    }
    let form = "write `query: service/field(argument: {field})`".to_owned();
    let document = format!("{{ {} }}", replace_placeholders(rest));
    let Ok(document) = query::parse_query::<String>(&document) else {
        return wrong(format!("`{rest}` is not a GraphQL field"), form);
    };
    let selections = match document.definitions.as_slice() {
        [Definition::Operation(OperationDefinition::SelectionSet(SelectionSet { items, .. }))] => {
            items.as_slice()
        }
        _ => &[],
    };
    let [Selection::Field(asked)] = selections else {
        return wrong(format!("`{rest}` is not a single field"), form);
    };
    if !asked.selection_set.items.is_empty() || asked.alias.is_some() || !asked.directives.is_empty() {
        return wrong("the field must not have a selection, an alias or directives".to_owned(), form);
    }
    let roots = models[target].fields(QUERY);
    let found = roots.and_then(|fields| fields.iter().find(|(_, field)| *field.member == *asked.name));
    let Some((key, root)) = found else {
        let known = roots.into_iter().flatten().map(|(_, field)| &*field.member);
        let hint =
            did_you_mean(&asked.name, known).unwrap_or_else(|| "use a field of its `Query`".to_owned());
        return wrong(format!("the `Query` of `{service}` has no field `{}`", asked.name), hint);
    };
    let mut filled = IndexMap::new();
    for (name, value) in &asked.arguments {
        let argument = root.arguments.iter().find(|(_, it)| *it.member == **name);
        let Some((argument, _)) = argument else {
            let known = root.arguments.values().map(|it| &*it.member);
            let hint = did_you_mean(name, known).unwrap_or_else(|| "use one of its arguments".to_owned());
            return wrong(format!("`{}` has no argument `{name}`", asked.name), hint);
        };
        let filling = match value {
            AstValue::Variable(name) => object_field_filling(models, object, "/query", name)?,
            other => match literal_to_json(other) {
                Some(value) => ParameterFilling::Fixed(value),
                None => return wrong(format!("`{name}` is neither `{{field}}` nor a value"), form),
            },
        };
        filled.insert(argument.clone(), filling);
    }
    let call = ResolvedCall {
        target,
        root_key: key.clone(),
        fillings: filled,
        type_ref: root.type_ref.clone(),
        response_path: None,
        member: "/query",
    };
    call.check_values(models, object)?;
    Ok(call)
}

/// Replaces `{field}` by a variable.
fn replace_placeholders(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        written.push_str(before);
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        match after.split_once('}') {
            Some((name, behind)) if !name.is_empty() && name.chars().all(is_letter) => {
                written.push('$');
                written.push_str(name);
                rest = behind;
            }
            _ => {
                written.push('{');
                rest = after;
            }
        }
    }
    written + rest
}

/// Converts a literal value to JSON.
fn literal_to_json(value: &AstValue<'_, String>) -> Option<serde_json::Value> {
    Some(match value {
        AstValue::Variable(_) => return None,
        AstValue::Int(number) => number.as_i64()?.into(),
        AstValue::Float(number) => (*number).into(),
        AstValue::String(text) | AstValue::Enum(text) => text.as_str().into(),
        AstValue::Boolean(value) => (*value).into(),
        AstValue::Null => serde_json::Value::Null,
        AstValue::List(items) => items.iter().map(literal_to_json).collect::<Option<Vec<_>>>()?.into(),
        AstValue::Object(members) => {
            let members = members.iter().map(|(name, value)| Some((name.clone(), literal_to_json(value)?)));
            serde_json::Value::Object(members.collect::<Option<_>>()?)
        }
    })
}

fn find_service(models: &[ServiceModel], member: &'static str, name: &str) -> Result<usize, LinkError> {
    models.iter().position(|model| *model.service == *name).ok_or_else(|| {
        let hint = did_you_mean(name, models.iter().map(|model| &*model.service));
        let hint =
            hint.unwrap_or_else(|| "begin with one of the route's `services`: `service/path`".to_owned());
        (member, format!("the route has no service `{name}`"), hint)
    })
}

/// Whether a path matches a template.
fn matches_template(template: &str, path: &str) -> bool {
    let is_same = |(known, found): (&str, &str)| {
        known == found || (known.starts_with('{') && known.ends_with('}') && !found.is_empty())
    };
    template.split('/').count() == path.split('/').count()
        && template.split('/').zip(path.split('/')).all(is_same)
}

/// Parses the value of a parameter.
fn parse_filling(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    member: &'static str,
    text: &str,
) -> Result<ParameterFilling, LinkError> {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    match name {
        Some(name) => object_field_filling(models, object, member, name),
        None if text.contains(['{', '}']) => {
            let hint = "write just `{field}`".to_owned();
            Err((member, format!("`{text}` is neither a field nor a value"), hint))
        }
        None => Ok(ParameterFilling::Fixed(text.into())),
    }
}

fn object_field_filling(
    models: &[ServiceModel],
    object: LinkedType<'_>,
    member: &'static str,
    name: &str,
) -> Result<ParameterFilling, LinkError> {
    let Some((key, field)) = find_field(object, name) else {
        let known = object.fields.values().map(|field| &*field.member);
        let hint = did_you_mean(name, known).unwrap_or_else(|| "use one of its fields".to_owned());
        return Err((member, format!("`{}` has no field `{name}`", object.name), hint));
    };
    let is_value = models[object.number].is_leaf(field.type_ref.key())
        && matches!(field.source, ModelFieldSource::Member);
    if !is_value {
        let hint = "use a field that is a number, a text, or a list of them".to_owned();
        return Err((member, format!("`{}.{name}` can't be sent as a parameter", object.name), hint));
    }
    Ok(ParameterFilling::Field(key.into()))
}

/// Finds a field of the object by its name in the document or by its original name in the schema.
pub(super) fn find_field<'a>(object: LinkedType<'a>, name: &str) -> Option<(&'a str, &'a ModelField)> {
    let found = object.fields.iter().find(|(key, field)| *field.member == *name || ***key == *name);
    found.map(|(key, field)| (&**key, field))
}

/// The kind of a value, for comparisons; `None` if it could be of several kinds.
pub(super) fn comparable_kind(model: &ServiceModel, of: &ModelTypeRef) -> Option<&'static str> {
    match (of.key(), model.types.get(of.key()).map(|it| &it.shape)) {
        ("Int" | "Long" | "Float", _) => Some("a number"),
        ("String" | "DateTime" | "Date", _) | (_, Some(ModelTypeShape::Enum(_))) => Some("a text"),
        ("Boolean", _) => Some("a boolean"),
        (_, None | Some(ModelTypeShape::Scalar)) => None,
        (_, Some(_)) => Some("an object"),
    }
}

/// Whether an argument is required.
pub(super) fn is_required_argument(argument: &ModelField) -> bool {
    matches!(argument.type_ref, ModelTypeRef::Required(_)) && argument.default.is_none()
}

impl ResolvedCall {
    /// The parameters whose values are fields of the object.
    pub(super) fn key_parameters(&self) -> impl Iterator<Item = (&str, &Box<str>)> {
        self.fillings.iter().filter_map(|(argument, filling)| match filling {
            ParameterFilling::Field(field) => Some((&**argument, field)),
            ParameterFilling::Fixed(_) => None,
        })
    }

    pub(super) fn is_graphql(&self, models: &[ServiceModel]) -> bool {
        models[self.target].protocol != ModelProtocol::Rest
    }

    /// Whether a parameter takes a list.
    pub(super) fn takes_list(&self, models: &[ServiceModel], argument: &str) -> bool {
        self.root_field(models)
            .and_then(|root| root.arguments.get(argument))
            .is_some_and(|it| it.type_ref.items().is_some())
    }

    /// The arguments without a value.
    pub(super) fn unfilled_arguments(&self, models: &[ServiceModel]) -> ModelFields {
        let arguments = self.root_field(models).map(|root| root.arguments.clone()).unwrap_or_default();
        arguments.into_iter().filter(|(name, _)| !self.fillings.contains_key(name)).collect()
    }

    /// Creates the linked field, without a name.
    pub(super) fn linked_field(&self, models: &[ServiceModel], of: ModelTypeRef) -> ModelField {
        let mut field = ModelField::new("", "", of);
        field.deprecated = self.root_field(models).and_then(|root| root.deprecated.clone());
        field
    }

    /// Creates the request with its values.
    pub(super) fn bind_call(&self, models: &[ServiceModel], object: LinkedType<'_>) -> BoundCall {
        let source = |argument: &str| match self.fillings.get(argument) {
            Some(ParameterFilling::Field(key)) => {
                object.fields.get(key).map(|field| ParameterSource::Key(field.name.as_str().into()))
            }
            Some(ParameterFilling::Fixed(value)) => Some(ParameterSource::Fixed(value.clone())),
            None => None,
        };
        let root = self.root_field(models);
        if let Some(ModelFieldSource::Operation(operation)) = root.map(|root| &root.source) {
            let mut operation = operation.as_ref().clone();
            for parameter in &mut operation.parameters {
                let ParameterSource::Argument(argument) = &parameter.source else { continue };
                if let Some(source) = source(argument) {
                    parameter.source = source;
                }
            }
            operation.response_path = self.response_path.clone().unwrap_or_default();
            return BoundCall::Rest(Arc::new(operation));
        }
        let arguments = root.into_iter().flat_map(|root| &root.arguments).filter_map(|(key, argument)| {
            let of = models[self.target].format_service_type(&argument.type_ref);
            Some((argument.member.clone(), of.into(), source(key)?))
        });
        let name = root.map_or_else(|| self.root_key.clone(), |root| root.member.clone());
        BoundCall::Field { name, arguments: arguments.collect() }
    }

    fn root_field<'a>(&self, models: &'a [ServiceModel]) -> Option<&'a ModelField> {
        models[self.target].fields(QUERY)?.get(&self.root_key)
    }

    /// Checks that the values fit their parameters.
    fn check_values(&self, models: &[ServiceModel], object: LinkedType<'_>) -> Result<(), LinkError> {
        let Some(root) = self.root_field(models) else { return Ok(()) };
        for (argument, key) in self.key_parameters() {
            let (Some(taken), Some(given)) = (root.arguments.get(argument), object.fields.get(key)) else {
                continue;
            };
            let kinds = (
                comparable_kind(&models[object.number], &given.type_ref),
                comparable_kind(&models[self.target], &taken.type_ref),
            );
            if let (Some(given), Some(wanted)) = kinds
                && given != wanted
                && wanted != "a text"
            {
                let message = format!("`{key}` is {given}, and `{}` takes {wanted}", taken.member);
                return Err((self.member, message, "use another field".to_owned()));
            }
            if given.type_ref.items().is_some() && taken.type_ref.items().is_none() {
                let message = format!("`{key}` is a list, and `{}` takes one value", taken.member);
                return Err((self.member, message, "fill a parameter that takes a list".to_owned()));
            }
        }
        Ok(())
    }
}
