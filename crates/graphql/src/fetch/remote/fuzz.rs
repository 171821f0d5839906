//! Fuzz tests with arbitrary responses of GraphQL services: see `fuzz/src/lib.rs`.

use futures_util::FutureExt;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::fetch::service_response::ServiceResponse;

const WORDS: &[&str] = &[
    "{\"data\":",
    "{\"_entities\":[",
    ",\"errors\":[",
    "{\"message\":\"a\"",
    ",\"path\":[\"_entities\",",
    ",\"extensions\":{}",
    "]",
    "}",
    "{}",
    ",",
    "null",
    "0",
    "9",
    "-1",
    "\"a\"",
];
const VALID_RESPONSE: &[u8] =
    br#"{"data":{"_entities":[{"a":1},null]},"errors":[{"message":"a","path":["_entities",1,"b"]}]}"#;

#[test]
fn any_response_gives_each_target_a_result_with_valid_references() {
    ::fuzz::run("graphql_responses", WORDS, |bytes: &[u8]| {
        for body in [bytes.to_vec(), ::fuzz::damage_input(VALID_RESPONSE, bytes)] {
            let answer = services::ProgramResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: body.into(),
            };
            let answer = ServiceResponse::from(answer);
            let Some(Ok(response)) = GraphqlServiceResponse::from_service(&answer).now_or_never() else {
                continue;
            };
            let fetched = assign_entities(response, &[("_entities", 2)], &"shop".into());
            assert_eq!(fetched.outcomes.len(), 2);
            for outcome in &fetched.outcomes {
                match outcome {
                    FetchOutcome::Null | FetchOutcome::Many(_) => {}
                    FetchOutcome::One(place) => {
                        assert!(fetched.documents[0].node_by_id(place.node_id).is_some())
                    }
                    FetchOutcome::Partial(_, error) | FetchOutcome::Failed(error) => {
                        assert!((*error as usize) < fetched.errors.len());
                    }
                }
            }
        }
    });
}
