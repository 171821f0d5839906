//! Inputs of a request: the values of the declared inputs, which are read from the path, query and headers
//! and checked against their types and bounds. Undeclared parameters are ignored.

use diagnostics::Diagnostics;
use http::{HeaderName, request::Parts};
use indexmap::IndexMap;
use json::pointer::append_step;
use json::{JsonDocument, ValueKind};
use serde_json::Value as JsonValue;

use crate::declaration::error_kind::DeclarationErrorKind;
use crate::declaration::{self, InputPlace, InputType};
use crate::problem::AggregateError;

/// The default maximum length of a text or list.
pub(crate) const DEFAULT_MAX_LENGTH: usize = 1000;

/// The declared inputs.
pub(crate) struct InputSet {
    pub(crate) entries: Vec<AggregateInput>,
    /// The segments of the route's path.
    segments: Vec<RouteSegment>,
}

/// A declared input.
pub(crate) struct AggregateInput {
    pub(crate) name: Box<str>,
    pub(crate) place: InputLocation,
    pub(crate) declaration: declaration::InputDeclaration,
    /// The type of the items. For a type other than an array, the type of the value.
    pub(crate) item_type: InputType,
    default: Option<AggregateInputValue>,
    allowed_values: Vec<String>,
}

/// The location of an input in the request.
pub(crate) enum InputLocation {
    /// The index of the path segment.
    Path(usize),
    /// The name of the query parameter.
    Query(Box<str>),
    Header(HeaderName),
}

/// A segment of the route's path.
enum RouteSegment {
    Literal,
    Named(Box<str>),
}

/// The value of an input. A value other than a list has exactly one text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateInputValue {
    pub(crate) texts: Vec<String>,
    pub(crate) is_list: bool,
    /// Whether the texts are unquoted in JSON.
    pub(crate) is_unquoted: bool,
}

/// The values of a request's inputs, in the order of their declarations.
pub(crate) type AggregateInputValues = Vec<Option<AggregateInputValue>>;

impl InputSet {
    pub(crate) fn new(
        declared: &IndexMap<String, declaration::InputDeclaration>,
        path: &str,
        mistakes: &mut Diagnostics,
    ) -> Self {
        let segment = |segment: &str| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => RouteSegment::Named(name.into()),
            None => RouteSegment::Literal,
        };
        let segments: Vec<RouteSegment> = path.split('/').map(segment).collect();
        let all =
            declared.iter().map(|(name, input)| read_declaration(name, input, &segments, mistakes)).collect();
        let inputs = Self { entries: all, segments };
        for (number, segment) in inputs.segments.iter().enumerate() {
            let RouteSegment::Named(name) = segment else { continue };
            if !inputs
                .entries
                .iter()
                .any(|input| matches!(input.place, InputLocation::Path(place) if place == number))
            {
                let message = format!("the route's path has `{{{name}}}`, which is not an input");
                mistakes.add(
                    DeclarationErrorKind::Input,
                    "/input",
                    message,
                    format!("declare it: `{name}: {{ type: integer }}`"),
                );
            }
        }
        inputs
    }

    /// Returns the headers that inputs are read from.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.entries.iter().filter_map(|input| match &input.place {
            InputLocation::Header(name) => Some(name),
            _ => None,
        })
    }

    /// Reads the values of a request.
    pub(crate) fn read_values(&self, request: &Parts) -> Result<AggregateInputValues, AggregateError> {
        let mut parameters = self.query_parameters(request.uri.query().unwrap_or_default()).into_iter();
        let mut values = AggregateInputValues::with_capacity(self.entries.len());
        for input in &self.entries {
            let mut texts = parameters.next().unwrap_or_default();
            match &input.place {
                InputLocation::Path(segment) => {
                    let segment = request.uri.path().split('/').nth(*segment);
                    texts.extend(segment.map(|text| percent_decode(text, b'+').collect::<Vec<u8>>()));
                }
                InputLocation::Query(_) => {}
                InputLocation::Header(name) => {
                    texts.extend(request.headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()));
                }
            }
            let texts = texts.into_iter().map(String::from_utf8).collect::<Result<_, _>>();
            values
                .push(input.parse_value(texts.map_err(|_| input.invalid_error("be in UTF-8".to_owned()))?)?);
        }
        Ok(values)
    }

    /// Returns the decoded query parameters of each input. Others are not decoded, since there may be
    /// thousands.
    fn query_parameters(&self, query: &str) -> Vec<Vec<Vec<u8>>> {
        let mut values = vec![Vec::new(); self.entries.len()];
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            for (input, values) in self.entries.iter().zip(&mut values) {
                if matches!(&input.place, InputLocation::Query(known) if is_named(name, known)) {
                    values.push(percent_decode(value, b' ').collect());
                }
            }
        }
        values
    }
}

impl AggregateInput {
    fn parse_value(&self, texts: Vec<String>) -> Result<Option<AggregateInputValue>, AggregateError> {
        if texts.is_empty() {
            return match (&self.default, self.declaration.required) {
                (None, true) => {
                    Err(AggregateError::InputMissing { input: self.name.clone(), place: self.place.name() })
                }
                (default, _) => Ok(default.clone()),
            };
        }
        let is_list = self.declaration.kind == InputType::Array;
        let longest = self.declaration.max_length.unwrap_or(DEFAULT_MAX_LENGTH);
        let texts: Vec<String> = match is_list {
            true => texts
                .iter()
                .flat_map(|text| text.split(','))
                .filter(|text| !text.is_empty())
                .take(longest.saturating_add(1))
                .map(str::to_owned)
                .collect(),
            false if texts.len() > 1 => return Err(self.invalid_error("occur once".to_owned())),
            false => texts,
        };
        if is_list && texts.len() > longest {
            return Err(self.invalid_error(format!("have at most {longest} items")));
        }
        texts
            .iter()
            .try_for_each(|text| self.check_text(text, longest))
            .map_err(|must| self.invalid_error(must))?;
        Ok(Some(AggregateInputValue { texts, is_list, is_unquoted: self.item_type != InputType::String }))
    }

    fn invalid_error(&self, must: String) -> AggregateError {
        AggregateError::InputInvalid { input: self.name.clone(), must }
    }

    /// Checks a text against the type and bounds of the input. The error is the violated requirement.
    fn check_text(&self, text: &str, longest: usize) -> Result<(), String> {
        let number = match self.item_type {
            InputType::Integer if !is_integer(text) => return Err("be a whole number".to_owned()),
            InputType::Number if !is_number(text) => return Err("be a number".to_owned()),
            InputType::Boolean if !matches!(text, "true" | "false") => {
                return Err("be `true` or `false`".to_owned());
            }
            InputType::String | InputType::Array if text.len() > longest => {
                return Err(format!("have at most {longest} bytes"));
            }
            InputType::Integer | InputType::Number => text.parse::<f64>().ok(),
            _ => None,
        };
        if let Some(number) = number {
            if let Some(least) = self.declaration.minimum.filter(|least| number < *least) {
                return Err(format!("be at least {least}"));
            }
            if let Some(most) = self.declaration.maximum.filter(|most| number > *most) {
                return Err(format!("be at most {most}"));
            }
        }
        match self.allowed_values.is_empty() || self.allowed_values.iter().any(|value| value == text) {
            true => Ok(()),
            false => Err(format!("be one of `{}`", self.allowed_values.join("`, `"))),
        }
    }
}

impl InputLocation {
    /// Returns the name of the location.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Query(_) => "query",
            Self::Header(_) => "header",
        }
    }
}

fn read_declaration(
    name: &str,
    input_declaration: &declaration::InputDeclaration,
    segments: &[RouteSegment],
    mistakes: &mut Diagnostics,
) -> AggregateInput {
    let place = append_step("/input", name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || !name.bytes().all(plain) || matches!(name, "each" | "body") {
        let hint = "use letters, digits, `_` and `-`, and neither `each` nor `body`";
        mistakes.add(
            DeclarationErrorKind::Input,
            &place,
            format!("`{name}` is not a valid name for an input"),
            hint,
        );
    }
    let called = input_declaration.name.as_deref().unwrap_or(name);
    let segment =
        segments.iter().position(|segment| matches!(segment, RouteSegment::Named(name) if **name == *called));
    let stands = match (input_declaration.place, segment) {
        (Some(InputPlace::Path) | None, Some(segment)) => InputLocation::Path(segment),
        (Some(InputPlace::Path), None) => {
            let hint = format!("write `{{{called}}}` as a segment of the route's `path`");
            mistakes.add(
                DeclarationErrorKind::Input,
                append_step(&place, "in"),
                format!("the route's path has no `{{{called}}}`"),
                hint,
            );
            InputLocation::Query(called.into())
        }
        (Some(InputPlace::Header), _) => match HeaderName::try_from(called) {
            Ok(header) => InputLocation::Header(header),
            Err(_) => {
                mistakes.add(
                    DeclarationErrorKind::Input,
                    &place,
                    format!("`{called}` is not a header name"),
                    "use its name in HTTP",
                );
                InputLocation::Query(called.into())
            }
        },
        _ => InputLocation::Query(called.into()),
    };
    let mut wrong = |member: &str, message: &str, hint: &str| {
        mistakes.add(DeclarationErrorKind::Input, format!("{place}/{member}"), message, hint);
    };
    if input_declaration.items.is_some() && input_declaration.kind != InputType::Array {
        wrong("items", "only an array has items", "leave `items` out, or write `type: array`");
    }
    if input_declaration.items == Some(InputType::Array) {
        wrong("items", "the items of an array can't be arrays", "write their type: `items: integer`");
    }
    let item = match input_declaration.kind {
        InputType::Array => {
            input_declaration.items.filter(|of| *of != InputType::Array).unwrap_or(InputType::String)
        }
        kind => kind,
    };
    let is_number = matches!(item, InputType::Integer | InputType::Number);
    for (bound, is_there) in
        [("minimum", input_declaration.minimum.is_some()), ("maximum", input_declaration.maximum.is_some())]
    {
        if is_there && !is_number {
            wrong(bound, "only numbers have bounds", "leave it out, or use `max_length`");
        }
    }
    if input_declaration.minimum > input_declaration.maximum && input_declaration.maximum.is_some() {
        wrong("minimum", "`minimum` is greater than `maximum`", "make it smaller");
    }
    let longest = input_declaration.max_length.unwrap_or(DEFAULT_MAX_LENGTH);
    if input_declaration.max_length.is_some()
        && input_declaration.kind != InputType::Array
        && item != InputType::String
    {
        wrong("max_length", "only texts and arrays have a length", "leave it out, or use `maximum`");
    }
    let mut input = AggregateInput {
        name: name.into(),
        place: stands,
        declaration: input_declaration.clone(),
        item_type: item,
        default: None,
        allowed_values: Vec::new(),
    };
    let values: Vec<String> = input_declaration.values.iter().map(request_text).collect();
    for (number, value) in values.iter().enumerate() {
        if let Err(must) = input.check_text(value, longest) {
            wrong(
                &format!("enum/{number}"),
                &format!("no request can have this value: it must {must}"),
                "leave it out",
            );
        }
    }
    input.allowed_values = values;
    if let Some(default) = &input_declaration.default {
        let texts = match default {
            JsonValue::Array(items) => items.iter().map(request_text).collect(),
            other => vec![request_text(other)],
        };
        match input.parse_value(texts) {
            Ok(value) => input.default = value,
            Err(error) => mistakes.add(
                DeclarationErrorKind::Input,
                append_step(&place, "default"),
                error.to_string(),
                "use a value that a request can have",
            ),
        }
    }
    input
}

/// Returns a value as it is spelled in a request.
fn request_text(value: &JsonValue) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

fn is_number(text: &str) -> bool {
    let plain = text.bytes().next().is_some_and(|first| first == b'-' || first.is_ascii_digit());
    plain
        && JsonDocument::new(text.to_owned().into())
            .is_ok_and(|document| document.root().kind() == ValueKind::Number)
        && !text.ends_with([' ', '\n', '\r', '\t'])
}

/// Whether the encoded name of a query parameter is this name.
fn is_named(encoded: &str, name: &str) -> bool {
    encoded.len() >= name.len() && percent_decode(encoded, b' ').eq(name.bytes())
}

/// Decodes percent-encoding, with `plus` for each `+`. Invalid escapes remain unchanged.
fn percent_decode(text: &str, plus: u8) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (byte, behind) = rest.split_first()?;
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let escape = match behind {
            [high, low, behind @ ..] if *byte == b'%' => {
                digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4 | low, behind))
            }
            _ => None,
        };
        let plain = if *byte == b'+' { plus } else { *byte };
        let (byte, behind) = escape.unwrap_or((plain, behind));
        rest = behind;
        Some(byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_inputs(declared: &str, path: &str, target: &str) -> Result<AggregateInputValues, String> {
        let declared: IndexMap<String, declaration::InputDeclaration> =
            serde_json::from_str(declared).unwrap();
        let mut mistakes = Diagnostics::default();
        let inputs = InputSet::new(&declared, path, &mut mistakes);
        if let Some(mistake) = mistakes.into_vec().pop() {
            return Err(format!("{mistake:#}"));
        }
        let (parts, ()) =
            http::Request::get(target).header("x-tenant", "acme").body(()).unwrap().into_parts();
        inputs.read_values(&parts).map_err(|error| error.to_string())
    }

    fn texts(values: AggregateInputValues) -> Vec<Vec<String>> {
        values.into_iter().map(|value| value.map_or_else(Vec::new, |value| value.texts)).collect()
    }

    #[test]
    fn reads_inputs_from_path_query_and_headers() {
        let declared = r#"{"id":{"type":"string"},"ids":{"type":"array","items":"integer"},"limit":{"type":"integer","default":20},
            "tenant":{"type":"string","in":"header","name":"x-tenant"},"page":{"type":"integer"}}"#;
        let values = read_inputs(declared, "/a/{id}/b", "/a/caf%C3%A9/b?ids=1,2&ids=3&other=x").unwrap();
        assert_eq!(texts(values), [vec!["café"], vec!["1", "2", "3"], vec!["20"], vec!["acme"], vec![]]);
    }

    #[test]
    fn decodes_names_and_values_of_parameters() {
        let declared = r#"{"ab":{"type":"array","name":"a b"},"x":{"type":"string"}}"#;
        let target = "/a?a+b=1+2&a%20b=%2B&%61%20b=%2&a%2Bb=4&A+b=5&&=6&a%20b&x=%C3%A9%ZZ+%25";
        let values = read_inputs(declared, "/a", target).unwrap();
        assert_eq!(texts(values), [vec!["1 2", "+", "%2"], vec!["é%ZZ %"]]);
        let values = read_inputs(r#"{"id":{"type":"string"}}"#, "/a/{id}", "/a/b+%2b").unwrap();
        assert_eq!(texts(values), [["b++"]]);
    }

    #[test]
    fn invalid_inputs_report_the_violated_requirement() {
        let declared = r#"{"n":{"type":"integer","minimum":1,"maximum":100,"required":true},"s":{"type":"string","enum":["a","b"]},
            "x":{"type":"number"},"b":{"type":"boolean"},"t":{"type":"string","max_length":3}}"#;
        for (query, known) in [
            ("", "the input `n` is missing from the query"),
            ("n=0", "`n` must be at least 1"),
            ("n=101", "`n` must be at most 100"),
            ("n=1e1", "`n` must be a whole number"),
            ("n=007", "`n` must be a whole number"),
            ("n=1&n=2", "`n` must occur once"),
            ("n=1&s=c", "`s` must be one of `a`, `b`"),
            ("n=1&x=NaN", "`x` must be a number"),
            ("n=1&x=%2b1", "`x` must be a number"),
            ("n=1&b=yes", "`b` must be `true` or `false`"),
            ("n=1&t=long", "`t` must have at most 3 bytes"),
        ] {
            let error = read_inputs(declared, "/a", &format!("/a?{query}")).unwrap_err();
            assert!(error.contains(known), "{query}: {error}");
        }
        assert!(read_inputs(declared, "/a", "/a?n=99&s=a&x=-1.5e3&b=true&t=abc").is_ok());
    }

    #[test]
    fn reports_impossible_input_declarations() {
        for (declared, path, known) in [
            (r#"{"id":{"type":"integer","in":"path"}}"#, "/a", "the route's path has no `{id}`"),
            ("{}", "/a/{id}", "the route's path has `{id}`, which is not an input"),
            (r#"{"n":{"type":"integer","maximum":5,"default":6}}"#, "/a", "must be at most 5"),
            (r#"{"each":{"type":"integer"}}"#, "/a", "is not a valid name for an input"),
            (r#"{"n":{"type":"integer","items":"string"}}"#, "/a", "only an array has items"),
            (r#"{"n":{"type":"array","items":"array"}}"#, "/a", "can't be arrays"),
            (r#"{"n":{"type":"integer","minimum":5,"maximum":1}}"#, "/a", "is greater than `maximum`"),
            (r#"{"n":{"type":"string","minimum":5}}"#, "/a", "only numbers have bounds"),
            (r#"{"n":{"type":"integer","max_length":5}}"#, "/a", "only texts and arrays"),
            (
                r#"{"n":{"type":"integer","enum":[1,"b"]}}"#,
                "/a",
                "/input/n/enum/1: no request can have this value",
            ),
        ] {
            let error = read_inputs(declared, path, "/a").unwrap_err();
            assert!(error.contains(known), "{error}");
        }
    }
}
