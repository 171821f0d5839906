//! Links from responses to operations, and the parameters that they fill.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::reader::{DocumentReader, local_pointer, member_pointer};

/// A link from a response to an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseLink {
    /// The link's name.
    pub name: String,
    /// The link's location in the document.
    pub pointer: String,
    /// The operation that it refers to.
    pub target: LinkTarget,
    /// The parameters that it fills, each with a value, or with an expression such as `$response.body#/id`.
    pub parameters: Vec<(String, Value)>,
    /// Whether the link also provides a body.
    pub has_body: bool,
    /// The description, or empty if there is none.
    pub description: String,
}

/// The operation that a link refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// An operation by its `operationId`.
    Id(String),
    /// An operation by its method, in upper case, and its path in the document.
    Path(String, String),
}

/// Returns the links of an operation's successful responses, each name once.
pub(crate) fn response_links<'a>(
    reader: &mut DocumentReader<'a>,
    operation: &'a Map<String, Value>,
    pointer: &str,
) -> Vec<ResponseLink> {
    let pointer = format!("{pointer}/responses");
    let responses = operation.get("responses").and_then(Value::as_object).into_iter().flatten();
    let good: BTreeMap<&String, &Value> =
        responses.filter(|(status, value)| status.starts_with('2') && !value.is_null()).collect();
    let mut links: Vec<ResponseLink> = Vec::new();
    for (status, value) in good {
        let Some((value, pointer)) = reader.resolve_reference(value, &member_pointer(&pointer, status))
        else {
            continue;
        };
        for (name, link) in value.get("links").and_then(Value::as_object).into_iter().flatten() {
            let pointer = member_pointer(&format!("{pointer}/links"), name);
            if !links.iter().any(|response_link| response_link.name == *name) {
                links.extend(read_link(reader, name, link, &pointer));
            }
        }
    }
    links
}

fn read_link<'a>(
    reader: &mut DocumentReader<'a>,
    name: &str,
    value: &'a Value,
    pointer: &str,
) -> Option<ResponseLink> {
    let (value, pointer) = reader.resolve_reference(value, pointer)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let target = match (text("operationId"), text("operationRef")) {
        (Some(id), _) => Some(LinkTarget::Id(id.to_owned())),
        (None, Some(reference)) => parse_path_reference(reference),
        (None, None) => None,
    };
    let Some(target) = target else {
        reader.add_warning(&pointer, "the link leads to no operation of this document: left out");
        return None;
    };
    let parameters = value.get("parameters").and_then(Value::as_object).into_iter().flatten();
    Some(ResponseLink {
        name: name.to_owned(),
        target,
        parameters: parameters.map(|(name, value)| (name.clone(), value.clone())).collect(),
        has_body: value.contains_key("requestBody"),
        description: text("description").unwrap_or_default().to_owned(),
        pointer,
    })
}

/// Parses a reference such as `#/paths/~1a~1{id}/get`.
fn parse_path_reference(reference: &str) -> Option<LinkTarget> {
    let pointer = local_pointer(reference)?;
    let (path, method) = pointer.strip_prefix("/paths/")?.split_once('/')?;
    Some(LinkTarget::Path(method.to_ascii_uppercase(), path.replace("~1", "/").replace("~0", "~")))
}
