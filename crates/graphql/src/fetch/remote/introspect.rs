//! Introspection of GraphQL services, when the gateway starts or reloads its config.

use std::sync::Arc;
use std::time::Duration;

use json::JsonNode;
use services::{CallError, PathError, RequestBudget, RequestCall, ServiceSet};

use super::{EncodedDocument, GraphqlServiceResponse, build_body, build_request};
use crate::fetch::call_failure::CallFailureReason;
use crate::fetch::service_response::ServiceResponse;

/// The time limit of a service's introspection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a schema in bytes.
const MAX_SCHEMA_BYTES: u64 = 32 << 20;

/// The introspection query of graphql-js without the parts that older servers do not support. Types are
/// nested as deeply as there.
const INTROSPECTION_QUERY: &str = "query IntrospectionQuery { __schema { \
queryType { name } mutationType { name } subscriptionType { name } \
types { kind name description \
fields(includeDeprecated: true) { name description args { ...Argument } type { ...Type } isDeprecated deprecationReason } \
inputFields { ...Argument } interfaces { ...Type } \
enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...Type } } \
directives { name description locations args { ...Argument } } } } \
fragment Argument on __InputValue { name description type { ...Type } defaultValue } \
fragment Type on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name \
ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } } }";

/// The query for the SDL of an Apollo Federation subgraph.
const SERVICE_SDL_QUERY: &str = "{ _service { sdl } }";

/// The error of a failed introspection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NotIntrospected {
    /// A plain text that contains the service's name.
    pub(crate) message: String,
}

/// Fetches the schema of a service: the text of an object with `__schema`, or the SDL of an Apollo Federation
/// subgraph, because introspection omits the applied directives.
///
/// # Errors
/// If the service does not respond with a schema in time.
pub(crate) async fn introspect(
    services: &ServiceSet,
    service: &str,
    path: &str,
    is_federated: bool,
) -> Result<String, NotIntrospected> {
    let schema = fetch_schema(services, service, path, is_federated).await;
    schema.map_err(|reason| {
        let error = reason.into_source_error(&Arc::from(service));
        NotIntrospected { message: error.message }
    })
}

async fn fetch_schema(
    services: &ServiceSet,
    service: &str,
    path: &str,
    is_federated: bool,
) -> Result<String, CallFailureReason> {
    let budget = Arc::new(RequestBudget::new(TIMEOUT, 1, MAX_SCHEMA_BYTES, 1));
    let call = RequestCall { budget, ..RequestCall::unlimited() };
    let unknown = || CallFailureReason::Call(CallError::Path(PathError::UnknownService).into());
    let service = services.get(service).ok_or_else(unknown)?;
    let request = build_request(
        path,
        build_body(
            &EncodedDocument::new(if is_federated { SERVICE_SDL_QUERY } else { INTROSPECTION_QUERY }),
            |_| {},
        ),
    )?;
    let answer = services
        .send(&call, service, request)
        .await
        .map_err(|error| CallFailureReason::Call(error.into()))?;
    let answer = ServiceResponse::from(answer);
    let GraphqlServiceResponse { document, data, reported_errors: told, status } =
        GraphqlServiceResponse::from_service(&answer).await?;
    let data = data.and_then(|spot| document.node_by_id(spot));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = match is_federated {
        true => {
            data.and_then(|data| data.member(b"_service")?.member(b"sdl")?.string()).map(|sdl| text(&sdl))
        }
        false => {
            let has_one = |data: &JsonNode<'_>| {
                data.member(b"__schema").is_some_and(|schema| super::is_not_null(&schema))
            };
            data.filter(has_one).map(|data| text(data.text()))
        }
    };
    let place = if is_federated { "/data/_service/sdl" } else { "/data/__schema" };
    match said {
        Some(said) => Ok(said),
        None if told.is_empty() => Err(CallFailureReason::MissingPath(place.to_owned())),
        None => Err(CallFailureReason::ReportedErrors(told, status)),
    }
}
