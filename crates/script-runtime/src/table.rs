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
    Method(String),
    /// No resource at this path.
    Nothing,
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
    pub(crate) async fn find(
        &self,
        service: &ScriptService,
        edition: &StateView,
        method: Option<HandlerMethod>,
        path: &str,
    ) -> Result<RoutingResult, StateError> {
        let decoded = decoded(path);
        let paths = || [Some(path), decoded.as_deref()].into_iter().flatten();
        for path in paths() {
            if let Some(resource) = self.literal.get(path).and_then(|index| service.resources.get(*index)) {
                return Ok(found(resource, method, path.to_owned(), None));
            }
        }
        for path in paths() {
            if let Some(instance) = Box::pin(edition.instance(path)).await?
                && let Some(resource) = service.resources.get(instance.resource())
            {
                return Ok(found(resource, method, path.to_owned(), Some(instance)));
            }
        }
        Ok(RoutingResult::Nothing)
    }
}

fn found(
    resource: &ScriptResource,
    method: Option<HandlerMethod>,
    path: String,
    instance: Option<DynamicInstance>,
) -> RoutingResult {
    let of = |wanted: HandlerMethod| resource.methods.iter().find(|(method, _)| *method == wanted);
    let own = method.and_then(|method| {
        of(method).or_else(|| (method == HandlerMethod::Head).then(|| of(HandlerMethod::Get))?)
    });
    match (own, method) {
        (Some((_, handler)), _) => RoutingResult::Handler { handler: *handler, path, instance },
        (None, Some(HandlerMethod::Options)) => RoutingResult::Options(allow(resource, instance.is_some())),
        (None, Some(HandlerMethod::Delete)) if instance.is_some() => RoutingResult::Delete(path),
        (None, _) => RoutingResult::Method(allow(resource, instance.is_some())),
    }
}

/// Returns the resources with literal paths: their paths, and their methods in the format of `Allow`.
pub(crate) fn fixed(service: &ScriptService) -> impl Iterator<Item = (&str, String)> {
    service.resources.iter().filter_map(|resource| match (&resource.path, resource.parent) {
        (ResourcePath::Literal(path), None) => Some((&**path, allow(resource, false))),
        _ => None,
    })
}

/// Returns the methods of a resource in the format of `Allow`.
fn allow(resource: &ScriptResource, is_instance: bool) -> String {
    let has = |wanted: HandlerMethod| resource.methods.iter().any(|(method, _)| *method == wanted);
    let is_allowed = |method: &HandlerMethod| match method {
        HandlerMethod::Options => true,
        HandlerMethod::Head => has(HandlerMethod::Head) || has(HandlerMethod::Get),
        HandlerMethod::Delete => has(HandlerMethod::Delete) || is_instance,
        method => has(*method),
    };
    let words: Vec<_> = HandlerMethod::ALL.into_iter().filter(is_allowed).map(HandlerMethod::word).collect();
    words.join(", ")
}

/// Returns the percent-decoded path, if it differs and is valid UTF-8. An encoded slash is not a separator
/// (RFC 3986, section 2.2), so a path with one is not decoded.
fn decoded(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = match after {
            [high, low, after @ ..] if *first == b'%' => hex(*high).zip(hex(*low)).map(|pair| (pair, after)),
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

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use script::TextPosition;

    use super::*;

    fn resource(methods: &[HandlerMethod]) -> ScriptResource {
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

    fn find(methods: &[HandlerMethod], method: Option<HandlerMethod>) -> String {
        match found(&resource(methods), method, "/data".into(), None) {
            RoutingResult::Handler { handler, .. } => format!("handler {handler}"),
            RoutingResult::Options(allow) => format!("options {allow}"),
            RoutingResult::Method(allow) => format!("not but {allow}"),
            RoutingResult::Delete(_) => "delete".into(),
            RoutingResult::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn rule_22_head_is_answered_from_get_and_options_is_generated() {
        use HandlerMethod::{Delete, Get, Head, Options, Put};
        assert_eq!(find(&[Put, Get], Some(Get)), "handler 1");
        assert_eq!(find(&[Put, Get], Some(Head)), "handler 1");
        assert_eq!(find(&[Get, Head], Some(Head)), "handler 1");
        assert_eq!(find(&[Put], Some(Head)), "not but PUT, OPTIONS");
        assert_eq!(find(&[Get, Put], Some(Options)), "options GET, HEAD, PUT, OPTIONS");
        assert_eq!(find(&[Get, Options], Some(Options)), "handler 1");
        assert_eq!(find(&[Get], Some(Delete)), "not but GET, HEAD, OPTIONS");
        assert_eq!(find(&[Get], None), "not but GET, HEAD, OPTIONS");
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(decoded("/a%20b").as_deref(), Some("/a b"));
        assert_eq!(decoded("/a%2520b").as_deref(), Some("/a%20b"));
        assert_eq!(decoded("/a%zz"), None);
        assert_eq!(decoded("/a%ff"), None, "not UTF-8");
        assert_eq!(decoded("/a%20b%2fc"), None, "an encoded slash");
        assert_eq!(decoded("/a%252fb").as_deref(), Some("/a%2fb"));
        assert_eq!(decoded("/a"), None);
    }
}
