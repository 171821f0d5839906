//! Operations: the requests that a service accepts, and its responses.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::links::{self, ResponseLink};
use crate::reader::{DocumentReader, member_pointer};
use crate::schema::OpenApiSchema;
use crate::schema_reader::read_schema;

/// The methods that a program can call.
const METHODS: [(&str, &str); 6] = [
    ("get", "GET"),
    ("head", "HEAD"),
    ("post", "POST"),
    ("put", "PUT"),
    ("patch", "PATCH"),
    ("delete", "DELETE"),
];

/// The media type of bytes.
pub(crate) const OCTET_STREAM: &str = "application/octet-stream";

/// An operation of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenApiOperation {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path, with `{name}` for each parameter.
    pub path: String,
    /// The `operationId`.
    pub id: Option<String>,
    /// The summary, or empty if there is none.
    pub summary: String,
    /// The longer description, if there is a summary as well.
    pub description: String,
    /// Whether the operation should no longer be used.
    pub is_deprecated: bool,
    /// The parameters, without the body.
    pub parameters: Vec<OperationParameter>,
    /// The body, and whether it is required.
    pub body: Option<(BodyContent, bool)>,
    /// The kinds of successful responses, each once.
    pub answers: Vec<BodyContent>,
    /// The links to other operations from its responses.
    pub links: Vec<ResponseLink>,
}

/// A parameter of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationParameter {
    /// The parameter's name.
    pub name: String,
    /// The parameter's location.
    pub place: ParameterLocation,
    /// Whether the parameter is required.
    pub is_required: bool,
    /// Whether a list of values is sent by repeating the name, and not as one value with commas.
    pub is_repeated: bool,
    /// The schema of its values.
    pub schema: OpenApiSchema,
    /// The description, or empty if there is none.
    pub description: String,
}

/// The location of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterLocation {
    /// In the path.
    Path,
    /// In the query of the URL.
    Query,
    /// In a header.
    Header,
    /// In a cookie.
    Cookie,
}

/// The content of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyContent {
    /// No body.
    Empty,
    /// JSON with this schema.
    Json(OpenApiSchema),
    /// Text of another kind.
    Text,
    /// Form fields, URL-encoded.
    Form,
    /// Other content, by its media type.
    Other(String),
}

impl OpenApiOperation {
    /// Returns the path with a placeholder word for each parameter, as in a call.
    #[must_use]
    pub fn sample_path(&self) -> String {
        let mut called = String::with_capacity(self.path.len());
        let mut rest = &*self.path;
        while let Some((before, after)) = rest.split_once('{') {
            called.push_str(before);
            called.push('x');
            rest = after.split_once('}').map_or("", |(_, after)| after);
        }
        called + rest
    }
}

impl ParameterLocation {
    /// The location's name in OpenAPI.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Path, Self::Query, Self::Header, Self::Cookie]
            .into_iter()
            .find(|location| location.name() == name)
    }
}

/// Returns all operations of a document.
pub(crate) fn read_operations(reader: &mut DocumentReader<'_>) -> Vec<OpenApiOperation> {
    let mut operations = Vec::new();
    let root = reader.root();
    let Some(paths) = root.get("paths") else { return operations };
    let Some(paths) = paths.as_object() else {
        reader.add_warning("/paths", "this is not an object of paths: left out");
        return operations;
    };
    for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
        let pointer = member_pointer("/paths", path);
        if !path.starts_with('/') {
            reader.add_warning(&pointer, "a path has to begin with `/`: left out");
            continue;
        }
        let Some((item, pointer)) = reader.resolve_reference(item, &pointer) else { continue };
        for (word, method) in METHODS {
            let Some(value) = item.get(word) else { continue };
            let pointer = format!("{pointer}/{word}");
            match value.as_object() {
                Some(value) => operations.push(read_operation(reader, (method, path), item, value, &pointer)),
                None => reader.add_warning(&pointer, "this is not an operation: left out"),
            }
        }
    }
    operations
}

fn read_operation<'a>(
    reader: &mut DocumentReader<'a>,
    (method, path): (&'static str, &str),
    item: &'a Map<String, Value>,
    value: &'a Map<String, Value>,
    pointer: &str,
) -> OpenApiOperation {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let above = pointer.rsplit_once('/').map_or("", |(above, _)| above);
    let mut parameters = Vec::new();
    for (written, pointer) in [(item.get("parameters"), above), (value.get("parameters"), pointer)] {
        let pointer = format!("{pointer}/parameters");
        for (index, written) in written.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let Some(parameter) = read_parameter(reader, written, &format!("{pointer}/{index}")) else {
                continue;
            };
            let is_same =
                |other: &OperationParameter| (&other.name, other.place) == (&parameter.name, parameter.place);
            match parameters.iter_mut().find(|other| is_same(other)) {
                Some(other) => *other = parameter,
                None => parameters.push(parameter),
            }
        }
    }
    reconcile_path_parameters(reader, &mut parameters, path, pointer);
    OpenApiOperation {
        method,
        path: path.to_owned(),
        id: text("operationId"),
        summary: text("summary").or_else(|| text("description")).unwrap_or_default(),
        description: text("summary").and_then(|_| text("description")).unwrap_or_default(),
        is_deprecated: value.get("deprecated") == Some(&Value::Bool(true)),
        parameters,
        body: read_request_body(reader, method, value, pointer),
        answers: read_responses(reader, value, pointer),
        links: links::response_links(reader, value, pointer),
    }
}

/// Makes the path parameters match those that the path contains, whatever the list has.
fn reconcile_path_parameters(
    reader: &mut DocumentReader<'_>,
    parameters: &mut Vec<OperationParameter>,
    path: &str,
    pointer: &str,
) {
    let in_path = placeholders(path);
    parameters.retain(|parameter| {
        let stands = parameter.place != ParameterLocation::Path || in_path.contains(&&*parameter.name);
        if !stands {
            reader.add_warning(pointer, format!("the path has no `{{{}}}`: left out", parameter.name));
        }
        stands
    });
    for name in in_path {
        if !parameters
            .iter()
            .any(|parameter| parameter.place == ParameterLocation::Path && parameter.name == name)
        {
            reader.add_warning(
                pointer,
                format!("the path parameter `{{{name}}}` is not described: any text or number"),
            );
            parameters.push(OperationParameter {
                name: name.to_owned(),
                place: ParameterLocation::Path,
                is_required: true,
                is_repeated: false,
                schema: OpenApiSchema::Unknown,
                description: String::new(),
            });
        }
    }
}

/// The names in a path, each once.
fn placeholders(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for piece in path.split('{').skip(1) {
        let name = piece.split_once('}').map(|(name, _)| name);
        names.extend(name.filter(|name| !name.is_empty() && !names.contains(name)));
    }
    names
}

fn read_parameter<'a>(
    reader: &mut DocumentReader<'a>,
    value: &'a Value,
    pointer: &str,
) -> Option<OperationParameter> {
    let (value, pointer) = reader.resolve_reference(value, pointer)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let location = text("in").and_then(ParameterLocation::from_name);
    let (Some(name), Some(place)) = (text("name"), location) else {
        reader.add_warning(
            &pointer,
            "a parameter needs a `name`, and `in` one of path, query, header, cookie: left out",
        );
        return None;
    };
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let is_form = place == ParameterLocation::Query && text("style").is_none_or(|style| style == "form");
    let schema = match (value.get("schema"), value.get("content")) {
        (Some(schema), _) => read_schema(reader, schema, &format!("{pointer}/schema")),
        // JSON in a URL is a text there.
        (None, Some(_)) => OpenApiSchema::Text(None),
        (None, None) => reader.unknown_schema(&pointer, "the parameter has no schema"),
    };
    Some(OperationParameter {
        name: name.to_owned(),
        place,
        is_required: place == ParameterLocation::Path || flag("required") == Some(true),
        is_repeated: flag("explode").unwrap_or(is_form),
        schema,
        description: text("description").unwrap_or_default().to_owned(),
    })
}

fn read_request_body<'a>(
    reader: &mut DocumentReader<'a>,
    method: &str,
    operation: &'a Map<String, Value>,
    pointer: &str,
) -> Option<(BodyContent, bool)> {
    let (value, pointer) =
        reader.resolve_reference(operation.get("requestBody")?, &format!("{pointer}/requestBody"))?;
    if !matches!(method, "POST" | "PUT" | "PATCH") {
        reader
            .add_warning(&pointer, format!("a body can't be passed to {method}, only to `fetch`: left out"));
        return None;
    }
    let is_required = value.get("required") == Some(&Value::Bool(true));
    let content = read_content(reader, value, &pointer);
    let other = match &content {
        BodyContent::Text => Some("text/*"),
        BodyContent::Other(media) => Some(&**media).filter(|media| *media != OCTET_STREAM),
        BodyContent::Empty | BodyContent::Json(_) | BodyContent::Form => None,
    };
    if let Some(media) = other {
        let message =
            format!("a body of type `{media}` can't be passed to a method, only to `fetch`: read as unknown");
        reader.add_warning(&pointer, message);
    }
    Some((content, is_required))
}

/// The content of the responses with a successful status, or else of the default response.
fn read_responses<'a>(
    reader: &mut DocumentReader<'a>,
    operation: &'a Map<String, Value>,
    pointer: &str,
) -> Vec<BodyContent> {
    let pointer = format!("{pointer}/responses");
    let Some(responses) = operation.get("responses").and_then(Value::as_object) else {
        reader.add_warning(&pointer, "no responses are listed: read as unknown");
        return vec![BodyContent::Json(OpenApiSchema::Unknown)];
    };
    let good = responses.iter().filter(|(status, _)| status.starts_with('2'));
    // Sorted by status, independently of the order in the document.
    let mut listed: BTreeMap<&str, &Value> = good.map(|(status, value)| (&**status, value)).collect();
    if listed.is_empty() {
        listed.extend(responses.get("default").map(|value| ("default", value)));
    }
    let mut answers = Vec::new();
    for (status, value) in listed {
        let Some((value, pointer)) = reader.resolve_reference(value, &member_pointer(&pointer, status))
        else {
            continue;
        };
        let answer = read_content(reader, value, &pointer);
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    if answers.is_empty() {
        reader.add_warning(&pointer, "no successful response is listed: read as unknown");
        answers.push(BodyContent::Json(OpenApiSchema::Unknown));
    }
    answers
}

/// The content of a body: JSON if it is among the media types.
fn read_content<'a>(
    reader: &mut DocumentReader<'a>,
    value: &'a Map<String, Value>,
    pointer: &str,
) -> BodyContent {
    let Some(listed) = value.get("content").and_then(Value::as_object) else { return BodyContent::Empty };
    let find = |fits: fn(&str) -> bool| listed.iter().find(|(media, _)| fits(&essence(media)));
    if let Some((media, value)) = find(is_json).or_else(|| find(|media| media == "*/*")) {
        let pointer = member_pointer(&format!("{pointer}/content"), media);
        let schema = value.get("schema");
        let schema = schema.map(|schema| read_schema(reader, schema, &format!("{pointer}/schema")));
        return BodyContent::Json(schema.unwrap_or(OpenApiSchema::Unknown));
    }
    if find(|media| media == "application/x-www-form-urlencoded").is_some() {
        return BodyContent::Form;
    }
    if find(|media| media.starts_with("text/")).is_some() {
        return BodyContent::Text;
    }
    listed.keys().next().map_or(BodyContent::Empty, |media| BodyContent::Other(essence(media)))
}

fn essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}
