//! Conversion of Swagger 2 to the shape of OpenAPI 3.1, on the tree, so that only one shape has to be read.
//!
//! `definitions` become `components/schemas`, body and form parameters become `requestBody`, the type of a
//! parameter or response becomes its `schema`, `produces` and `consumes` become media types.

use serde_json::{Map, Value, json};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The old and new prefixes of references.
const REFERENCE_PREFIXES: [(&str, &str); 3] = [
    ("#/definitions/", "#/components/schemas/"),
    ("#/parameters/", "#/components/parameters/"),
    ("#/responses/", "#/components/responses/"),
];

/// The fields of a parameter that do not describe its type.
const PARAMETER_FIELDS: [&str; 7] =
    ["name", "in", "description", "required", "collectionFormat", "schema", "$ref"];

/// Returns the document in the shape of OpenAPI 3.1.
pub(crate) fn upgrade(mut root: Value) -> Value {
    let shared = root.get("parameters").cloned().unwrap_or_default();
    let defaults = OperationDefaults {
        consumes: media_types(&root, "consumes", &[JSON.to_owned()]),
        produces: media_types(&root, "produces", &[JSON.to_owned()]),
        shared_parameters: shared,
    };
    let base = root.get("basePath").cloned().unwrap_or_default();
    for path in root.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        defaults.upgrade_path(path);
    }
    let produces = defaults.produces.clone();
    let mut responses = root.get_mut("responses").map(Value::take).unwrap_or_default();
    for_each_member(&mut responses, |answer| upgrade_response(answer, &produces));
    let mut parameters = defaults.shared_parameters;
    for_each_member(&mut parameters, upgrade_parameter);
    let schemas = root.get_mut("definitions").map(Value::take).unwrap_or_default();
    let mut upgraded = json!({
        "openapi": "3.1.0",
        "info": root.get("info"),
        "servers": [{ "url": base }],
        "paths": root.get("paths"),
        "components": { "schemas": schemas, "parameters": parameters, "responses": responses },
    });
    move_references(&mut upgraded);
    upgraded
}

/// The defaults for operations.
struct OperationDefaults {
    consumes: Vec<String>,
    produces: Vec<String>,
    shared_parameters: Value,
}

impl OperationDefaults {
    fn upgrade_path(&self, path: &mut Value) {
        let Some(path) = path.as_object_mut() else { return };
        let common = path.remove("parameters").unwrap_or_default();
        let (common, body): (Vec<Value>, _) = self.split_body_parameters(&common, &self.consumes);
        for (_, operation) in path.iter_mut().filter(|(name, _)| METHODS.contains(&&***name)) {
            self.upgrade_operation(operation, body.as_ref());
        }
        path.insert("parameters".to_owned(), common.into());
    }

    fn upgrade_operation(&self, operation: &mut Value, common: Option<&Value>) {
        let consumes = media_types(operation, "consumes", &self.consumes);
        let produces = media_types(operation, "produces", &self.produces);
        let Some(operation) = operation.as_object_mut() else { return };
        let parameters = operation.remove("parameters").unwrap_or_default();
        let (parameters, body) = self.split_body_parameters(&parameters, &consumes);
        operation.insert("parameters".to_owned(), parameters.into());
        operation.extend(body.as_ref().or(common).map(|body| ("requestBody".to_owned(), body.clone())));
        if let Some(responses) = operation.get_mut("responses") {
            for_each_member(responses, |answer| upgrade_response(answer, &produces));
        }
    }

    /// Separates the parameters from those that form the body.
    fn split_body_parameters(&self, parameters: &Value, consumes: &[String]) -> (Vec<Value>, Option<Value>) {
        let (mut others, mut body) = (Vec::new(), None);
        let (mut fields, mut required, mut has_file) = (Map::new(), Vec::new(), false);
        for value in parameters.as_array().into_iter().flatten() {
            let found = self.shared_parameter(value).unwrap_or(value);
            match found.get("in").and_then(Value::as_str) {
                Some("body") => body = Some(upgrade_body(found, consumes)),
                Some("formData") => {
                    let name = found.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    has_file |= found.get("type").is_some_and(|it| it == "file");
                    required.extend(is_required(found).then(|| Value::from(&*name)));
                    fields.insert(name, parameter_schema(found));
                }
                _ => {
                    let mut written = value.clone();
                    upgrade_parameter(&mut written);
                    others.push(written);
                }
            }
        }
        if !fields.is_empty() {
            let is_form = |media: &&String| media.starts_with("multipart/") || *media == FORM;
            let named = consumes.iter().find(is_form).map_or(FORM, |media| media);
            let media = if has_file { "multipart/form-data" } else { named };
            let schema = json!({ "type": "object", "properties": fields, "required": required });
            body =
                Some(json!({ "required": !required.is_empty(), "content": { media: { "schema": schema } } }));
        }
        (others, body)
    }

    /// Returns the document-level parameter that a reference refers to.
    fn shared_parameter(&self, value: &Value) -> Option<&Value> {
        let name = value.get("$ref")?.as_str()?.strip_prefix("#/parameters/")?;
        self.shared_parameters.get(name.replace("~1", "/").replace("~0", "~"))
    }
}

fn upgrade_body(value: &Value, consumes: &[String]) -> Value {
    let schema = value.get("schema").cloned().unwrap_or(Value::Bool(true));
    let content = consumes.iter().map(|media| (media.clone(), json!({ "schema": schema })));
    json!({ "required": is_required(value), "content": content.collect::<Map<_, _>>() })
}

/// Moves a parameter's type into its schema.
fn upgrade_parameter(parameter: &mut Value) {
    if parameter.get("$ref").is_some() || !parameter.is_object() {
        return;
    }
    let schema = parameter_schema(parameter);
    let Some(parameter) = parameter.as_object_mut() else { return };
    let is_repeated = parameter.get("collectionFormat").is_some_and(|format| format == "multi");
    parameter.insert("explode".to_owned(), is_repeated.into());
    parameter.insert("schema".to_owned(), schema);
}

fn parameter_schema(parameter: &Value) -> Value {
    let words = parameter.as_object().into_iter().flatten();
    let words = words.filter(|(word, _)| !PARAMETER_FIELDS.contains(&&***word) && *word != "explode");
    let words: Map<_, _> = words.map(|(word, value)| (word.clone(), value.clone())).collect();
    parameter.get("schema").cloned().unwrap_or(Value::Object(words))
}

fn upgrade_response(response: &mut Value, produces: &[String]) {
    let Some(response) = response.as_object_mut() else { return };
    if let Some(schema) = response.remove("schema") {
        let content = produces.iter().map(|media| (media.clone(), json!({ "schema": schema })));
        response.insert("content".to_owned(), Value::Object(content.collect()));
    }
}

fn is_required(parameter: &Value) -> bool {
    parameter.get("required") == Some(&Value::Bool(true))
}

fn media_types(of: &Value, key: &str, default: &[String]) -> Vec<String> {
    let listed = of.get(key).and_then(Value::as_array).into_iter().flatten();
    let listed: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    if listed.is_empty() { default.to_vec() } else { listed }
}

fn for_each_member(members: &mut Value, change: impl Fn(&mut Value)) {
    members.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(change);
}

fn move_references(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(move_references),
        Value::Object(members) => {
            for (name, value) in members {
                let text = value.as_str().filter(|_| name == "$ref");
                let moved = text.and_then(|text| {
                    let (to, rest) = REFERENCE_PREFIXES
                        .iter()
                        .find_map(|(from, to)| Some((to, text.strip_prefix(from)?)))?;
                    Some(format!("{to}{rest}"))
                });
                match moved {
                    Some(moved) => *value = moved.into(),
                    None => move_references(value),
                }
            }
        }
        _ => {}
    }
}
