//! The request of an operation, with its parameters in the locations and encodings that the service expects.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use json::{JsonNode, ValueKind};
use openapi::ParameterLocation;
use services::path::{is_safe_segment, percent_encode};
use services::{CallError, PathError, ServiceRequest};

use crate::fetch::call_context::ArgumentValues;
use crate::fetch::call_failure::CallFailureReason;
use crate::subgraph::{ParameterSource, RestOperation, RestParameter};

/// The maximum length of a URL in the `http` crate, so that no longer one is written.
const MAX_URL_BYTES: usize = u16::MAX as usize - 1;

/// Builds the request of an operation.
pub(crate) struct RestRequestRenderer<'a> {
    pub(crate) operation: &'a RestOperation,
    pub(crate) arguments: &'a ArgumentValues,
    pub(crate) key: RequestKey<'a>,
}

/// The keys of the objects that a request is made for.
#[derive(Clone, Copy)]
pub(crate) enum RequestKey<'a> {
    /// No key.
    None,
    /// One object: the names of its key fields, and their values.
    One(&'a [Box<str>], &'a [JsonNode<'a>]),
    /// Many objects: the values of the only key field as text.
    Many(&'a [Cow<'a, str>]),
}

/// The value of a parameter.
enum ParameterValue<'a> {
    Node(JsonNode<'a>),
    Constant(&'a serde_json::Value),
    Texts(&'a [Cow<'a, str>]),
}

impl<'a> RestRequestRenderer<'a> {
    pub(crate) fn build_request(&self) -> Result<ServiceRequest, CallFailureReason> {
        let mut url = self.build_path()?;
        let mut headers = HeaderMap::new();
        let accept = match self.operation.is_text {
            true => const { HeaderValue::from_static("text/*, */*;q=0.5") },
            false => const { HeaderValue::from_static("application/json") },
        };
        headers.insert(ACCEPT, accept);
        let mut query = UrlQuery { url: &mut url, is_first: true };
        let mut cookies = String::new();
        for parameter in &self.operation.parameters {
            let Some(value) = self.parameter_value(parameter) else { continue };
            if parameter.location != ParameterLocation::Path && value.has_no_encoding(parameter) {
                self.check_omissible(parameter)?;
                continue;
            }
            if !self.is_safe() && value.has_empty_item() {
                return Err(CallFailureReason::EmptyItem(parameter.name.clone()));
            }
            match parameter.location {
                ParameterLocation::Path => {}
                ParameterLocation::Query => query.add_parameter(parameter, &value)?,
                ParameterLocation::Header => {
                    let no_header = || CallFailureReason::InvalidHeader(parameter.name.clone());
                    let name = HeaderName::from_bytes(parameter.name.as_bytes()).map_err(|_| no_header())?;
                    let texts = value_texts(parameter, &value)?;
                    if texts.iter().any(|text| is_padded(text)) {
                        return Err(CallFailureReason::PaddedHeader(parameter.name.clone()));
                    }
                    headers.insert(name, HeaderValue::try_from(texts.join(",")).map_err(|_| no_header())?);
                }
                ParameterLocation::Cookie => {
                    let before = if cookies.is_empty() { "" } else { "; " };
                    let text = percent_encode(&value_texts(parameter, &value)?.join(","));
                    cookies.extend([before, &parameter.name, "=", &text]);
                }
            }
        }
        if !cookies.is_empty() {
            let no_header = |_| CallFailureReason::InvalidHeader("cookie".into());
            headers.insert(COOKIE, HeaderValue::try_from(cookies).map_err(no_header)?);
        }
        let body = self.build_body();
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
        }
        let invalid = |_| CallFailureReason::Call(CallError::Path(PathError::Invalid).into());
        let path_and_query = PathAndQuery::try_from(url).map_err(invalid)?;
        Ok(ServiceRequest { method: self.operation.method.clone(), path_and_query, headers, body })
    }

    fn build_path(&self) -> Result<String, CallFailureReason> {
        let mut url = String::with_capacity(self.operation.path.len() + 64);
        let mut rest = &*self.operation.path;
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').unwrap_or((behind, ""));
            url.push_str(before);
            let is_it = |parameter: &&RestParameter| {
                parameter.location == ParameterLocation::Path && *parameter.name == *name
            };
            let parameter = self.operation.parameters.iter().find(is_it);
            let parameter = parameter.ok_or_else(|| CallFailureReason::NoValue(name.into()))?;
            let value = self.parameter_value(parameter).filter(ParameterValue::is_complete);
            let value = value.ok_or_else(|| CallFailureReason::NoValue(name.into()))?;
            for (place, text) in value_texts(parameter, &value)?.iter().enumerate() {
                if !is_safe_segment(text) {
                    return Err(CallFailureReason::InvalidSegment(name.into()));
                }
                if place > 0 {
                    url.push(',');
                }
                url.push_str(&percent_encode(text));
            }
            rest = behind;
        }
        url.push_str(rest);
        Ok(url)
    }

    /// Checks whether a parameter may be omitted whose value is an empty list or object, which has no
    /// encoding (RFC 6570, 2.3). A request without the parameter may apply to everything. So unsafe requests,
    /// and requests to services that require the parameter, fail instead.
    fn check_omissible(&self, parameter: &RestParameter) -> Result<(), CallFailureReason> {
        match self.is_safe() && !parameter.is_required {
            true => Ok(()),
            false => Err(CallFailureReason::NoValue(parameter.name.clone())),
        }
    }

    fn is_safe(&self) -> bool {
        matches!(self.operation.method, Method::GET | Method::HEAD)
    }

    /// The JSON body; empty if there is none or its argument is `null`.
    fn build_body(&self) -> Bytes {
        let argument = self.operation.body.as_deref().and_then(|name| self.arguments.get(name));
        argument.filter(|node| node.kind() != ValueKind::Null).map_or_else(Bytes::new, JsonNode::slice)
    }

    /// Returns a parameter's value, or `None` if the parameter is omitted.
    fn parameter_value(&self, parameter: &'a RestParameter) -> Option<ParameterValue<'a>> {
        let node = match (&parameter.source, self.key) {
            (ParameterSource::Fixed(value), _) => return Some(ParameterValue::Constant(value)),
            (ParameterSource::Key(_), RequestKey::Many(texts)) => return Some(ParameterValue::Texts(texts)),
            (ParameterSource::Key(name), RequestKey::One(fields, values)) => {
                *values.get(fields.iter().position(|field| field == name)?)?
            }
            (ParameterSource::Key(_), RequestKey::None) => return None,
            (ParameterSource::Argument(name), _) => self.arguments.get(name)?,
        };
        (node.kind() != ValueKind::Null).then_some(ParameterValue::Node(node))
    }
}

impl ParameterValue<'_> {
    /// Whether the value would have no encoding outside of a path.
    fn has_no_encoding(&self, parameter: &RestParameter) -> bool {
        match self {
            Self::Node(node) if node.kind() == ValueKind::Object => {
                parameter.location == ParameterLocation::Query
                    && !parameter.is_repeated
                    && has_no_scalars(*node)
            }
            _ => self.is_empty_list(),
        }
    }

    /// Whether the value is an empty list; null items do not count.
    fn is_empty_list(&self) -> bool {
        match self {
            Self::Node(node) => {
                node.kind() == ValueKind::Array && node.items().all(|item| item.kind() == ValueKind::Null)
            }
            Self::Constant(value) => value.as_array().is_some_and(Vec::is_empty),
            Self::Texts(texts) => texts.is_empty(),
        }
    }

    /// Whether the value is a list with an empty text. If that is its only item, its encoding is that of an
    /// empty list.
    fn has_empty_item(&self) -> bool {
        let is_empty = |item: JsonNode<'_>| item.string().is_some_and(|text| text.is_empty());
        match self {
            Self::Node(node) => node.kind() == ValueKind::Array && node.items().any(is_empty),
            Self::Constant(_) => false,
            Self::Texts(texts) => texts.iter().any(|text| text.is_empty()),
        }
    }

    /// Whether the value and all of its items are present.
    fn is_complete(&self) -> bool {
        let has_null = match self {
            Self::Node(node) => node.items().any(|item| item.kind() == ValueKind::Null),
            Self::Constant(_) | Self::Texts(_) => false,
        };
        !has_null && !self.is_empty_list()
    }
}

/// Whether a text has surrounding white space, which is not part of a header's value (RFC 9110, 5.5) or of a
/// list item in it (5.6.1).
fn is_padded(text: &str) -> bool {
    text.starts_with([' ', '\t']) || text.ends_with([' ', '\t'])
}

/// Whether an object's value contains no scalar, and therefore adds no name and value to the query.
fn has_no_scalars(node: JsonNode<'_>) -> bool {
    match node.kind() {
        ValueKind::Null => true,
        ValueKind::Object => node.members().all(|(_, value)| has_no_scalars(value)),
        ValueKind::Array => node.items().all(has_no_scalars),
        ValueKind::Bool(_) | ValueKind::Number | ValueKind::String => false,
    }
}

/// The query of a URL while it is written.
struct UrlQuery<'a> {
    url: &'a mut String,
    is_first: bool,
}

impl UrlQuery<'_> {
    fn add_parameter(
        &mut self,
        parameter: &RestParameter,
        value: &ParameterValue<'_>,
    ) -> Result<(), CallFailureReason> {
        if let ParameterValue::Node(node) = value
            && node.kind() == ValueKind::Object
        {
            return self.write_object(parameter, &percent_encode(&parameter.name), *node);
        }
        let (name, texts) = (percent_encode(&parameter.name), value_texts(parameter, value)?);
        match parameter.is_repeated {
            true => texts.iter().try_for_each(|text| self.write_pair(&name, [&**text])),
            false => self.write_pair(&name, texts.iter().map(|text| &**text)),
        }
    }

    /// Writes an object: all of it in brackets after the parameter's name (OpenAPI's `deepObject`; deeper
    /// levels use the notation of common servers). With members under their own names, a client could set
    /// arbitrary parameters.
    fn write_object(
        &mut self,
        parameter: &RestParameter,
        name: &str,
        node: JsonNode<'_>,
    ) -> Result<(), CallFailureReason> {
        if parameter.is_repeated {
            return Err(CallFailureReason::WrongKind(parameter.name.clone(), node.kind().name()));
        }
        for (key, value) in node.members() {
            let key = percent_encode(&key.node().scalar_text().unwrap_or_default());
            self.write_nested(parameter, &format!("{name}%5B{key}%5D"), value)?;
        }
        Ok(())
    }

    fn write_nested(
        &mut self,
        parameter: &RestParameter,
        name: &str,
        node: JsonNode<'_>,
    ) -> Result<(), CallFailureReason> {
        // Deep values repeat the names of all levels above them.
        self.check_url_length(name)?;
        match node.kind() {
            ValueKind::Null => {}
            ValueKind::Object => self.write_object(parameter, name, node)?,
            ValueKind::Array => {
                for (place, item) in node.items().enumerate() {
                    self.write_nested(parameter, &format!("{name}%5B{place}%5D"), item)?;
                }
            }
            kind => {
                let text = node
                    .scalar_text()
                    .ok_or_else(|| CallFailureReason::WrongKind(parameter.name.clone(), kind.name()))?;
                self.write_pair(name, [&*text])?;
            }
        }
        Ok(())
    }

    fn check_url_length(&self, name: &str) -> Result<(), CallFailureReason> {
        let invalid = || CallFailureReason::Call(CallError::Path(PathError::Invalid).into());
        (self.url.len() + name.len() <= MAX_URL_BYTES).then_some(()).ok_or_else(invalid)
    }

    /// Writes a name and its value, or its values separated by commas.
    fn write_pair<'t>(
        &mut self,
        name: &str,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<(), CallFailureReason> {
        self.check_url_length(name)?;
        self.url.push(if std::mem::take(&mut self.is_first) { '?' } else { '&' });
        self.url.push_str(name);
        self.url.push('=');
        for (place, text) in texts.into_iter().enumerate() {
            if place > 0 {
                self.url.push(',');
            }
            self.url.push_str(&percent_encode(text));
        }
        Ok(())
    }
}

/// Returns the text of a scalar, or the texts of a list's items.
fn value_texts<'v>(
    parameter: &RestParameter,
    value: &'v ParameterValue<'_>,
) -> Result<Cow<'v, [Cow<'v, str>]>, CallFailureReason> {
    let wrong = |kind: &'static str| CallFailureReason::WrongKind(parameter.name.clone(), kind);
    let plain = |node: JsonNode<'v>| node.scalar_text().ok_or_else(|| wrong(node.kind().name()));
    Ok(match value {
        ParameterValue::Texts(texts) => Cow::Borrowed(*texts),
        ParameterValue::Node(node) if node.kind() == ValueKind::Array => {
            node.items().filter(|item| item.kind() != ValueKind::Null).map(plain).collect::<Result<_, _>>()?
        }
        ParameterValue::Node(node) => vec![plain(*node)?].into(),
        ParameterValue::Constant(serde_json::Value::Array(items)) => {
            items.iter().map(constant_text).collect()
        }
        ParameterValue::Constant(value) => vec![constant_text(value)].into(),
    })
}

fn constant_text(value: &serde_json::Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed)
}
