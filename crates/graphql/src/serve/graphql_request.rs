//! Parsing of requests by the GraphQL-over-HTTP specification. The document itself is not parsed here.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Method};
use json::{JsonDocument, JsonNode, ValueKind};
use offload::work;
use services::{StreamedServiceBody, accept, read_request_body};

use super::problem::HttpError;
use super::refusal::GraphqlRefusal;

/// The SHA-256 of a document's text.
pub(crate) type DocumentHash = [u8; 32];

/// A parsed request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphqlRequest {
    /// The document's text.
    pub(crate) query: Option<String>,
    /// The hash of the document (`extensions.persistedQuery`).
    pub(crate) hash: Option<DocumentHash>,
    /// The operator's name of the document (`documentId`).
    pub(crate) document_id: Option<String>,
    /// The name of the requested operation.
    pub(crate) operation_name: Option<String>,
    /// The JSON text of the variables, an object; `None` if there are none.
    pub(crate) variables: Option<Bytes>,
}

/// The error of a request that could not be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestParseError {
    Http(HttpError),
    Graphql(GraphqlRefusal),
}

impl From<HttpError> for RequestParseError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<GraphqlRefusal> for RequestParseError {
    fn from(refusal: GraphqlRefusal) -> Self {
        Self::Graphql(refusal)
    }
}

impl GraphqlRequest {
    /// Reads a request of at most `limit` bytes, until the deadline.
    pub(crate) async fn from_http(
        head: &Parts,
        body: StreamedServiceBody,
        limit: u64,
        deadline: Instant,
    ) -> Result<Self, RequestParseError> {
        match head.method {
            Method::GET | Method::HEAD => {
                let query = head.uri.query().unwrap_or_default();
                if query.len() as u64 > limit {
                    return Err(HttpError::Size(limit).into());
                }
                offload::move_if_long(work::estimate_text(query.as_bytes())).await;
                Ok(Self::from_url_query(query)?)
            }
            Method::POST => {
                check_content_type(&head.headers)?;
                let body = read_request_body(body, limit, deadline).await.map_err(HttpError::from)?;
                offload::move_if_long(work::estimate_text(&body)).await;
                Ok(Self::from_body(body)?)
            }
            _ => Err(HttpError::Method(head.method.clone()).into()),
        }
    }

    /// Parses the query of a URL.
    fn from_url_query(query: &str) -> Result<Self, GraphqlRefusal> {
        let mut texts: [Option<Cow<'_, str>>; 5] = [const { None }; 5];
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(place) = PARAMETER_NAMES.iter().position(|known| *known == name) else { continue };
            if texts[place].replace(value).is_some() {
                return Err(GraphqlRefusal::DuplicateParameter(PARAMETER_NAMES[place].into()));
            }
        }
        let mut request = Self::default();
        for (name, text) in PARAMETER_NAMES.into_iter().zip(texts) {
            // Forms send empty values for fields that were not filled in.
            let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
            if matches!(name, "variables" | "extensions") {
                let document = JsonDocument::new(text.into_owned().into());
                request.set_parameter(
                    name,
                    document.map_err(|error| GraphqlRefusal::Json { place: name, error })?.root(),
                )?;
            } else {
                request.set_text(name, text.into_owned());
            }
        }
        request.validate()
    }

    /// Parses a JSON body.
    fn from_body(body: Bytes) -> Result<Self, GraphqlRefusal> {
        let document =
            JsonDocument::new(body).map_err(|error| GraphqlRefusal::Json { place: "body", error })?;
        match document.root().kind() {
            ValueKind::Object => {}
            ValueKind::Array => return Err(GraphqlRefusal::Batch),
            other => return Err(GraphqlRefusal::NotObject(other.name())),
        }
        let (mut request, mut given) = (Self::default(), [false; 5]);
        for (key, value) in document.root().members() {
            let Some(place) = PARAMETER_NAMES.iter().position(|name| key.equals(name.as_bytes())) else {
                continue;
            };
            if std::mem::replace(&mut given[place], true) {
                return Err(GraphqlRefusal::DuplicateParameter(PARAMETER_NAMES[place].into()));
            }
            request.set_parameter(PARAMETER_NAMES[place], value)?;
        }
        request.validate()
    }

    fn set_parameter(&mut self, name: &'static str, value: JsonNode<'_>) -> Result<(), GraphqlRefusal> {
        let wrong = |must| Err(GraphqlRefusal::Parameter { name, must, is: value.kind().name() });
        match (name, value.kind()) {
            (_, ValueKind::Null) => {}
            ("variables", ValueKind::Object) => {
                check_names(name, value)?;
                self.variables = Some(value.slice());
            }
            ("extensions", ValueKind::Object) => {
                check_names(name, value)?;
                self.hash = persisted_query_hash(value)?;
            }
            ("variables" | "extensions", _) => return wrong("an object"),
            (_, ValueKind::String) => self.set_text(name, string_value(value)),
            _ => return wrong("a string"),
        }
        Ok(())
    }

    fn set_text(&mut self, name: &str, text: String) {
        let place = match name {
            "query" => &mut self.query,
            "operationName" => &mut self.operation_name,
            _ => &mut self.document_id,
        };
        *place = Some(text);
    }

    /// Returns the request if it identifies a document.
    fn validate(mut self) -> Result<Self, GraphqlRefusal> {
        self.operation_name.take_if(|operation| operation.is_empty());
        if let Some(hash) = self.document_id.as_deref().and_then(|id| id.strip_prefix("sha256:")) {
            self.hash = Some(parse_hash(hash).ok_or(GraphqlRefusal::Hash)?);
            self.document_id = None;
        }
        let names_one = self.query.is_some() || self.hash.is_some() || self.document_id.is_some();
        if names_one { Ok(self) } else { Err(GraphqlRefusal::MissingQuery) }
    }
}

/// The known parameters; others are ignored.
const PARAMETER_NAMES: [&str; 5] = ["query", "operationName", "variables", "extensions", "documentId"];

/// Checks that an object has no duplicate names in any spelling. Parsers disagree on whether the first or the
/// last counts.
fn check_names(of: &'static str, object: JsonNode<'_>) -> Result<(), GraphqlRefusal> {
    /// The maximum number of characters of a name in an error message.
    const MAX_NAME_CHARS: usize = 40;
    let mut names = HashSet::with_capacity(object.count());
    for (key, _) in object.members() {
        let name = key.node().string().unwrap_or_default();
        if names.contains(&name) {
            let name: String = String::from_utf8_lossy(&name).chars().take(MAX_NAME_CHARS).collect();
            return Err(GraphqlRefusal::DuplicateParameter(format!("{of}.{name}").into()));
        }
        names.insert(name);
    }
    Ok(())
}

/// Returns the hash of Apollo's persisted queries.
fn persisted_query_hash(extensions: JsonNode<'_>) -> Result<Option<DocumentHash>, GraphqlRefusal> {
    let Some(persisted) = extensions.last_member(b"persistedQuery") else { return Ok(None) };
    match persisted.kind() {
        ValueKind::Null => return Ok(None),
        ValueKind::Object => check_names("persistedQuery", persisted)?,
        other => {
            let (name, must) = ("persistedQuery", "an object");
            return Err(GraphqlRefusal::Parameter { name, must, is: other.name() });
        }
    }
    if persisted.last_member(b"version").is_none_or(|version| version.text() != b"1") {
        return Err(GraphqlRefusal::NotSupported);
    }
    let hash = persisted.last_member(b"sha256Hash").and_then(|hash| parse_hash(&string_value(hash)));
    hash.map(Some).ok_or(GraphqlRefusal::Hash)
}

fn parse_hash(text: &str) -> Option<DocumentHash> {
    let mut hash = DocumentHash::default();
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(16 * digit(digits[0])? + digit(*digits.get(1)?)?).ok()?;
    }
    Some(hash)
}

fn string_value(value: JsonNode<'_>) -> String {
    String::from_utf8_lossy(&value.string().unwrap_or_default()).into_owned()
}

/// Checks that the headers declare a JSON body in UTF-8. Pages of other origins cannot send this type without
/// a preflight.
fn check_content_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let Some(kind) = kinds.next() else { return Err(HttpError::ContentTypeMissing) };
    if kinds.next().is_some() {
        return Err(HttpError::ContentType("several at once".to_owned()));
    }
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let (name, parameters) = kind.split_once(';').unwrap_or((&kind, ""));
    if !name.trim().eq_ignore_ascii_case("application/json") {
        return Err(HttpError::ContentType(name.trim().to_owned()));
    }
    match accept::find_parameter(parameters, "charset") {
        Some(charset) if !charset.eq_ignore_ascii_case("utf-8") => {
            Err(HttpError::Charset(charset.to_owned()))
        }
        _ => match headers
            .get(CONTENT_ENCODING)
            .filter(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            Some(coding) => {
                Err(HttpError::ContentEncoding(String::from_utf8_lossy(coding.as_bytes()).into_owned()))
            }
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests;
