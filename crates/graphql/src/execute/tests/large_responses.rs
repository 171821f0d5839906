//! Tests of responses that would exceed the size limit.

use super::fixture::ExecutionFixture;
use super::nested::{BLOG, LINKS, PEOPLE};
use crate::fetch::shop_fixture::count_moves;

/// Returns a rig with this number of posts and this maximum response size in bytes.
fn posts_fixture(posts: usize, most: usize) -> ExecutionFixture {
    let posts: Vec<String> = (0..posts)
        .map(|id| format!(r#"{{"id":{id},"title":"a title of some length","author_id":1}}"#))
        .collect();
    let posts = format!("[{}]", posts.join(","));
    let answers = [("blog/posts", posts.as_str()), ("people/users/1", r#"{"id":1,"name":"Ann"}"#)];
    let mut fixture =
        ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    fixture.max_bytes = most;
    fixture
}

fn is_too_large(answer: &str) -> bool {
    answer.len() < 1000
        && answer.starts_with(r#"{"data":null,"errors":[{"#)
        && answer.contains("graphql-output")
}

#[tokio::test]
async fn rejects_aliases_in_a_long_list_by_the_response_size() {
    let fixture = posts_fixture(2000, 1 << 20);
    let aliases: String = (0..100).map(|number| format!("a{number}: title ")).collect();
    let answer = fixture.query(&format!("{{ posts {{ {aliases} }} }}")).await;
    assert!(is_too_large(&answer), "{answer:.300}");
    let answer = fixture.query("{ posts { title id } }").await;
    assert!(answer.len() > 50_000 && !answer.contains("errors"), "{answer:.300}");
}

#[tokio::test]
async fn rejects_aliases_of_a_complete_list() {
    let fixture = posts_fixture(2000, 1 << 20);
    let aliases: String = (0..40).map(|number| format!("a{number}: posts {{ title id }} ")).collect();
    assert!(is_too_large(&fixture.query(&format!("{{ {aliases} }}")).await));
}

#[tokio::test]
async fn rejects_introspection_that_multiplies_selections() {
    let mut fixture = posts_fixture(1, 20_000);
    let inner: String = (0..90).map(|number| format!("a{number}: description ")).collect();
    let query = format!("{{ __schema {{ types {{ fields {{ type {{ fields {{ name {inner} }} }} }} }} }} }}");
    assert!(is_too_large(&fixture.query(&query).await));
    // Excluded selections write nothing, but are counted as visits.
    fixture.max_bytes = usize::MAX;
    let inner: String = (0..1400).map(|_| "...S ".to_owned()).collect();
    let query = format!(
        "query Q($no: Boolean = false) {{ __schema {{ types {{ fields {{ type {{ fields {{ {inner} }} }} }} }} }} }} \
         fragment S on __Field {{ name @include(if: $no) }}"
    );
    let answer = fixture.query(&query).await;
    assert!(answer.contains("graphql-limit") || is_too_large(&answer), "{answer:.300}");
}

#[tokio::test]
async fn limits_the_number_of_reported_errors() {
    let posts: Vec<String> =
        (0..5000).map(|id| format!(r#"{{"id":{id},"title":"x","user_id":{{}}}}"#)).collect();
    let posts = format!("[{}]", posts.join(","));
    let answers = [("blog/posts", posts.as_str())];
    let rig = ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    let answer = rig.query("{ posts { user_id } }").await;
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let errors = answer["errors"].as_array().expect("errors");
    assert!(errors.len() <= 1001, "{}", errors.len());
    let last = errors.last().expect("an error")["message"].as_str().expect("a message");
    assert!(last.contains("further errors are left out"), "{last}");
}

#[tokio::test]
async fn rejects_long_variables_that_are_sent_in_many_calls() {
    let rig = posts_fixture(1, 1 << 20);
    let values = format!("{{\"ids\":[{}7]}}", "7,".repeat(150_000));
    let fields: String = (0..50).map(|number| format!("a{number}: users(ids: $ids) {{ name }} ")).collect();
    let answer = rig.query_with_variables(&format!("query Q($ids: [Int!]) {{ {fields} }}"), &values).await;
    assert!(answer.contains("graphql-limit"), "{answer:.300}");
    assert!(rig.take_sorted_requests().is_empty());
    let answer =
        rig.query_with_variables("query Q($ids: [Int!]) { users(ids: $ids) { name } }", &values).await;
    assert!(!answer.contains("graphql-limit"), "{answer:.300}");
    assert_eq!(rig.take_sorted_requests().len(), 1);
}

#[tokio::test]
async fn rejects_a_short_variable_that_is_sent_in_many_places() {
    let people = PEOPLE.replacen(r#""integer""#, r#""string""#, 1);
    let fixture =
        ExecutionFixture::with_rest_services(&[("people", people.as_str())], r#"{ "links": {} }"#, &[]);
    let values = format!(r#"{{"id":"{}"}}"#, "x".repeat(8_000));
    let document =
        |count| format!("query Q($id: String!) {{ users(ids: [{}]) {{ name }} }}", "$id,".repeat(count));
    let answer = fixture.query_with_variables(&document(1_100), &values).await;
    assert!(answer.contains("graphql-limit") && answer.contains("8802200"), "{answer:.300}");
    assert!(fixture.take_sorted_requests().is_empty());
    let answer = fixture.query_with_variables(&document(10), &values).await;
    assert!(!answer.contains("graphql-limit"), "{answer:.300}");
    assert_eq!(fixture.take_sorted_requests().len(), 1);
}

/// Returns the response to a document with this list of posts, and the number of moves to the pool.
async fn run_counting_moves(posts: &[String], document: String, variables: &'static str) -> (String, u64) {
    let posts = format!("[{}]", posts.join(","));
    let answers = [("blog/posts", posts.as_str()), ("people/users?ids=7", r#"[{"id":7,"name":"Ann"}]"#)];
    let fixture =
        ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    count_moves(async move { fixture.query_with_variables(&document, variables).await }).await
}

#[tokio::test]
async fn writes_many_errors_in_the_pool() {
    let posts = |count: usize| -> Vec<String> {
        (0..count).map(|id| format!(r#"{{"id":{id},"user_id":{{}}}}"#)).collect()
    };
    let document = "{ posts { user_id } }";
    let (answer, moves) = run_counting_moves(&posts(10), document.to_owned(), "{}").await;
    assert_eq!((answer.matches("graphql-value").count(), moves), (10, 0));
    let (answer, moves) = run_counting_moves(&posts(900), document.to_owned(), "{}").await;
    assert_eq!(answer.matches("graphql-value").count(), 900);
    assert!(moves > 0);
}

#[tokio::test]
async fn evaluates_many_conditions_in_the_pool() {
    let posts: Vec<String> = (0..300).map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    let names = || (0..60).map(|number| format!("$v{number}"));
    let declared: String = names().map(|name| format!("{name}: Boolean = false ")).collect();
    let fields: String = names().map(|name| format!("title @include(if: {name}) ")).collect();
    let document = format!("query Q({declared}) {{ posts {{ id {fields} }} }}");
    let (answer, moves) = run_counting_moves(&posts, document, "{}").await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"id":0},{"id":1},"#), "{answer:.200}");
    assert!(moves > 0);
}

#[tokio::test]
async fn collects_many_keys_in_the_pool() {
    let posts = |count: usize| vec![r#"{"user_id":7}"#.to_owned(); count];
    let document = "{ posts { user { name } } }";
    for (count, expected) in [(900, 0), (1100, 1)] {
        let (answer, moves) = run_counting_moves(&posts(count), document.to_owned(), "{}").await;
        assert_eq!(answer.matches("Ann").count(), count);
        assert_eq!(moves, expected, "{count} objects");
    }
}

#[tokio::test]
async fn sends_many_values_in_the_pool() {
    let fields: String = (0..40).map(|number| format!("a{number}: users(ids: $ids) {{ name }} ")).collect();
    let document = format!("query Q($ids: [Int!]) {{ {fields} }}");
    for (count, expected) in [(10, 0), (300, 1)] {
        let ids = format!("[{}]", vec!["7"; count].join(","));
        let (line, variables) = (format!("people/users?ids={ids}"), format!(r#"{{"ids":{ids}}}"#));
        let answers = [(line.as_str(), r#"[{"name":"Ann"}]"#)];
        let fixture =
            ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
        let document = document.clone();
        let asked = async move { fixture.query_with_variables(&document, &variables).await };
        let (answer, moves) = count_moves(asked).await;
        assert_eq!((answer.matches("Ann").count(), moves), (40, expected), "{count} values: {answer:.300}");
    }
}
