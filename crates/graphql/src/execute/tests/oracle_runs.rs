//! Executes queries on supergraphs from Apollo's composition and from this crate's composition of the same
//! services. The response must equal that of a single server with all data (`tests/fixtures/oracle/runs/`).

use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::ExecutionFixture;
use crate::compose::tests::{compose_case, read_cases};

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/oracle/runs");

/// Services, their data, and queries.
pub(super) struct ExecutionCase {
    pub(super) name: String,
    pub(super) queries: Vec<CaseQuery>,
    data: Value,
    supergraphs: [(&'static str, String); 2],
}

/// A query, and the response of a single server with all data.
pub(super) struct CaseQuery {
    pub(super) query: String,
    pub(super) variables: String,
    pub(super) answer: String,
}

impl ExecutionCase {
    /// Returns a rig for Apollo's supergraph, and one for ours.
    pub(super) fn fixtures(&self) -> impl Iterator<Item = (&'static str, &str, ExecutionFixture)> {
        self.supergraphs.iter().map(|(whose, supergraph)| {
            (*whose, supergraph.as_str(), ExecutionFixture::with_supergraph(supergraph, self.data.clone()))
        })
    }
}

pub(super) fn read_runs() -> impl Iterator<Item = ExecutionCase> {
    read_cases(RUNS).into_iter().map(|[name, case, expected]| {
        let (services, rest) = case.split_once("# data\n").expect("data");
        let (data, asks) = rest.split_once("\n# ask").expect("a query");
        let data: Value = serde_json::from_str(data).expect("JSON");
        let (apollos, answers) = expected.split_once("\n# answers\n").expect("answers");
        let apollos = apollos.strip_prefix("# supergraph\n").expect("a supergraph").to_owned();
        let asks = asks.split("\n# ask");
        assert_eq!(asks.clone().count(), answers.lines().count(), "`node remake.mjs` updates them");
        let ask = |(ask, answer): (&str, &str)| {
            let (ask, _) = ask.split_once("\n# answer").unwrap_or((ask, ""));
            let (query, variables) = ask.split_once("\n# variables\n").unwrap_or((ask, "{}"));
            CaseQuery { query: query.to_owned(), variables: variables.to_owned(), answer: answer.to_owned() }
        };
        let asks = asks.zip(answers.lines()).map(ask).collect();
        let ours = compose_case(services).expect("a supergraph");
        ExecutionCase { name, queries: asks, data, supergraphs: [("Apollo's", apollos), ("ours", ours)] }
    })
}

#[tokio::test]
async fn federated_responses_equal_those_of_a_single_server() {
    let mut wrong = String::new();
    for case in read_runs() {
        for (whose, _, fixture) in case.fixtures() {
            for query in &case.queries {
                if let Some(difference) = response_difference(&fixture, query).await {
                    let _ =
                        writeln!(wrong, "== {}, {whose}\n{}\n{difference}", case.name, query.query.trim());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

async fn response_difference(fixture: &ExecutionFixture, query: &CaseQuery) -> Option<String> {
    let answer = fixture.query_with_variables(&query.query, &query.variables).await;
    let wrong = fixture.take_violations();
    let is_same = comparable_response(&answer) == comparable_response(&query.answer);
    (!is_same || !wrong.is_empty())
        .then(|| format!("  {}\n  {answer}\n  {wrong:#?}\n  {:#?}", query.answer, fixture.take_requests()))
}

/// Returns a response whose errors are reduced to their messages and paths and sorted.
pub(super) fn comparable_response(answer: &str) -> Value {
    let Ok(mut answer) = serde_json::from_str::<Value>(answer) else { return answer.into() };
    if let Some(errors) = answer.get_mut("errors").and_then(Value::as_array_mut) {
        for error in errors.iter_mut() {
            *error = serde_json::json!([error["path"].to_string(), error["message"]]);
        }
        errors.sort_by_key(Value::to_string);
    }
    answer
}
