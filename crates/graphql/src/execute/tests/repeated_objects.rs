//! Tests of the repetitions that a response records for deduplication: the objects that it has copied.

use std::ops::Range;

use dedup::{DedupForm, DedupLimits};
use json::{JsonTree, RepeatedObject};
use serde_json::Value;

use super::fixture::ExecutionFixture;
use super::nested::{BLOG, LINKS, PEOPLE, POSTS};

const USERS: (&str, &str) = (
    "people/users?ids=7,8",
    r#"[{"id":7,"name":"Ann Lovelace","email":"ann@example.org"},{"id":8,"name":"Bob Babbage","email":null}]"#,
);

/// Asserts that the recorded repetitions are true repetitions, and that the deduplicated forms decode to the
/// same response.
pub(super) fn check_repetitions(tree: &JsonTree) {
    let mut text = Vec::new();
    tree.write(&mut text);
    let mut behind = 0;
    for RepeatedObject { position: at, first_position: first, length } in repetitions(tree) {
        let object = &text[*first..first + length];
        assert!(object.starts_with(b"{") && object.ends_with(b"}"), "{}", object.escape_ascii());
        assert!(object == &text[*at..at + length] && first + length <= *at && behind <= *at);
        behind = at + length;
    }
    let plain: Value = serde_json::from_slice(&text).expect("JSON");
    let limits = DedupLimits { min: 0, max: usize::MAX };
    for form in [DedupForm::GraphQl, DedupForm::Json] {
        let Some(wire) = dedup::encode(tree, form, &limits) else { continue };
        let decoded = dedup::decode(tree_text(&wire).as_bytes(), text.len()).expect("a deduplicated text");
        assert_eq!(serde_json::from_slice::<Value>(&decoded).expect("JSON"), plain);
    }
}

fn repetitions(tree: &JsonTree) -> &[RepeatedObject] {
    match tree {
        JsonTree::Repeating(_, again) => again,
        _ => &[],
    }
}

fn tree_text(tree: &JsonTree) -> String {
    let mut text = Vec::new();
    tree.write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

/// Returns the texts of the recorded repetitions in order.
fn repeated_texts(tree: &JsonTree) -> Vec<String> {
    let text = tree_text(tree);
    let range =
        |object: &RepeatedObject| -> Range<usize> { object.position..object.position + object.length };
    repetitions(tree).iter().map(|repeated_object| text[range(repeated_object)].to_owned()).collect()
}

fn posts_json(count: usize) -> String {
    let post = |id: usize| {
        format!(r#"{{"id":{id},"user_id":{},"title":"the {id}th","tags":[]}}"#, 7 + usize::from(id == 2))
    };
    format!("[{}]", (1..=count).map(post).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn a_shared_object_occurs_once_in_the_deduplicated_response() {
    let posts = posts_json(20);
    let fixture = ExecutionFixture::with_rest_services(
        &[("blog", BLOG), ("people", PEOPLE)],
        LINKS,
        &[("blog/posts", &posts), USERS],
    );
    let tree = fixture.query_tree("{ posts { id user { name email } } }").await;
    let ann = r#"{"name":"Ann Lovelace","email":"ann@example.org"}"#;
    assert_eq!(repeated_texts(&tree), [ann; 18]);
    let wire = tree_text(
        &dedup::encode(&tree, DedupForm::GraphQl, &DedupLimits::default()).expect("a shorter form"),
    );
    let begins =
        format!(r#"{{"t":[{ann}],"data":{{"posts":[{{"id":1,"user":{{"$":0}}}},{{"id":2,"user":{{"name""#);
    assert!(wire.starts_with(&begins), "{wire}");
    assert_eq!(wire.matches(r#""user":{"$":0}"#).count(), 19, "{wire}");
}

#[tokio::test]
async fn a_response_without_shared_objects_is_plain_text() {
    let fixture =
        ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &[POSTS]);
    assert!(matches!(fixture.query_tree("{ posts { id title } }").await, JsonTree::Text(_)));
}

#[tokio::test]
async fn records_no_repetitions_of_discarded_text() {
    let comments = r#"[{"id":10,"post_id":1,"user_id":7},{"id":11,"post_id":2,"user_id":7},{"id":null,"post_id":2,"user_id":7},{"id":13,"post_id":3,"user_id":7}]"#;
    let answers = [POSTS, ("blog/comments", comments), ("people/users?ids=7", USERS.1)];
    let fixture =
        ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    let tree = fixture.query_tree("{ posts { comments { author { name email } id } } }").await;
    let text = tree_text(&tree);
    let ann = r#"{"name":"Ann Lovelace","email":"ann@example.org"}"#;
    let data = format!(
        r#"{{"data":{{"posts":[{{"comments":[{{"author":{ann},"id":10}}]}},{{"comments":null}},{{"comments":[{{"author":{ann},"id":13}}]}}]}},"#
    );
    assert!(text.starts_with(&data), "{text}");
    assert_eq!(repeated_texts(&tree), [ann]);
}
