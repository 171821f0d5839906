//! A request of an operation: its parameters stand where the service wants them, each spelt as that place is.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use json::{Kind, Node};
use openapi::Place as In;
use services::path::{encode, is_segment};
use services::{CallError, PathError, Request};

use crate::reason::Reason;
use crate::sources::Arguments;
use crate::subgraph::{From, Operation, Parameter};

/// What makes a request of an operation.
pub(crate) struct Renderer<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) arguments: &'a Arguments,
    pub(crate) key: Key<'a>,
}

/// The objects that it is made for.
#[derive(Clone, Copy)]
pub(crate) enum Key<'a> {
    /// None.
    None,
    /// One: the fields of its key, and their values.
    One(&'a [Box<str>], &'a [Node<'a>]),
    /// Many: the values of the only field, as texts.
    Many(&'a [Cow<'a, str>]),
}

/// The value of a parameter.
enum Value<'a> {
    Node(Node<'a>),
    Fixed(&'a serde_json::Value),
    Texts(&'a [Cow<'a, str>]),
}

impl<'a> Renderer<'a> {
    pub(crate) fn request(&self) -> Result<Request, Reason> {
        let mut url = self.path()?;
        let mut headers = HeaderMap::new();
        let accept = match self.operation.is_text {
            true => const { HeaderValue::from_static("text/*, */*;q=0.5") },
            false => const { HeaderValue::from_static("application/json") },
        };
        headers.insert(ACCEPT, accept);
        let mut query = Query { url: &mut url, is_first: true };
        let mut cookies = String::new();
        for parameter in &self.operation.parameters {
            let Some(value) = self.value(parameter) else { continue };
            match parameter.place {
                In::Path => {}
                In::Query => query.add(parameter, &value)?,
                In::Header => {
                    let no_header = || Reason::NoHeader(parameter.name.clone());
                    let name = HeaderName::from_bytes(parameter.name.as_bytes()).map_err(|_| no_header())?;
                    let text = texts(parameter, &value)?.join(",");
                    headers.insert(name, HeaderValue::try_from(text).map_err(|_| no_header())?);
                }
                In::Cookie => {
                    let before = if cookies.is_empty() { "" } else { "; " };
                    let text = encode(&texts(parameter, &value)?.join(","));
                    cookies.extend([before, &parameter.name, "=", &text]);
                }
            }
        }
        if !cookies.is_empty() {
            let no_header = |_| Reason::NoHeader("cookie".into());
            headers.insert(COOKIE, HeaderValue::try_from(cookies).map_err(no_header)?);
        }
        let body = self.body();
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
        }
        let invalid = |_| Reason::Call(CallError::Path(PathError::Invalid).into());
        let path_and_query = PathAndQuery::try_from(url).map_err(invalid)?;
        Ok(Request { method: self.operation.method.clone(), path_and_query, headers, body })
    }

    fn path(&self) -> Result<String, Reason> {
        let mut url = String::with_capacity(self.operation.path.len() + 64);
        let mut rest = &*self.operation.path;
        while let Some((before, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').unwrap_or((behind, ""));
            url.push_str(before);
            let is_it = |parameter: &&Parameter| parameter.place == In::Path && *parameter.name == *name;
            let parameter = self.operation.parameters.iter().find(is_it);
            let parameter = parameter.ok_or_else(|| Reason::NoValue(name.into()))?;
            let value = self.value(parameter).ok_or_else(|| Reason::NoValue(name.into()))?;
            for (place, text) in texts(parameter, &value)?.iter().enumerate() {
                if !is_segment(text) {
                    return Err(Reason::NoSegment(name.into()));
                }
                if place > 0 {
                    url.push(',');
                }
                url.push_str(&encode(text));
            }
            rest = behind;
        }
        url.push_str(rest);
        Ok(url)
    }

    /// The JSON body; empty where there is none.
    fn body(&self) -> Bytes {
        let argument = self.operation.body.as_deref();
        argument.and_then(|name| self.arguments.get(name)).map_or_else(Bytes::new, Node::slice)
    }

    /// A parameter's value; none where it is left out.
    fn value(&self, parameter: &'a Parameter) -> Option<Value<'a>> {
        let node = match (&parameter.from, self.key) {
            (From::Fixed(value), _) => return Some(Value::Fixed(value)),
            (From::Key(_), Key::Many(texts)) => return Some(Value::Texts(texts)),
            (From::Key(name), Key::One(fields, values)) => {
                *values.get(fields.iter().position(|field| field == name)?)?
            }
            (From::Key(_), Key::None) => return None,
            (From::Argument(name), _) => self.arguments.get(name)?,
        };
        (node.kind() != Kind::Null).then_some(Value::Node(node))
    }
}

/// The query of a URL, as it is written.
struct Query<'a> {
    url: &'a mut String,
    is_first: bool,
}

impl Query<'_> {
    fn add(&mut self, parameter: &Parameter, value: &Value<'_>) -> Result<(), Reason> {
        if let Value::Node(node) = value
            && node.kind() == Kind::Object
        {
            return self.object(parameter, &encode(&parameter.name), *node);
        }
        let (name, texts) = (encode(&parameter.name), texts(parameter, value)?);
        match parameter.is_repeated {
            true => texts.iter().for_each(|text| self.pair(&name, [&**text])),
            false => self.pair(&name, texts.iter().map(|text| &**text)),
        }
        Ok(())
    }

    /// An object: its members by their own names, or all of it below the parameter's, in brackets (OpenAPI's `deepObject`,
    /// and below that as common servers read it).
    fn object(&mut self, parameter: &Parameter, name: &str, node: Node<'_>) -> Result<(), Reason> {
        for (key, value) in node.members() {
            let key = encode(&key.node().plain().unwrap_or_default());
            match parameter.is_repeated {
                true => self.below(parameter, &key, value)?,
                false => self.below(parameter, &format!("{name}%5B{key}%5D"), value)?,
            }
        }
        Ok(())
    }

    fn below(&mut self, parameter: &Parameter, name: &str, node: Node<'_>) -> Result<(), Reason> {
        match (node.kind(), parameter.is_repeated) {
            (Kind::Null, _) => {}
            (Kind::Object, false) => self.object(parameter, name, node)?,
            (Kind::Array, false) => {
                for (place, item) in node.items().enumerate() {
                    self.below(parameter, &format!("{name}%5B{place}%5D"), item)?;
                }
            }
            (kind, _) => {
                let text =
                    node.plain().ok_or_else(|| Reason::WrongKind(parameter.name.clone(), kind.name()))?;
                self.pair(name, [&*text]);
            }
        }
        Ok(())
    }

    /// A name and its value, or its values with commas.
    fn pair<'t>(&mut self, name: &str, texts: impl IntoIterator<Item = &'t str>) {
        self.url.push(if std::mem::take(&mut self.is_first) { '?' } else { '&' });
        self.url.push_str(name);
        self.url.push('=');
        for (place, text) in texts.into_iter().enumerate() {
            if place > 0 {
                self.url.push(',');
            }
            self.url.push_str(&encode(text));
        }
    }
}

/// The texts of a scalar, or of a list of them.
fn texts<'v>(parameter: &Parameter, value: &'v Value<'_>) -> Result<Cow<'v, [Cow<'v, str>]>, Reason> {
    let wrong = |kind: &'static str| Reason::WrongKind(parameter.name.clone(), kind);
    let plain = |node: Node<'v>| node.plain().ok_or_else(|| wrong(node.kind().name()));
    Ok(match value {
        Value::Texts(texts) => Cow::Borrowed(*texts),
        Value::Node(node) if node.kind() == Kind::Array => {
            node.items().filter(|item| item.kind() != Kind::Null).map(plain).collect::<Result<_, _>>()?
        }
        Value::Node(node) => vec![plain(*node)?].into(),
        Value::Fixed(serde_json::Value::Array(items)) => items.iter().map(fixed).collect(),
        Value::Fixed(value) => vec![fixed(value)].into(),
    })
}

fn fixed(value: &serde_json::Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed)
}
