//! Tests of missing, invalid and failed values, and of the propagation of null.

use super::fixture::ExecutionFixture;
use super::nested::{BLOG, LINKS, PEOPLE, POSTS};

fn nulls_fixture(answers: &[(&str, &str)]) -> ExecutionFixture {
    ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, answers)
}

#[tokio::test]
async fn a_failed_link_is_null_with_an_error_at_each_position() {
    let fixture = nulls_fixture(&[POSTS]);
    let answer = fixture.query("{ posts { id user { name } } }").await;
    let data =
        r#"{"data":{"posts":[{"id":1,"user":null},{"id":2,"user":null},{"id":3,"user":null}]},"errors":["#;
    assert!(answer.starts_with(data), "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let paths: Vec<String> =
        answer["errors"].as_array().unwrap().iter().map(|error| error["path"].to_string()).collect();
    assert_eq!(paths, [r#"["posts",0,"user"]"#, r#"["posts",1,"user"]"#, r#"["posts",2,"user"]"#]);
    assert_eq!(answer["errors"][0]["extensions"]["code"], "upstream-status");
    assert_eq!(answer["errors"][0]["extensions"]["service"], "people");
    assert_eq!(answer["errors"][0]["locations"][0]["column"], 14);
}

#[tokio::test]
async fn null_propagates_to_the_nearest_nullable_ancestor() {
    let users = r#"[{"id":7,"name":null},{"id":8,"name":"Bob"}]"#;
    let fixture = nulls_fixture(&[POSTS, ("people/users?ids=7,8", users)]);
    let answer = fixture.query("{ posts { id user { name } } }").await;
    assert!(
        answer.starts_with(
            r#"{"data":{"posts":[{"id":1,"user":null},{"id":2,"user":{"name":"Bob"}},{"id":3,"user":null}]},"errors":[{"#
        ),
        "{answer}"
    );
    assert!(
        answer.contains(r#""path":["posts",0,"user","name"],"extensions":{"code":"graphql-null"}"#),
        "{answer}"
    );
    assert!(
        answer.contains(r#""path":["posts",2,"user","name"],"extensions":{"code":"graphql-null"}"#),
        "{answer}"
    );
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_an_error_of_its_field() {
    let posts = r#"[{"id":1,"title":"a","tags":"none","user_id":3000000000},{"id":"x","title":"b"}]"#;
    let fixture = nulls_fixture(&[("blog/posts", posts)]);
    let answer = fixture.query("{ posts { title tags user_id } }").await;
    assert!(
        answer.starts_with(r#"{"data":{"posts":[{"title":"a","tags":null,"user_id":null},{"title":"b","tags":null,"user_id":null}]},"#),
        "{answer}"
    );
    assert_eq!(answer.matches(r#""code":"graphql-value""#).count(), 2, "{answer}");
    let answer = fixture.query("{ posts { id } }").await;
    assert!(answer.starts_with(r#"{"data":{"posts":null},"#), "{answer}");
    assert_eq!(answer.matches(r#""code":"#).count(), 1, "{answer}");
}

#[tokio::test]
async fn a_failed_root_field_does_not_affect_the_others() {
    let fixture = nulls_fixture(&[POSTS]);
    let answer = fixture.query("{ comments { id } posts { id } }").await;
    assert!(answer.starts_with(r#"{"data":{"comments":null,"posts":[{"id":1},"#), "{answer}");
    assert!(answer.contains(r#""path":["comments"]"#), "{answer}");
}

#[tokio::test]
async fn reports_the_error_of_a_list_item_at_each_position_of_the_item() {
    let error = r#"{"message":"no","path":["email"]}"#;
    let users =
        format!(r#"[{{"id":7,"name":"Ann","email":null,"__error":{error}}},{{"id":8,"name":"Bob"}}]"#);
    let fixture = nulls_fixture(&[POSTS, ("people/users?ids=7,8", &users)]);
    let answer: serde_json::Value =
        serde_json::from_str(&fixture.query("{ posts { user { name email } } }").await).unwrap();
    let user = |name: &str| serde_json::json!({ "user": { "name": name, "email": null } });
    assert_eq!(answer["data"]["posts"], serde_json::json!([user("Ann"), user("Bob"), user("Ann")]));
    assert_eq!(
        describe_errors(&answer),
        [r#""no" ["posts",0,"user","email"]"#, r#""no" ["posts",2,"user","email"]"#]
    );
}

#[tokio::test]
async fn reports_the_error_of_a_separately_fetched_object_once_per_position() {
    let post = r#"{"id":1,"title":"one","tags":null,"__error":{"message":"no","path":["tags"]}}"#;
    let comments = r#"[{"id":10,"post_id":1},{"id":11,"post_id":1}]"#;
    let links = r#"{ "links": { "Comment.post": { "get": "blog/posts/{post_id}" } } }"#;
    let answers = [("blog/comments", comments), ("blog/posts/1", post)];
    let fixture = ExecutionFixture::with_rest_services(&[("blog", BLOG)], links, &answers);
    let answer: serde_json::Value =
        serde_json::from_str(&fixture.query("{ comments { of: post { title tags } } }").await).unwrap();
    let of = serde_json::json!({ "of": { "title": "one", "tags": null } });
    assert_eq!(answer["data"]["comments"], serde_json::json!([of, of]));
    assert_eq!(
        describe_errors(&answer),
        [r#""no" ["comments",0,"of","tags"]"#, r#""no" ["comments",1,"of","tags"]"#]
    );
}

/// Returns the messages and paths of a response's errors.
fn describe_errors(answer: &serde_json::Value) -> Vec<String> {
    let errors = answer["errors"].as_array().unwrap().iter();
    errors.map(|error| format!("{} {}", error["message"], error["path"])).collect()
}
