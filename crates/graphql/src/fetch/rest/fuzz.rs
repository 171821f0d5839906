//! Fuzz tests with arbitrary values from clients, for the operations of arbitrary documents: see
//! `fuzz/src/lib.rs`.

use std::sync::Arc;

use ::fuzz::ByteChoices;
use ::fuzz::generate::json::{KnownMemberNames, write_value};
use ::fuzz::generate::openapi::{self as generate, NAMES};
use json::JsonPath;
use serde_json::json;

use super::*;
use crate::schema::{SchemaDeclarations, SchemaDescription, SchemaSource, build_subgraphs};
use crate::subgraph::{BatchStrategy, BoundCall, RestParameter, SubgraphBindings, SubgraphProtocol};

#[test]
fn any_value_stays_within_its_part_of_the_url() {
    let parameter = |name: &str, place| {
        let from = ParameterSource::Argument(name.into());
        RestParameter {
            name: name.into(),
            location: place,
            is_required: false,
            is_repeated: false,
            source: from,
        }
    };
    let operation = RestOperation {
        method: Method::GET,
        path: "/a/{id}/b".into(),
        parameters: vec![parameter("id", ParameterLocation::Path), parameter("q", ParameterLocation::Query)],
        body: None,
        response_path: JsonPath::default(),
        is_text: false,
        is_empty: false,
    };
    ::fuzz::check(&["..", "/", "\\", "%2f", "?", "&", "#", "é", "\n", "\u{0}"], |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let values = json!({ "id": text, "q": text }).to_string();
        let arguments = ArgumentValues::parse(values.into()).expect("JSON");
        let request =
            RestRequestRenderer { operation: &operation, arguments: &arguments, key: RequestKey::None }
                .build_request();
        let Ok(request) = request else { return };
        let path = request.path_and_query.path();
        assert_eq!(path.split('/').count(), 4, "{path}");
        services::path::check_path(path).expect("a path that may be sent");
        let query = request.path_and_query.query().expect("a query");
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        assert_eq!(pairs, [("q".into(), text.into())]);
    });
}

/// Returns every operation that a field or a link calls.
fn all_operations(bindings: &SubgraphBindings) -> Vec<Arc<RestOperation>> {
    let mut operations: Vec<Arc<RestOperation>> = bindings.roots.values().map(Arc::clone).collect();
    for entity in bindings.entities.values() {
        let hows = entity.fetch_strategy.iter().chain(entity.links.values().map(|link| &link.strategy));
        operations.extend(hows.filter_map(|strategy| match strategy {
            BatchStrategy::KeyBatches(BoundCall::Rest(operation), _)
            | BatchStrategy::WholeList(BoundCall::Rest(operation), _)
            | BatchStrategy::PerObject(BoundCall::Rest(operation)) => Some(Arc::clone(operation)),
            _ => None,
        }));
    }
    operations
        .sort_by(|one, other| one.path.cmp(&other.path).then(one.method.as_str().cmp(other.method.as_str())));
    operations
}

/// Returns the names of the parameters in a location.
fn parameter_names(operation: &RestOperation, location: ParameterLocation) -> Vec<&str> {
    let of = operation.parameters.iter().filter(|parameter| parameter.location == location);
    of.map(|parameter| &*parameter.name).collect()
}

/// Asserts that a request matches its operation, and that its arguments changed nothing else in it.
fn assert_request_matches(operation: &RestOperation, request: &services::ServiceRequest) {
    let (path, query) = (request.path_and_query.path(), request.path_and_query.query().unwrap_or_default());
    let (own_path, own_query) = operation.path.split_once('?').unwrap_or((&operation.path, ""));
    assert_eq!(path.split('/').count(), own_path.split('/').count(), "{path} of {own_path}");
    let mut known = parameter_names(operation, ParameterLocation::Query);
    known.extend(own_query.split('&').filter_map(|pair| pair.split('=').next()));
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        let is_known = known.iter().any(|known| {
            name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        });
        assert!(is_known, "{name} is not a parameter of {operation:?}");
    }
    let declared = parameter_names(operation, ParameterLocation::Header);
    if !declared.iter().any(|name| name.eq_ignore_ascii_case("cookie")) {
        let cookies = request.headers.get_all(http::header::COOKIE).iter();
        let cookies = cookies.flat_map(|value| value.as_bytes().split(|byte| *byte == b';')).count();
        assert!(cookies <= parameter_names(operation, ParameterLocation::Cookie).len(), "{request:?}");
    }
    for name in request.headers.keys() {
        let is_ours = ["accept", "content-type", "cookie"].contains(&name.as_str());
        assert!(is_ours || declared.iter().any(|known| known.eq_ignore_ascii_case(name.as_str())), "{name}");
    }
}

#[test]
fn requests_of_any_document_match_its_declarations() {
    ::fuzz::run("openapi_requests", &[], |bytes| {
        let mut choices = ByteChoices::new(bytes);
        let text = generate::document(&mut choices).to_string();
        let document =
            openapi::OpenApiDocument::parse(&text).expect("an OpenAPI document").relative_to("/base");
        let source =
            SchemaSource { name: Arc::from("a"), description: SchemaDescription::OpenApi(&document) };
        let Ok((made, _)) = build_subgraphs(&[source], &SchemaDeclarations::default()) else { return };
        for it in made {
            let SubgraphProtocol::Rest(bindings) = &it.kind else { continue };
            for operation in all_operations(bindings) {
                for _ in 0..2 {
                    check_request(&mut choices, &operation);
                }
            }
        }
    });
}

/// Makes a request of an operation, with generated arguments.
fn check_request(choices: &mut ByteChoices<'_>, operation: &RestOperation) {
    let sources = operation.parameters.iter().map(|parameter| &parameter.source);
    let arguments = sources.filter_map(|from| match from {
        ParameterSource::Argument(name) | ParameterSource::Key(name) => Some(name),
        ParameterSource::Fixed(_) => None,
    });
    let arguments: Vec<String> = arguments
        .chain(&operation.body)
        .map(|name| {
            let mut text = String::new();
            write_value(choices, KnownMemberNames(NAMES.get(..6).unwrap_or_default()), 3, &mut text);
            format!("{}:{text}", serde_json::Value::from(&**name))
        })
        .collect();
    let Ok(arguments) = ArgumentValues::parse(format!("{{{}}}", arguments.join(",")).into()) else { return };
    if let Ok(request) =
        (RestRequestRenderer { operation, arguments: &arguments, key: RequestKey::None }).build_request()
    {
        assert_request_matches(operation, &request);
    }
}
