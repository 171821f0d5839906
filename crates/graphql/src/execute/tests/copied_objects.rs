//! Tests that objects which are copied in one piece and objects which are written field by field yield the
//! same response.

use super::fixture::ExecutionFixture;
use super::nested::{BLOG, LINKS, PEOPLE, POSTS};
use crate::fetch::shop_fixture::count_moves;

async fn query_posts(posts: &str, document: &str) -> String {
    let fixture = ExecutionFixture::with_rest_services(
        &[("blog", BLOG), ("people", PEOPLE)],
        LINKS,
        &[("blog/posts", posts)],
    );
    fixture.query(document).await
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
        assert_eq!(query_posts(text, "{ posts { id tags title } }").await, wanted, "{text}");
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
        assert_eq!(query_posts(text, "{ posts { id title } }").await, wanted, "{text}");
    }
}

#[tokio::test]
async fn null_and_missing_members_are_null() {
    let text = r#"[{"id":1,"tags":null,"title":"x"},{"id":2,"title":"y"},{"id":-3,"tags":[],"title":"z","user_id":null}]"#;
    assert_eq!(
        query_posts(text, "{ posts { id tags title user_id } }").await,
        r#"{"data":{"posts":[{"id":1,"tags":null,"title":"x","user_id":null},{"id":2,"tags":null,"title":"y","user_id":null},{"id":-3,"tags":[],"title":"z","user_id":null}]}}"#
    );
    let answer = query_posts(r#"[{"id":1,"tags":["a",null]}]"#, "{ posts { tags } }").await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"tags":null}]},"errors":["#), "{answer}");
}

#[tokio::test]
async fn accepts_whole_numbers_up_to_the_largest_int() {
    let text = r#"[{"id":2147483647,"title":"x"},{"id":1,"title":"y"}]"#;
    let wanted = r#"{"data":{"posts":[{"id":2147483647,"title":"x"},{"id":1,"title":"y"}]}}"#;
    assert_eq!(query_posts(text, "{ posts { id title } }").await, wanted);
    let answer = query_posts(r#"[{"id":2147483648,"title":"x"}]"#, "{ posts { id title } }").await;
    assert!(answer.contains("graphql-value"), "{answer}");
}

#[tokio::test]
async fn writes_members_under_the_clients_aliases() {
    let text = r#"[{"id":1,"title":"x","tags":["a"]}]"#;
    assert_eq!(
        query_posts(text, "{ posts { title: id id: title again: title __typename tags } }").await,
        r#"{"data":{"posts":[{"title":1,"id":"x","again":"x","__typename":"Post","tags":["a"]}]}}"#
    );
}

#[tokio::test]
async fn writes_objects_whose_members_are_all_in_another_order() {
    let one = |id: usize| format!(r#"{{"title":"t{id}","id":{id}}}"#);
    let text = format!("[{}]", (0..40).map(one).collect::<Vec<_>>().join(","));
    let wanted = (0..40).map(|id| format!(r#"{{"id":{id},"title":"t{id}"}}"#)).collect::<Vec<_>>().join(",");
    assert_eq!(
        query_posts(&text, "{ posts { id title } }").await,
        format!(r#"{{"data":{{"posts":[{wanted}]}}}}"#)
    );
}

#[tokio::test]
async fn does_not_copy_from_discarded_text() {
    let comments = r#"[{"id":10,"post_id":1,"user_id":7},{"id":null,"post_id":1,"user_id":7},{"id":12,"post_id":3,"user_id":7}]"#;
    let answers = [POSTS, ("blog/comments", comments), ("people/users?ids=7", r#"[{"id":7,"name":"Ann"}]"#)];
    let fixture =
        ExecutionFixture::with_rest_services(&[("blog", BLOG), ("people", PEOPLE)], LINKS, &answers);
    let answer = fixture.query("{ posts { comments { author { name } id } } }").await;
    assert!(
        answer.starts_with(
            r#"{"data":{"posts":[{"comments":null},{"comments":[]},{"comments":[{"author":{"name":"Ann"},"id":12}]}]},"#
        ),
        "{answer}"
    );
}

/// Returns the response to a selection of all fields, `f0` and so on, of an object with this text, and the
/// number of moves to the pool.
async fn query_wide_object(fields: usize, text: &str) -> (String, u64) {
    let properties: Vec<String> =
        (0..fields).map(|field| format!(r#""f{field}": {{ "type": "integer" }}"#)).collect();
    let described = format!(
        r##"{{ "openapi": "3.0.3", "info": {{ "title": "wide", "version": "1" }}, "paths": {{
          "/wide": {{ "get": {{ "operationId": "wide", "responses": {{ "200": {{ "description": "", "content": {{
            "application/json": {{ "schema": {{ "$ref": "#/components/schemas/Wide" }} }} }} }} }} }} }} }},
          "components": {{ "schemas": {{ "Wide": {{ "type": "object", "properties": {{ {} }} }} }} }} }}"##,
        properties.join(",")
    );
    let fixture = ExecutionFixture::with_rest_services(&[("wide", &described)], "{}", &[("wide/wide", text)]);
    let names: Vec<String> = (0..fields).map(|field| format!("f{field}")).collect();
    let document = format!("{{ wide {{ {} }} }}", names.join(" "));
    count_moves(async move { fixture.query(&document).await }).await
}

#[tokio::test]
async fn finds_members_among_many_selected_fields() {
    let member = |field: usize| format!(r#""f{field}":{field}"#);
    let members: Vec<String> = (0..20).map(member).collect();
    let wanted = format!(r#"{{"data":{{"wide":{{{}}}}}}}"#, members.join(","));
    let reversed: Vec<String> = (0..20).rev().map(member).collect();
    let escaped: Vec<String> = members.iter().map(|text| text.replace('f', r"\u0066")).collect();
    let (first, last) = (members[0].as_str(), members[1..].join(","));
    for text in [
        members.join(","),
        members.join(r#","other":{"f19":0},"f":1,"#),
        reversed.join(","),
        escaped.join(r#","\u0067":0,"#),
        format!(r#"{first},"f0":7,{last},"f19":7"#),
        format!(r#"{last},{first},"f0":7"#),
    ] {
        assert_eq!(query_wide_object(20, &format!("{{{text}}}")).await.0, wanted, "{text}");
    }
}

#[tokio::test]
async fn each_member_is_looked_up_once_for_all_selected_fields() {
    let object = |members: usize| {
        let members: Vec<String> = (0..members).map(|number| format!(r#""x{number}":0"#)).collect();
        format!("{{{}}}", members.join(","))
    };
    // To compare each member with each field would be too much for a serving thread.
    let (answer, moves) = query_wide_object(100, &object(1_800)).await;
    assert_eq!((answer.matches("null").count(), moves), (100, 0));
    let (answer, moves) = query_wide_object(100, &object(20_000)).await;
    assert_eq!(answer.matches("null").count(), 100);
    assert!(moves > 0);
}
