//! Tests of aliases that equal the names of fields that steps fetch for their own use. The response has the
//! aliased field as with any other alias, and contains nothing hidden.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use graphql_tools::static_graphql::query::{
    Definition, Document, OperationDefinition, Selection, SelectionSet,
};
use serde_json::{Map, Value, json};

use super::federated::federated_fixture;
use super::fixture::ExecutionFixture;
use super::nested::{BLOG, PEOPLE, POSTS};
use super::oracle_runs::{comparable_response, read_runs};

/// A schema with an object whose key is hidden from clients, and for which a second service has further
/// fields.
fn hidden_key_fixture() -> ExecutionFixture {
    let first = r#"type Query { o: O n: N } interface N { id: ID! } type O implements N @key(fields: "secret") @key(fields: "id") {
      secret: ID! @inaccessible id: ID! s: String p: P @shareable } type P { x: Int @inaccessible y: Int }"#;
    let second = r#"type O @key(fields: "secret") { secret: ID! @inaccessible b: String
      p: P @external sum: Int @requires(fields: "p { x }") } type P { x: Int @external }"#;
    let object = json!({ "__typename": "O", "secret": "TOP-SECRET", "id": "7", "s": "ess",
        "p": { "__typename": "P", "x": 4, "y": 5 } });
    federated_fixture(
        &[("first", first), ("second", second)],
        json!({
            "first": { "Query": { "o": object, "n": object }, "O": [object] },
            "second": { "O": [{ "secret": "TOP-SECRET", "b": "bee", "sum": 9 }] },
        }),
    )
}

#[tokio::test]
async fn an_alias_named_like_a_hidden_key_returns_the_aliased_field() {
    let fixture = hidden_key_fixture();
    for (ask, answer) in [
        ("{ o { secret: b } }", r#"{"o":{"secret":"bee"}}"#),
        ("{ o { secret: b b } }", r#"{"o":{"secret":"bee","b":"bee"}}"#),
        ("{ o { ...F } } fragment F on O { secret: b }", r#"{"o":{"secret":"bee"}}"#),
        ("{ o { id: b } }", r#"{"o":{"id":"bee"}}"#),
        ("{ o { b: id id: b } }", r#"{"o":{"b":"7","id":"bee"}}"#),
        ("{ o { secret: s id: b } }", r#"{"o":{"secret":"ess","id":"bee"}}"#),
        ("{ o { secret: __typename id: b } }", r#"{"o":{"secret":"O","id":"bee"}}"#),
        ("{ o { id: __typename b } }", r#"{"o":{"id":"O","b":"bee"}}"#),
        ("{ o { __typename: b } }", r#"{"o":{"__typename":"bee"}}"#),
        ("{ n { __typename: id ... on O { secret: b } } }", r#"{"n":{"__typename":"7","secret":"bee"}}"#),
        ("{ n { id: __typename ... on O { s } } }", r#"{"n":{"id":"O","s":"ess"}}"#),
        ("{ n { t: __typename @skip(if: true) ... on O { b } } }", r#"{"n":{"b":"bee"}}"#),
        ("{ o { p: b sum } }", r#"{"o":{"p":"bee","sum":9}}"#),
        ("{ o { sum p { x: y } } }", r#"{"o":{"sum":9,"p":{"x":5}}}"#),
        ("{ secret: o { p: sum x: p { x: y } } }", r#"{"secret":{"p":9,"x":{"x":5}}}"#),
        ("{ o { orfa_1_id: id id: b } }", r#"{"o":{"orfa_1_id":"7","id":"bee"}}"#),
    ] {
        assert_eq!(fixture.query(ask).await, format!(r#"{{"data":{answer}}}"#), "{ask}");
        let asked = fixture.take_sorted_requests().join("\n");
        assert!(asked.contains("TOP-SECRET") || !ask.contains('b'), "the test asks no second service");
    }
    assert!(fixture.query("{ o { secret } }").await.contains("graphql-invalid"));
}

#[tokio::test]
async fn an_alias_named_like_a_key_of_a_link_returns_the_aliased_field() {
    let names = r#"{ "openapi": "3.0.3", "info": { "title": "names", "version": "1" }, "paths": { "/names/{id}": { "get": {
      "operationId": "nameOf", "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }],
      "responses": { "200": { "description": "", "content": { "application/json": { "schema": { "type": "string" } } } } } } } } }"#;
    let links = r#"{ "types": { "Post": { "fields": { "user_id": { "hide": true } } } }, "links": {
      "Post.user": { "get": "people/users?ids={user_id}", "on": "user_id = id", "one": true },
      "Post.author": { "get": "names/names/{user_id}" },
      "Post.comments": { "get": "blog/comments", "on": "id = post_id" } } }"#;
    let users = r#"[{"id":7,"name":"Ann"},{"id":8,"name":"Bob"}]"#;
    let comments = r#"[{"id":10,"post_id":1,"text":"x"}]"#;
    let answers = [
        POSTS,
        ("people/users?ids=7,8", users),
        ("blog/comments", comments),
        ("names/names/7", "\"Ann\""),
        ("names/names/8", "\"Bob\""),
    ];
    let fixture = ExecutionFixture::with_rest_services(
        &[("blog", BLOG), ("people", PEOPLE), ("names", names)],
        links,
        &answers,
    );
    assert_eq!(
        fixture.query("{ posts { user_id: author id: title } }").await,
        r#"{"data":{"posts":[{"user_id":"Ann","id":"one"},{"user_id":"Bob","id":"two"},{"user_id":"Ann","id":"three"}]}}"#
    );
    assert_eq!(
        fixture.query("{ posts { user_id: title id: user { id: name } } }").await,
        r#"{"data":{"posts":[{"user_id":"one","id":{"id":"Ann"}},{"user_id":"two","id":{"id":"Bob"}},{"user_id":"three","id":{"id":"Ann"}}]}}"#
    );
    assert_eq!(
        fixture
            .query("{ posts { id: comments { post_id: text id: __typename } user_id: user { name } } }")
            .await,
        r#"{"data":{"posts":[{"id":[{"post_id":"x","id":"Comment"}],"user_id":{"name":"Ann"}},{"id":[],"user_id":{"name":"Bob"}},{"id":[],"user_id":{"name":"Ann"}}]}}"#
    );
}

#[tokio::test]
async fn links_of_a_graphql_service_work_with_any_alias() {
    let graph = json!({ "Query": { "list": [{ "__typename": "T", "no": 3, "next": 4, "state": "open" }] } });
    let fixture = ExecutionFixture::with_renamed_service(graph);
    for (ask, answer) in [
        (
            "{ orders { ... on Order { orfa_need_after: number next { number } } } }",
            r#"{"orfa_need_after":3,"next":null}"#,
        ),
        ("{ orders { ... on Order { after: number next: state } } }", r#"{"after":3,"next":"OPEN"}"#),
        (
            "{ orders { ... on Order { orfa_key: number no: after number: state } } }",
            r#"{"orfa_key":3,"no":4,"number":"OPEN"}"#,
        ),
    ] {
        let answered = fixture.query(ask).await;
        assert_eq!(answered, format!(r#"{{"data":{{"orders":[{answer}]}}}}"#), "{ask}");
    }
}

#[tokio::test]
async fn errors_use_the_clients_keys_and_no_hidden_names() {
    let first = r#"type Query { o: O } type O @key(fields: "secret") { secret: ID! @inaccessible s: String q: Q } type Q { s: String }"#;
    let second = r#"type O @key(fields: "secret") { secret: ID! @inaccessible b: String }"#;
    let object = json!({ "__typename": "O", "secret": { "__error": "no key" }, "s": { "__error": "no s" },
        "q": { "__typename": "Q", "s": { "__error": "no deep s" } } });
    let data = json!({ "first": { "Query": { "o": object }, "O": [] }, "second": { "O": [] } });
    let fixture = federated_fixture(&[("first", first), ("second", second)], data);
    let answer: Value =
        serde_json::from_str(&fixture.query("{ x: o { secret: s b secret2: q { secret: s } } }").await)
            .unwrap();
    let mut paths: Vec<String> =
        answer["errors"].as_array().unwrap().iter().map(|error| error["path"].to_string()).collect();
    paths.sort();
    assert_eq!(paths, [r#"["x","secret"]"#, r#"["x","secret2","secret"]"#, r#"["x"]"#], "{answer}");
}

/// Any names of aliases yield the same response up to these names, and valid documents to services.
#[tokio::test]
async fn aliases_change_only_names_in_the_response() {
    let mut wrong = String::new();
    let mut count = 0;
    let mut random = SmallRandom(35);
    for case in read_runs() {
        for (whose, supergraph, fixture) in case.fixtures() {
            let names = field_names(supergraph);
            for case_query in &case.queries {
                for _ in 0..6 {
                    let Some((query, expected)) =
                        with_random_aliases(&case_query.query, &case_query.answer, &names, &mut random)
                    else {
                        continue;
                    };
                    fixture.reset_mutations();
                    let answer = fixture.query_with_variables(&query, &case_query.variables).await;
                    let invalid = fixture.take_violations();
                    count += 1;
                    if comparable_response(&answer) != comparable_response(&expected) || !invalid.is_empty() {
                        let _ = writeln!(
                            wrong,
                            "== {}, {whose}\n{}\n{query}\n  {expected}\n  {answer}\n  {invalid:#?}",
                            case.name, case_query.query
                        );
                    }
                }
            }
        }
    }
    assert!(count > 500, "{count} documents");
    assert!(wrong.is_empty(), "{wrong}");
}

/// A generator of small pseudo-random numbers.
struct SmallRandom(u64);

impl SmallRandom {
    fn next_below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

/// Returns the names of all fields, and those that gateways and planners generate.
fn field_names(supergraph: &str) -> Vec<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for line in supergraph.lines() {
        let name: String = line
            .trim()
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
            .collect();
        if !name.is_empty() && !name.starts_with("join__") && !name.starts_with("link__") {
            names.insert(name);
        }
    }
    let own = [
        "__typename",
        "__schema",
        "_entities",
        "_e0",
        "_internal_qp_alias_0",
        "_internal_qp_alias_1",
        "orfa_key",
        "orfa_list",
        "orfa_need_id",
        "orfa_1_id",
        "orfa_1___typename",
        "orfa_2_id",
        "representations",
    ];
    names.extend(own.map(str::to_owned));
    names.into_iter().collect()
}

/// Returns a query with other response keys, many of which are the names of other fields, and some leaves
/// selected twice, together with the corresponding response.
fn with_random_aliases(
    query: &str,
    answer: &str,
    names: &[String],
    random: &mut SmallRandom,
) -> Option<(String, String)> {
    let mut document = graphql_tools::parser::parse_query::<String>(query).ok()?.into_static();
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    let mut keys: BTreeMap<String, bool> = BTreeMap::new();
    for_each_field(&mut document, &mut |field| {
        let key = field.alias.as_ref().unwrap_or(&field.name).clone();
        let is_leaf = field.selection_set.items.is_empty();
        keys.entry(key).and_modify(|known| *known &= is_leaf).or_insert(is_leaf);
    });
    let mut left: Vec<String> = names.to_vec();
    left.extend(keys.keys().filter(|key| !names.contains(key)).cloned());
    let mut twice: BTreeMap<String, String> = BTreeMap::new();
    // A second occurrence of a field would repeat a mutation's effect or an error.
    let is_plain = !query.contains("mutation") && answer.get("errors").is_none();
    let mut once: BTreeMap<String, String> = BTreeMap::new();
    for (key, is_leaf) in keys {
        if left.is_empty() {
            return None;
        }
        once.insert(key.clone(), left.swap_remove(random.next_below(left.len())));
        if is_leaf && is_plain && !left.is_empty() && random.next_below(2) == 0 {
            twice.insert(key, left.swap_remove(random.next_below(left.len())));
        }
    }
    for_each_selection_set(&mut document, &mut |set| {
        let mut items = Vec::new();
        for item in std::mem::take(&mut set.items) {
            let Selection::Field(mut field) = item else {
                items.push(item);
                continue;
            };
            let key = field.alias.as_ref().unwrap_or(&field.name).clone();
            if let Some(second) = twice.get(&key) {
                let mut field = field.clone();
                field.alias = Some(second.clone());
                items.push(Selection::Field(field));
            }
            field.alias = once.get(&key).cloned();
            items.push(Selection::Field(field));
        }
        set.items = items;
    });
    answer["data"] = rename_keys(&answer["data"], &once, &twice);
    for error in answer.get_mut("errors").and_then(Value::as_array_mut).into_iter().flatten() {
        for step in error.get_mut("path").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(name) = step.as_str().and_then(|key| once.get(key)) {
                *step = name.as_str().into();
            }
        }
    }
    Some((document.to_string(), answer.to_string()))
}

fn rename_keys(value: &Value, once: &BTreeMap<String, String>, twice: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(members) => {
            let mut named = Map::new();
            for (key, value) in members {
                if let Some(name) = twice.get(key) {
                    named.insert(name.clone(), value.clone());
                }
                named.insert(once.get(key).unwrap_or(key).clone(), rename_keys(value, once, twice));
            }
            named.into()
        }
        Value::Array(items) => items.iter().map(|item| rename_keys(item, once, twice)).collect(),
        other => other.clone(),
    }
}

/// Calls `see` for each selection set of a document, the innermost first.
fn for_each_selection_set(document: &mut Document, see: &mut dyn FnMut(&mut SelectionSet)) {
    fn visit_selection_set(set: &mut SelectionSet, see: &mut dyn FnMut(&mut SelectionSet)) {
        for item in &mut set.items {
            match item {
                Selection::Field(field) => visit_selection_set(&mut field.selection_set, see),
                Selection::InlineFragment(fragment) => visit_selection_set(&mut fragment.selection_set, see),
                Selection::FragmentSpread(_) => {}
            }
        }
        see(set);
    }
    for definition in &mut document.definitions {
        visit_selection_set(
            match definition {
                Definition::Fragment(fragment) => &mut fragment.selection_set,
                Definition::Operation(OperationDefinition::Query(query)) => &mut query.selection_set,
                Definition::Operation(OperationDefinition::Mutation(mutation)) => &mut mutation.selection_set,
                Definition::Operation(OperationDefinition::SelectionSet(set)) => set,
                Definition::Operation(OperationDefinition::Subscription(_)) => continue,
            },
            see,
        );
    }
}

/// Calls `see` for each field of a document.
fn for_each_field(
    document: &mut Document,
    see: &mut dyn FnMut(&graphql_tools::static_graphql::query::Field),
) {
    for_each_selection_set(document, &mut |set| {
        for item in &set.items {
            if let Selection::Field(field) = item {
                see(field);
            }
        }
    });
}
