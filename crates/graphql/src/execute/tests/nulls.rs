//! What is missing, wrong or failed, and how far it reaches.

use super::nested::{BLOG, LINKS, PEOPLE, POSTS};
use super::rig::Rig;

fn rig(answers: &[(&str, &str)]) -> Rig {
    Rig::rest(&[("blog", BLOG), ("people", PEOPLE)], LINKS, answers)
}

#[tokio::test]
async fn a_link_that_fails_is_null_and_told_at_each_place() {
    let rig = rig(&[POSTS]);
    let answer = rig.ask("{ posts { id user { name } } }").await;
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
async fn what_must_not_be_null_takes_its_object_with_it_up_to_what_may_be() {
    let users = r#"[{"id":7,"name":null},{"id":8,"name":"Bob"}]"#;
    let rig = rig(&[POSTS, ("people/users?ids=7,8", users)]);
    let answer = rig.ask("{ posts { id user { name } } }").await;
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
    let rig = rig(&[("blog/posts", posts)]);
    let answer = rig.ask("{ posts { title tags user_id } }").await;
    assert!(
        answer.starts_with(r#"{"data":{"posts":[{"title":"a","tags":null,"user_id":null},{"title":"b","tags":null,"user_id":null}]},"#),
        "{answer}"
    );
    assert_eq!(answer.matches(r#""code":"graphql-value""#).count(), 2, "{answer}");
    let answer = rig.ask("{ posts { id } }").await;
    assert!(answer.starts_with(r#"{"data":{"posts":null},"#), "{answer}");
    assert_eq!(answer.matches(r#""code":"#).count(), 1, "{answer}");
}

#[tokio::test]
async fn a_root_field_that_fails_leaves_the_others() {
    let rig = rig(&[POSTS]);
    let answer = rig.ask("{ comments { id } posts { id } }").await;
    assert!(answer.starts_with(r#"{"data":{"comments":null,"posts":[{"id":1},"#), "{answer}");
    assert!(answer.contains(r#""path":["comments"]"#), "{answer}");
}
