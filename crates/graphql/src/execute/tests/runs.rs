//! Supergraphs that Apollo's composition made, and those that are composed here of the same services, executed: what comes
//! out is what one server with all data answers (`oracle/runs/`).

use std::fmt::Write as _;

use serde_json::Value;

use super::rig::Rig;
use crate::compose::tests::{cases, composed};

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/oracle/runs");

#[tokio::test]
async fn whatever_federation_allows_is_answered_as_one_server_with_all_data_answers() {
    let mut wrong = String::new();
    for [name, case, expected] in cases(RUNS) {
        let (services, rest) = case.split_once("# data\n").expect("data");
        let (data, asks) = rest.split_once("\n# ask").expect("something to ask");
        let data: Value = serde_json::from_str(data).expect("JSON");
        let (apollos, answers) = expected.split_once("\n# answers\n").expect("answers");
        let apollos = apollos.strip_prefix("# supergraph\n").expect("a supergraph").to_owned();
        for (whose, supergraph) in
            [("Apollo's", apollos), ("ours", composed(services).expect("a supergraph"))]
        {
            let rig = Rig::ready(&supergraph, data.clone());
            let asks = asks.split("\n# ask");
            assert_eq!(
                asks.clone().count(),
                answers.lines().count(),
                "`node remake.mjs` makes what is expected"
            );
            for (ask, answer) in asks.zip(answers.lines()) {
                if let Some(difference) = difference(&rig, ask, answer).await {
                    let _ = writeln!(wrong, "== {name}, {whose}\n{}\n{difference}", ask.trim());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

async fn difference(rig: &Rig, ask: &str, expected: &str) -> Option<String> {
    let (ask, _) = ask.split_once("\n# answer").unwrap_or((ask, ""));
    let (query, variables) = ask.split_once("\n# variables\n").unwrap_or((ask, "{}"));
    let answer = rig.ask_with(query, variables).await;
    let wrong = rig.wrong();
    let is_same = comparable(&answer) == comparable(expected);
    (!is_same || !wrong.is_empty())
        .then(|| format!("  {expected}\n  {answer}\n  {wrong:#?}\n  {:#?}", rig.asked_in_order()))
}

/// An answer with no more of its errors than their messages and paths, in the order of these.
fn comparable(answer: &str) -> Value {
    let Ok(mut answer) = serde_json::from_str::<Value>(answer) else { return answer.into() };
    if let Some(errors) = answer.get_mut("errors").and_then(Value::as_array_mut) {
        for error in errors.iter_mut() {
            *error = serde_json::json!([error["path"].to_string(), error["message"]]);
        }
        errors.sort_by_key(Value::to_string);
    }
    answer
}
