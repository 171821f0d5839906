//! Tests of nested objects from several REST services.

use super::fixture::ExecutionFixture;

pub(super) const BLOG: &str = r##"{ "openapi": "3.0.3", "info": { "title": "blog", "version": "1" }, "paths": {
  "/posts": { "get": { "operationId": "posts", "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "type": "array", "items": { "$ref": "#/components/schemas/Post" } } } } } } } },
  "/posts/{id}": { "get": { "operationId": "post", "parameters": [ { "name": "id", "in": "path", "required": true,
    "schema": { "type": "integer" } } ], "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "$ref": "#/components/schemas/Post" } } } } } } },
  "/comments": { "get": { "operationId": "comments", "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "type": "array", "items": { "$ref": "#/components/schemas/Comment" } } } } } } } } },
  "components": { "schemas": {
    "Post": { "type": "object", "required": ["id", "title"], "properties": { "id": { "type": "integer" },
      "user_id": { "type": "integer" }, "title": { "type": "string" }, "tags": { "type": "array", "items": { "type": "string" } } } },
    "Comment": { "type": "object", "required": ["id"], "properties": { "id": { "type": "integer" },
      "post_id": { "type": "integer" }, "user_id": { "type": "integer" }, "text": { "type": "string" } } } } } }"##;

pub(super) const PEOPLE: &str = r##"{ "openapi": "3.0.3", "info": { "title": "people", "version": "1" }, "paths": {
  "/users": { "get": { "operationId": "users", "parameters": [ { "name": "ids", "in": "query", "schema":
    { "type": "array", "items": { "type": "integer" } } } ], "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "type": "array", "items": { "$ref": "#/components/schemas/User" } } } } } } } } },
  "components": { "schemas": {
    "User": { "type": "object", "required": ["id", "name"], "properties": { "id": { "type": "integer" },
      "name": { "type": "string" }, "email": { "type": "string" } } } } } }"##;

pub(super) const LINKS: &str = r#"{ "links": {
  "Post.user": { "get": "people/users?ids={user_id}", "on": "user_id = id", "one": true },
  "Comment.author": { "get": "people/users?ids={user_id}", "on": "user_id = id", "one": true },
  "Post.comments": { "get": "blog/comments", "on": "id = post_id" } } }"#;

pub(super) const POSTS: (&str, &str) = (
    "blog/posts",
    r#"[{"id":1,"user_id":7,"title":"one","tags":["a"]},{"id":2,"user_id":8,"title":"two"},{"id":3,"user_id":7,"title":"three","tags":null}]"#,
);

fn blog_fixture() -> ExecutionFixture {
    let users = r#"[{"id":7,"name":"Ann","email":"a@b"},{"id":8,"name":"Bob"}]"#;
    let comments = r#"[{"id":10,"post_id":1,"user_id":8,"text":"x"},{"id":11,"post_id":1,"user_id":7,"text":"y"},{"id":12,"post_id":3,"user_id":9,"text":"z"}]"#;
    ExecutionFixture::with_rest_services(
        &[("blog", BLOG), ("people", PEOPLE)],
        LINKS,
        &[
            POSTS,
            ("people/users?ids=7,8", users),
            ("people/users?ids=8,7,9", users),
            ("blog/comments", comments),
        ],
    )
}

#[tokio::test]
async fn fields_have_the_order_and_names_of_the_query() {
    let fixture = blog_fixture();
    let answer = fixture.query("{ all: posts { title number: id __typename tags } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"all":[{"title":"one","number":1,"__typename":"Post","tags":["a"]},{"title":"two","number":2,"__typename":"Post","tags":null},{"title":"three","number":3,"__typename":"Post","tags":null}]}}"#
    );
    assert_eq!(fixture.take_sorted_requests(), ["blog/posts"]);
}

#[tokio::test]
async fn fetches_objects_of_another_service_in_one_request() {
    let fixture = blog_fixture();
    let answer = fixture.query("{ posts { title user { name } } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"posts":[{"title":"one","user":{"name":"Ann"}},{"title":"two","user":{"name":"Bob"}},{"title":"three","user":{"name":"Ann"}}]}}"#
    );
    assert_eq!(fixture.take_sorted_requests(), ["blog/posts", "people/users?ids=7,8"]);
}

#[tokio::test]
async fn joins_a_list_within_a_service_and_to_another_service() {
    let fixture = blog_fixture();
    let answer = fixture.query("{ posts { id comments { text author { name } } } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"posts":[{"id":1,"comments":[{"text":"x","author":{"name":"Bob"}},{"text":"y","author":{"name":"Ann"}}]},{"id":2,"comments":[]},{"id":3,"comments":[{"text":"z","author":null}]}]}}"#
    );
    assert_eq!(fixture.take_sorted_requests(), ["blog/comments", "blog/posts", "people/users?ids=8,7,9"]);
}

#[tokio::test]
async fn finds_a_key_although_its_name_is_used_as_an_alias() {
    let fixture = blog_fixture();
    let answer = fixture.query("{ posts { user_id: title user { id: name } } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"posts":[{"user_id":"one","user":{"id":"Ann"}},{"user_id":"two","user":{"id":"Bob"}},{"user_id":"three","user":{"id":"Ann"}}]}}"#
    );
}

#[tokio::test]
async fn skips_calls_for_fields_that_variables_exclude() {
    let fixture = blog_fixture();
    let document = "query($with: Boolean!) { posts { id user @include(if: $with) { name } ... @skip(if: $with) { title } } }";
    let answer = fixture.query_with_variables(document, r#"{"with":false}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"id":1,"title":"one"},"#), "{answer}");
    assert_eq!(fixture.take_sorted_requests(), ["blog/posts"]);
    let answer = fixture.query_with_variables(document, r#"{"with":true}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"id":1,"user":{"name":"Ann"}},"#), "{answer}");
    assert_eq!(fixture.take_sorted_requests(), ["blog/posts", "people/users?ids=7,8"]);
}

#[tokio::test]
async fn merges_fragments_by_the_specification() {
    let fixture = blog_fixture();
    let document = "query { posts { ...A user { email } ...B } } fragment A on Post { id user { name } } fragment B on Post { id title }";
    let answer = fixture.query(document).await;
    assert!(
        answer
            .starts_with(r#"{"data":{"posts":[{"id":1,"user":{"name":"Ann","email":"a@b"},"title":"one"},"#),
        "{answer}"
    );
}

#[tokio::test]
async fn a_repeated_field_has_the_position_of_its_first_included_occurrence() {
    let fixture = blog_fixture();
    let document = "query($v: Boolean!) { posts { id ...F @skip(if: $v) tags title } } fragment F on Post { title user_id }";
    let answer = fixture.query_with_variables(document, r#"{"v":true}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"id":1,"tags":["a"],"title":"one"},"#), "{answer}");
    let answer = fixture.query_with_variables(document, r#"{"v":false}"#).await;
    assert!(
        answer.starts_with(r#"{"data":{"posts":[{"id":1,"title":"one","user_id":7,"tags":["a"]},"#),
        "{answer}"
    );
}

#[tokio::test]
async fn a_link_may_be_selected_several_times_and_conditionally() {
    let fixture = blog_fixture();
    let document = "query($v: Boolean!) { posts { a: user @include(if: $v) { name } b: user { id } } }";
    let answer = fixture.query_with_variables(document, r#"{"v":true}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"a":{"name":"Ann"},"b":{"id":7}},"#), "{answer}");
    let document = "query($v: Boolean!, $w: Boolean!) { posts { user { name @include(if: $v) } user @skip(if: $w) { email } } }";
    let answer = fixture.query_with_variables(document, r#"{"v":true,"w":false}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"user":{"name":"Ann","email":"a@b"}},"#), "{answer}");
    let answer = fixture.query_with_variables(document, r#"{"v":false,"w":true}"#).await;
    assert!(answer.starts_with(r#"{"data":{"posts":[{"user":{}},"#), "{answer}");
}

#[tokio::test]
async fn an_object_without_included_fields_is_empty() {
    let fixture = blog_fixture();
    assert_eq!(
        fixture.query_with_variables("{ posts @skip(if: true) { id } }", "{}").await,
        r#"{"data":{}}"#
    );
    let variable = "query($v: Boolean!) { posts @include(if: $v) { id } }";
    assert_eq!(fixture.query_with_variables(variable, r#"{"v":false}"#).await, r#"{"data":{}}"#);
    let within = fixture.query_with_variables("{ posts { user { name @skip(if: true) } } }", "{}").await;
    assert!(within.starts_with(r#"{"data":{"posts":[{"user":{}},"#), "{within}");
}
