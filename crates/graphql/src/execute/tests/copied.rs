//! Tests that objects which are copied in one piece and objects which are written field by field yield the
//! same response.

use super::nested::{BLOG, LINKS, PEOPLE, POSTS};
use super::rig::Rig;

async fn posts(posts: &str, document: &str) -> String {
    let rig = Rig::rest(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &[("blog/posts", posts)]);
    rig.ask(document).await
}

#[tokio::test]
async fn accepts_members_in_any_order_and_further_members() {
    let wanted = r#"{"data":{"posts":[{"id":1,"tags":["a","b"],"title":"x"}]}}"#;
    for text in [
        r#"[{"id":1,"tags":["a","b"],"title":"x"}]"#,
        r#"[{"id":1,"more":{"title":"no","tags":[]},"tags":["a","b"],"user_id":2,"title":"x","z":[[]]}]"#,
        r#"[{"title":"x","id":1,"tags":["a","b"]}]"#,
        r#"[{"\u0069d":1,"tags":["a","b"],"title":"x"}]"#,
        "[ {\n \"id\" : 1 ,\t\"tags\":[ \"a\" , \"b\" ], \"none\": {}, \"title\": \"x\" } ]",
    ] {
        assert_eq!(posts(text, "{ posts { id tags title } }").await, wanted, "{text}");
    }
}

#[tokio::test]
async fn uses_the_first_of_equal_names() {
    let wanted = r#"{"data":{"posts":[{"id":1,"title":"x"}]}}"#;
    for text in [
        r#"[{"title":"x","id":1,"title":"y"}]"#,
        r#"[{"id":1,"id":2,"title":"x"}]"#,
        r#"[{"id":1,"title":"x","title":"y"}]"#,
    ] {
        assert_eq!(posts(text, "{ posts { id title } }").await, wanted, "{text}");
    }
}

#[tokio::test]
async fn null_and_missing_members_are_null() {
    let text = r#"[{"id":1,"tags":null,"title":"x"},{"id":2,"title":"y"},{"id":-3,"tags":[],"title":"z","user_id":null}]"#;
    assert_eq!(
        posts(text, "{ posts { id tags title user_id } }").await,
        r#"{"data":{"posts":[{"id":1,"tags":null,"title":"x","user_id":null},{"id":2,"tags":null,"title":"y","user_id":null},{"id":-3,"tags":[],"title":"z","user_id":null}]}}"#
    );
    let answer = posts(r#"[{"id":1,"tags":["a",null]}]"#, "{ posts { tags } }").await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"tags":null}]},"errors":["#), "{answer}");
}

#[tokio::test]
async fn accepts_whole_numbers_up_to_the_largest_int() {
    let text = r#"[{"id":2147483647,"title":"x"},{"id":1,"title":"y"}]"#;
    let wanted = r#"{"data":{"posts":[{"id":2147483647,"title":"x"},{"id":1,"title":"y"}]}}"#;
    assert_eq!(posts(text, "{ posts { id title } }").await, wanted);
    let answer = posts(r#"[{"id":2147483648,"title":"x"}]"#, "{ posts { id title } }").await;
    assert!(answer.contains("graphql-value"), "{answer}");
}

#[tokio::test]
async fn writes_members_under_the_clients_aliases() {
    let text = r#"[{"id":1,"title":"x","tags":["a"]}]"#;
    assert_eq!(
        posts(text, "{ posts { title: id id: title again: title __typename tags } }").await,
        r#"{"data":{"posts":[{"title":1,"id":"x","again":"x","__typename":"Post","tags":["a"]}]}}"#
    );
}

#[tokio::test]
async fn writes_objects_whose_members_are_all_in_another_order() {
    let one = |id: usize| format!(r#"{{"title":"t{id}","id":{id}}}"#);
    let text = format!("[{}]", (0..40).map(one).collect::<Vec<_>>().join(","));
    let wanted = (0..40).map(|id| format!(r#"{{"id":{id},"title":"t{id}"}}"#)).collect::<Vec<_>>().join(",");
    assert_eq!(posts(&text, "{ posts { id title } }").await, format!(r#"{{"data":{{"posts":[{wanted}]}}}}"#));
}

#[tokio::test]
async fn does_not_copy_from_discarded_text() {
    let comments = r#"[{"id":10,"post_id":1,"user_id":7},{"id":null,"post_id":1,"user_id":7},{"id":12,"post_id":3,"user_id":7}]"#;
    let answers = [POSTS, ("blog/comments", comments), ("people/users?ids=7", r#"[{"id":7,"name":"Ann"}]"#)];
    let rig = Rig::rest(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    let answer = rig.ask("{ posts { comments { author { name } id } } }").await;
    assert!(
        answer.starts_with(
            r#"{"data":{"posts":[{"comments":null},{"comments":[]},{"comments":[{"author":{"name":"Ann"},"id":12}]}]},"#
        ),
        "{answer}"
    );
}
