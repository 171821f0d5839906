//! The routing table of a service: finds the handler of a path and a method. Literal paths are matched first,
//! then the instances that were created at run time; both match exactly (rule 22).

use std::collections::HashMap;

use script::{HandlerMethod, ResourcePath, ScriptResource, ScriptService};

use crate::state::{DynamicInstance, StateError, StateView};

/// The literal paths of a service.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    literal: HashMap<String, usize>,
}

/// The result of routing a request.
pub(crate) enum RoutingResult {
    /// A handler of a resource.
    Handler { handler: usize, path: String, instance: Option<DynamicInstance> },
    /// No handler for OPTIONS: the response lists the resource's methods.
    Options(String),
    /// DELETE without a handler: the instance is removed (rule 10).
    Delete(String),
    /// The resource exists, but has no handler for the method; contains the allowed methods.
    MethodNotAllowed(String),
    /// No resource at this path.
    NotFound,
}

impl PathTable {
    pub(crate) fn new(service: &ScriptService) -> Self {
        let mut literal = HashMap::new();
        for (index, resource) in service.resources.iter().enumerate() {
            if let (ResourcePath::Literal(path), None) = (&resource.path, resource.parent) {
                literal.entry(path.clone()).or_insert(index);
            }
        }
        Self { literal }
    }

    /// Routes a path and a method. Paths match exactly or percent-decoded. Literal paths are tried first in
    /// both forms, so that no instance can take the requests for them.
    pub(crate) async fn route(
        &self,
        service: &ScriptService,
        edition: &StateView,
        method: Option<HandlerMethod>,
        path: &str,
    ) -> Result<RoutingResult, StateError> {
        let decoded = percent_decode(path);
        let paths = || [Some(path), decoded.as_deref()].into_iter().flatten();
        for path in paths() {
            if let Some(resource) = self.literal.get(path).and_then(|index| service.resources.get(*index)) {
                return Ok(match_method(resource, method, path.to_owned(), None));
            }
        }
        for path in paths() {
            if let Some(instance) = Box::pin(edition.find_instance(path)).await?
                && let Some(resource) = service.resources.get(instance.resource())
            {
                return Ok(match_method(resource, method, path.to_owned(), Some(instance)));
            }
        }
        Ok(RoutingResult::NotFound)
    }
}

fn match_method(
    resource: &ScriptResource,
    method: Option<HandlerMethod>,
    path: String,
    instance: Option<DynamicInstance>,
) -> RoutingResult {
    let of =
        |handler_method: HandlerMethod| resource.methods.iter().find(|(method, _)| *method == handler_method);
    let own = method.and_then(|method| {
        of(method).or_else(|| (method == HandlerMethod::Head).then(|| of(HandlerMethod::Get))?)
    });
    match (own, method) {
        (Some((_, handler)), _) => RoutingResult::Handler { handler: *handler, path, instance },
        (None, Some(HandlerMethod::Options)) => {
            RoutingResult::Options(allow_header(resource, instance.is_some()))
        }
        (None, Some(HandlerMethod::Delete)) if instance.is_some() => RoutingResult::Delete(path),
        (None, _) => RoutingResult::MethodNotAllowed(allow_header(resource, instance.is_some())),
    }
}

/// Returns the resources with literal paths: their paths, and their methods in the format of `Allow`.
pub(crate) fn literal_resources(service: &ScriptService) -> impl Iterator<Item = (&str, String)> {
    service.resources.iter().filter_map(|resource| match (&resource.path, resource.parent) {
        (ResourcePath::Literal(path), None) => Some((&**path, allow_header(resource, false))),
        _ => None,
    })
}

/// Returns the methods of a resource in the format of `Allow`.
fn allow_header(resource: &ScriptResource, is_instance: bool) -> String {
    let has =
        |handler_method: HandlerMethod| resource.methods.iter().any(|(method, _)| *method == handler_method);
    let is_allowed = |method: &HandlerMethod| match method {
        HandlerMethod::Options => true,
        HandlerMethod::Head => has(HandlerMethod::Head) || has(HandlerMethod::Get),
        HandlerMethod::Delete => has(HandlerMethod::Delete) || is_instance,
        method => has(*method),
    };
    let words: Vec<_> =
        HandlerMethod::ALL.into_iter().filter(is_allowed).map(HandlerMethod::as_str).collect();
    words.join(", ")
}

/// Returns the percent-decoded path, if it differs and is valid UTF-8. An encoded slash is not a separator
/// (RFC 3986, section 2.2), so a path with one is not decoded.
fn percent_decode(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = match after {
            [high, low, after @ ..] if *first == b'%' => {
                hex_digit(*high).zip(hex_digit(*low)).map(|pair| (pair, after))
            }
            _ => None,
        };
        match escape {
            Some(((2, 15), _)) => return None,
            Some(((high, low), after)) => {
                bytes.push(high << 4 | low);
                rest = after;
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|text| text != path)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use script::TextPosition;

    use super::*;

    fn test_resource(methods: &[HandlerMethod]) -> ScriptResource {
        ScriptResource {
            key: "/data".into(),
            path: ResourcePath::Literal("/data".into()),
            parent: None,
            captures: Vec::new(),
            methods: methods.iter().copied().enumerate().map(|(handler, method)| (method, handler)).collect(),
            cells: Vec::new(),
            position: TextPosition::default(),
        }
    }

    fn route_method(methods: &[HandlerMethod], method: Option<HandlerMethod>) -> String {
        match match_method(&test_resource(methods), method, "/data".into(), None) {
            RoutingResult::Handler { handler, .. } => format!("handler {handler}"),
            RoutingResult::Options(allow) => format!("options {allow}"),
            RoutingResult::MethodNotAllowed(allow) => format!("not but {allow}"),
            RoutingResult::Delete(_) => "delete".into(),
            RoutingResult::NotFound => "nothing".into(),
        }
    }

    #[test]
    fn rule_22_head_is_answered_from_get_and_options_is_generated() {
        use HandlerMethod::{Delete, Get, Head, Options, Put};
        assert_eq!(route_method(&[Put, Get], Some(Get)), "handler 1");
        assert_eq!(route_method(&[Put, Get], Some(Head)), "handler 1");
        assert_eq!(route_method(&[Get, Head], Some(Head)), "handler 1");
        assert_eq!(route_method(&[Put], Some(Head)), "not but PUT, OPTIONS");
        assert_eq!(route_method(&[Get, Put], Some(Options)), "options GET, HEAD, PUT, OPTIONS");
        assert_eq!(route_method(&[Get, Options], Some(Options)), "handler 1");
        assert_eq!(route_method(&[Get], Some(Delete)), "not but GET, HEAD, OPTIONS");
        assert_eq!(route_method(&[Get], None), "not but GET, HEAD, OPTIONS");
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(percent_decode("/a%20b").as_deref(), Some("/a b"));
        assert_eq!(percent_decode("/a%2520b").as_deref(), Some("/a%20b"));
        assert_eq!(percent_decode("/a%zz"), None);
        assert_eq!(percent_decode("/a%ff"), None, "not UTF-8");
        assert_eq!(percent_decode("/a%20b%2fc"), None, "an encoded slash");
        assert_eq!(percent_decode("/a%252fb").as_deref(), Some("/a%2fb"));
        assert_eq!(percent_decode("/a"), None);
    }
}
