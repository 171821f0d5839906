//! Runs every example of docs/aggregates.md, and compares the response with the documented one.

use http::Request;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value};

use super::fixture::AggregateFixture;
use crate::AggregateLimitsConfig;

const PAGE: &str = include_str!("../../../../docs/aggregates.md");

/// The responses of the services in the examples.
const ANSWERS: &[(&str, u16, &str)] = &[
    ("profile/buyers?limit=2", 200, r#"[{"id":1,"name":"Ann","mail":"a@x"},{"id":2,"name":"Bob"}]"#),
    ("profile/buyers", 200, r#"[{"id":1,"name":"Ann"},{"id":2,"name":"Bob"}]"#),
    ("profile/buyers/1", 200, r#"{"id":1,"name":"Ann"}"#),
    ("profile/buyers?ids=1", 200, r#"[{"id":1,"name":"Ann"}]"#),
    ("profile/towns/Ulm/buyers/1?with=mail&with=phone", 200, r#"{"id":1,"name":"Ann"}"#),
    ("PUT profile/buyers/1", 200, r#"{"id":1,"name":"Anna"}"#),
    ("profile/users/1", 200, r#"{"id":1}"#),
    ("profile/users/2", 200, r#"{"id":2}"#),
    ("catalog/catalogs?buyers=1,2", 200, r#"[{"id":31,"buyer_id":1,"title":"A logo","price":90}]"#),
    ("catalog/catalogs?buyer=1", 200, r#"[{"id":31,"buyer_id":1}]"#),
    ("catalog/catalogs?ids=31,99", 200, r#"[{"id":31,"buyer_id":1,"title":"A logo","price":90}]"#),
    ("order/orders?limit=2", 200, r#"[{"id":7,"catalog_id":31},{"id":8,"catalog_id":99}]"#),
    ("order/buyers/1/rating", 200, r#"{"stars":4.5}"#),
    ("order/buyers/2/rating", 404, "{}"),
];

/// An example: its request, declaration and response.
struct DocumentedExample {
    method: String,
    target: String,
    body: &'static str,
    declaration: String,
    answer: Value,
}

fn examples() -> Vec<DocumentedExample> {
    let blocks = PAGE.split("```yaml\n# ").skip(1);
    blocks
        .map(|block| {
            let (declaration, rest) = block.split_once("```").unwrap();
            let (title, declaration) = declaration.split_once('\n').unwrap();
            let (_, request) = title.split_once(": ").unwrap();
            let mut words = request.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default();
            let (method, target, body) = (word().to_owned(), word().to_owned(), word());
            let (answer, _) = rest.trim_start().strip_prefix("```json\n").unwrap().split_once("```").unwrap();
            let declaration = yaml_to_json(&Yaml::load_from_str(declaration).unwrap()[0]).to_string();
            DocumentedExample {
                method,
                target,
                body,
                declaration,
                answer: serde_json::from_str(answer).unwrap(),
            }
        })
        .collect()
}

fn yaml_to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Value(Scalar::FloatingPoint(value)) => value.into_inner().into(),
        Yaml::Value(Scalar::String(value)) => value.as_ref().into(),
        Yaml::Sequence(items) => items.iter().map(yaml_to_json).collect(),
        Yaml::Mapping(members) => {
            let member = |(name, value): (&Yaml<'_>, &Yaml<'_>)| {
                (name.as_str().unwrap_or_default().to_owned(), yaml_to_json(value))
            };
            Value::Object(members.iter().map(member).collect::<Map<_, _>>())
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the path of an example's route, as documented.
fn route_path(target: &str) -> &'static str {
    match target.split('?').next().unwrap_or_default() {
        "/towns/Ulm/buyers/1" => "/towns/{town}/buyers/{id}",
        "/buyers/1" => "/buyers/{id}",
        _ => "/here",
    }
}

#[tokio::test]
async fn documented_examples_give_the_documented_responses() {
    let examples = examples();
    assert_eq!(examples.len(), 7);
    for example in examples {
        let fixture = AggregateFixture::with_limits(
            route_path(&example.target),
            &example.declaration,
            AggregateLimitsConfig::default(),
            ANSWERS,
        );
        let request =
            Request::builder().method(&*example.method).uri(&example.target).body(example.body).unwrap();
        let got =
            fixture.send(request).await.unwrap_or_else(|problem| panic!("{}: {problem}", example.target));
        assert_eq!(got.json(), example.answer, "{}", example.target);
    }
}

#[test]
fn documented_limits_match_the_defaults() {
    let limits = AggregateLimitsConfig::default();
    for (name, value) in [
        ("calls", limits.calls.to_string()),
        ("concurrency", limits.concurrency.to_string()),
        ("fan_out", limits.fan_out.to_string()),
        ("upstream_bytes", limits.upstream_bytes.to_string()),
        ("timeout", limits.timeout.to_string()),
        ("request_body", limits.request_body.to_string()),
        ("response_body", limits.response_body.to_string()),
        ("memory", limits.memory.to_string()),
    ] {
        let row = PAGE.lines().find(|line| {
            line.starts_with(&format!("| `{name}` |")) && line.contains(&format!("| {value} |"))
        });
        assert!(row.is_some(), "{name}: {value}");
    }
}
