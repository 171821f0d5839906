//! What a request says: the values of the declared inputs, read from its path, query and headers, each checked against
//! its type and bounds. What is not declared goes nowhere.

use std::borrow::Cow;

use http::{HeaderName, request::Parts};
use indexmap::IndexMap;
use json::{Document, Kind as JsonKind};
use serde_json::Value as Json;

use crate::declaration::{self, InputPlace, InputType};
use crate::mistake::{Kind, Mistakes, below};
use crate::problem::AggregateError;

/// The longest text or list where nothing else is said.
pub(crate) const LONGEST: usize = 1000;

/// The declared inputs.
pub(crate) struct Inputs {
    pub(crate) all: Vec<Input>,
    /// The segments of the route's path.
    segments: Vec<Segment>,
}

/// A declared input.
pub(crate) struct Input {
    pub(crate) name: Box<str>,
    pub(crate) place: Place,
    pub(crate) declared: declaration::Input,
    /// What the items are: of what is no list, the value itself.
    pub(crate) item: InputType,
    default: Option<Value>,
    values: Vec<String>,
}

/// Where an input stands.
pub(crate) enum Place {
    /// The number of the segment.
    Path(usize),
    /// The name of the parameter.
    Query(Box<str>),
    Header(HeaderName),
}

/// A segment of the route's path.
enum Segment {
    Literal,
    Named(Box<str>),
}

/// The value of an input: texts, of what is no list one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) texts: Vec<String>,
    pub(crate) is_list: bool,
    /// Whether the texts stand in JSON without quotes.
    pub(crate) is_bare: bool,
}

/// The values of a request's inputs, in the order of their declarations.
pub(crate) type Values = Vec<Option<Value>>;

impl Inputs {
    pub(crate) fn new(
        declared: &IndexMap<String, declaration::Input>,
        path: &str,
        mistakes: &mut Mistakes,
    ) -> Self {
        let segment = |segment: &str| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => Segment::Named(name.into()),
            None => Segment::Literal,
        };
        let segments: Vec<Segment> = path.split('/').map(segment).collect();
        let all = declared.iter().map(|(name, input)| read(name, input, &segments, mistakes)).collect();
        let inputs = Self { all, segments };
        for (number, segment) in inputs.segments.iter().enumerate() {
            let Segment::Named(name) = segment else { continue };
            if !inputs.all.iter().any(|input| matches!(input.place, Place::Path(place) if place == number)) {
                let message = format!("the route's path has `{{{name}}}`, which is no input");
                mistakes.add(
                    Kind::Input,
                    "/input",
                    message,
                    format!("declare it: `{name}: {{ type: integer }}`"),
                );
            }
        }
        inputs
    }

    /// Reads the values of a request.
    pub(crate) fn read(&self, request: &Parts) -> Result<Values, AggregateError> {
        let mut pairs: Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> = None;
        let mut values = Values::with_capacity(self.all.len());
        for input in &self.all {
            let texts: Vec<String> = match &input.place {
                Place::Path(segment) => path_value(request.uri.path(), *segment).into_iter().collect(),
                Place::Query(name) => {
                    let query = request.uri.query().unwrap_or_default();
                    let pairs =
                        pairs.get_or_insert_with(|| form_urlencoded::parse(query.as_bytes()).collect());
                    let named = pairs.iter().filter(|(known, _)| **known == **name);
                    named.map(|(_, value)| value.clone().into_owned()).collect()
                }
                Place::Header(name) => {
                    let texts = request.headers.get_all(name).iter();
                    texts.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
                }
            };
            values.push(input.value(texts)?);
        }
        Ok(values)
    }
}

impl Input {
    fn value(&self, texts: Vec<String>) -> Result<Option<Value>, AggregateError> {
        let invalid = |must: String| AggregateError::InputInvalid { input: self.name.clone(), must };
        if texts.is_empty() {
            return match (&self.default, self.declared.required) {
                (None, true) => {
                    Err(AggregateError::InputMissing { input: self.name.clone(), place: self.place.name() })
                }
                (default, _) => Ok(default.clone()),
            };
        }
        let is_list = self.declared.kind == InputType::List;
        let texts: Vec<String> = match is_list {
            true => texts
                .iter()
                .flat_map(|text| text.split(','))
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect(),
            false if texts.len() > 1 => return Err(invalid("stand there once".to_owned())),
            false => texts,
        };
        let longest = self.declared.longest.unwrap_or(LONGEST);
        if is_list && texts.len() > longest {
            return Err(invalid(format!("have at most {longest} items")));
        }
        texts.iter().try_for_each(|text| self.check(text, longest)).map_err(invalid)?;
        Ok(Some(Value { texts, is_list, is_bare: self.item != InputType::String }))
    }

    /// What a text must be that is no value of this input.
    fn check(&self, text: &str, longest: usize) -> Result<(), String> {
        let number = match self.item {
            InputType::Integer if !is_integer(text) => return Err("be a whole number".to_owned()),
            InputType::Number if !is_number(text) => return Err("be a number".to_owned()),
            InputType::Boolean if !matches!(text, "true" | "false") => {
                return Err("be `true` or `false`".to_owned());
            }
            InputType::String | InputType::List if text.len() > longest => {
                return Err(format!("have at most {longest} bytes"));
            }
            InputType::Integer | InputType::Number => text.parse::<f64>().ok(),
            _ => None,
        };
        if let Some(number) = number {
            if let Some(least) = self.declared.minimum.filter(|least| number < *least) {
                return Err(format!("be at least {least}"));
            }
            if let Some(most) = self.declared.maximum.filter(|most| number > *most) {
                return Err(format!("be at most {most}"));
            }
        }
        match self.values.is_empty() || self.values.iter().any(|value| value == text) {
            true => Ok(()),
            false => Err(format!("be one of `{}`", self.values.join("`, `"))),
        }
    }
}

impl Place {
    /// Where it is, in words.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Query(_) => "query",
            Self::Header(_) => "header",
        }
    }
}

fn read(name: &str, declared: &declaration::Input, segments: &[Segment], mistakes: &mut Mistakes) -> Input {
    let place = below("/input", name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || !name.bytes().all(plain) || matches!(name, "each" | "body") {
        let hint = "use letters, digits, `_` and `-`, and neither `each` nor `body`";
        mistakes.add(Kind::Input, &place, format!("`{name}` is no name of an input"), hint);
    }
    let called = declared.name.as_deref().unwrap_or(name);
    let segment =
        segments.iter().position(|segment| matches!(segment, Segment::Named(name) if **name == *called));
    let stands = match (declared.place, segment) {
        (Some(InputPlace::Path) | None, Some(segment)) => Place::Path(segment),
        (Some(InputPlace::Path), None) => {
            let hint = format!("write `{{{called}}}` as a segment of the route's `path`");
            mistakes.add(
                Kind::Input,
                below(&place, "in"),
                format!("the route's path has no `{{{called}}}`"),
                hint,
            );
            Place::Query(called.into())
        }
        (Some(InputPlace::Header), _) => match HeaderName::try_from(called) {
            Ok(header) => Place::Header(header),
            Err(_) => {
                mistakes.add(Kind::Input, &place, format!("`{called}` is no header"), "use its name in HTTP");
                Place::Query(called.into())
            }
        },
        _ => Place::Query(called.into()),
    };
    if declared.of.is_some() != (declared.kind == InputType::List) && declared.of.is_some() {
        mistakes.add(
            Kind::Input,
            below(&place, "of"),
            "only a list has items",
            "leave `of` out, or write `type: list`",
        );
    }
    let item = match declared.kind {
        InputType::List => declared.of.filter(|of| *of != InputType::List).unwrap_or(InputType::String),
        kind => kind,
    };
    let values = declared.values.iter().map(text).collect();
    let mut input =
        Input { name: name.into(), place: stands, declared: declared.clone(), item, default: None, values };
    if let Some(default) = &declared.default {
        let texts = match default {
            Json::Array(items) => items.iter().map(text).collect(),
            other => vec![text(other)],
        };
        match input.value(texts) {
            Ok(value) => input.default = value,
            Err(error) => mistakes.add(
                Kind::Input,
                below(&place, "default"),
                error.to_string(),
                "use a value that a request could say",
            ),
        }
    }
    input
}

/// A value as a request would spell it.
fn text(value: &Json) -> String {
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
        && Document::new(text.to_owned().into())
            .is_ok_and(|document| document.root().kind() == JsonKind::Number)
        && !text.ends_with([' ', '\n', '\r', '\t'])
}

/// A segment of a path, without its escapes.
fn path_value(path: &str, segment: usize) -> Option<String> {
    let segment = path.split('/').nth(segment)?;
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        out.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? << 4 | digit(bytes.next())?).ok()?,
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(declared: &str, path: &str, target: &str) -> Result<Values, String> {
        let declared: IndexMap<String, declaration::Input> = serde_json::from_str(declared).unwrap();
        let mut mistakes = Mistakes::default();
        let inputs = Inputs::new(&declared, path, &mut mistakes);
        if let Some(mistake) = mistakes.into_vec().pop() {
            return Err(mistake.to_string());
        }
        let (parts, ()) =
            http::Request::get(target).header("x-tenant", "acme").body(()).unwrap().into_parts();
        inputs.read(&parts).map_err(|error| error.to_string())
    }

    fn texts(values: Values) -> Vec<Vec<String>> {
        values.into_iter().map(|value| value.map_or_else(Vec::new, |value| value.texts)).collect()
    }

    #[test]
    fn values_come_from_path_query_and_headers() {
        let declared = r#"{"id":{"type":"string"},"ids":{"type":"list","of":"integer"},"limit":{"type":"integer","default":20},
            "tenant":{"type":"string","in":"header","name":"x-tenant"},"page":{"type":"integer"}}"#;
        let values = read(declared, "/a/{id}/b", "/a/caf%C3%A9/b?ids=1,2&ids=3&other=x").unwrap();
        assert_eq!(texts(values), [vec!["café"], vec!["1", "2", "3"], vec!["20"], vec!["acme"], vec![]]);
    }

    #[test]
    fn what_is_out_of_bounds_says_what_it_must_be() {
        let declared = r#"{"n":{"type":"integer","minimum":1,"maximum":100,"required":true},"s":{"type":"string","values":["a","b"]},
            "x":{"type":"number"},"b":{"type":"boolean"},"t":{"type":"string","longest":3}}"#;
        for (query, known) in [
            ("", "the input `n` is missing from the query"),
            ("n=0", "`n` must be at least 1"),
            ("n=101", "`n` must be at most 100"),
            ("n=1e1", "`n` must be a whole number"),
            ("n=007", "`n` must be a whole number"),
            ("n=1&n=2", "`n` must stand there once"),
            ("n=1&s=c", "`s` must be one of `a`, `b`"),
            ("n=1&x=NaN", "`x` must be a number"),
            ("n=1&x=%2b1", "`x` must be a number"),
            ("n=1&b=yes", "`b` must be `true` or `false`"),
            ("n=1&t=long", "`t` must have at most 3 bytes"),
        ] {
            let error = read(declared, "/a", &format!("/a?{query}")).unwrap_err();
            assert!(error.contains(known), "{query}: {error}");
        }
        assert!(read(declared, "/a", "/a?n=99&s=a&x=-1.5e3&b=true&t=abc").is_ok());
    }

    #[test]
    fn inputs_that_can_never_be_are_mistakes() {
        for (declared, path, known) in [
            (r#"{"id":{"type":"integer","in":"path"}}"#, "/a", "the route's path has no `{id}`"),
            ("{}", "/a/{id}", "the route's path has `{id}`, which is no input"),
            (r#"{"n":{"type":"integer","maximum":5,"default":6}}"#, "/a", "must be at most 5"),
            (r#"{"each":{"type":"integer"}}"#, "/a", "is no name of an input"),
            (r#"{"n":{"type":"integer","of":"string"}}"#, "/a", "only a list has items"),
        ] {
            let error = read(declared, path, "/a").unwrap_err();
            assert!(error.contains(known), "{error}");
        }
    }
}
