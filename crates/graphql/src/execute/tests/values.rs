//! Tests of arguments, variables and introspection.

use super::fixture::ExecutionFixture;
use super::nested::{BLOG, LINKS, PEOPLE, POSTS};
use crate::plan::QueryPlanner;

fn blog_fixture() -> ExecutionFixture {
    let post = (r"blog/posts/2", r#"{"id":2,"title":"two"}"#);
    ExecutionFixture::with_rest_services(
        &[("blog", BLOG), ("people", PEOPLE)],
        LINKS,
        &[POSTS, post, ("people/users?ids=[7]", "[]")],
    )
}

#[tokio::test]
async fn accepts_literals_variables_and_defaults_as_arguments() {
    let fixture = blog_fixture();
    for (document, variables) in [
        ("{ post(id: 2) { title } }", "{}"),
        ("query($id: Int!) { post(id: $id) { title } }", r#"{"id":2}"#),
        ("query($id: Int! = 2) { post(id: $id) { title } }", "{}"),
    ] {
        let answer = fixture.query_with_variables(document, variables).await;
        assert_eq!(answer, r#"{"data":{"post":{"title":"two"}}}"#, "{document}");
        assert_eq!(fixture.take_sorted_requests(), ["blog/posts/2"]);
    }
    let list = "query($ids: [Int!]) { users(ids: $ids) { name } }";
    assert_eq!(fixture.query_with_variables(list, r#"{"ids":7}"#).await, r#"{"data":{"users":[]}}"#);
    assert_eq!(fixture.take_sorted_requests(), ["people/users?ids=[7]"]);
}

#[tokio::test]
async fn reports_all_invalid_variables_without_calling_services() {
    let fixture = blog_fixture();
    let document = "query($id: Int!, $ids: [Int!]) { post(id: $id) { title } users(ids: $ids) { id } }";
    let answer = fixture.query_with_variables(document, r#"{"id":"2","ids":[1,2.5]}"#).await;
    assert_eq!(
        answer,
        r#"{"errors":[{"message":"the variable `$id` is \"2\", and not of the type `Int!`","locations":[{"line":1,"column":7}],"extensions":{"code":"graphql-variables"}},{"message":"the variable `$ids`: `[1]` is 2.5, and not of the type `Int!`","locations":[{"line":1,"column":18}],"extensions":{"code":"graphql-variables"}}]}"#
    );
    assert!(
        fixture.query_with_variables(document, "{}").await.contains("`$id` of the type `Int!` is missing")
    );
    assert!(fixture.take_sorted_requests().is_empty());
}

#[tokio::test]
async fn answers_introspection_without_calling_services() {
    let rig = blog_fixture();
    let answer = rig
        .query("{ __typename __type(name: \"Post\") { kind ...F } } fragment F on __Type { fields { name type { kind ofType { name } } } }")
        .await;
    assert!(answer.starts_with(r#"{"data":{"__typename":"Query","__type":{"kind":"OBJECT","fields":[{"name":"id","type":{"kind":"NON_NULL","ofType":{"name":"Int"}}},"#), "{answer}");
    let answer = rig
        .query("{ __schema { queryType { name } types { name } directives { name } } posts { id } }")
        .await;
    assert!(
        answer.contains(r#""queryType":{"name":"Query"}"#) && answer.contains(r#"{"name":"skip"}"#),
        "{answer}"
    );
    assert_eq!(rig.take_sorted_requests(), ["blog/posts"]);
}

#[tokio::test]
async fn rejects_selections_below_typename() {
    let fixture = blog_fixture();
    for document in [
        "{ __typename { x } }",
        "{ t: __typename { __typename } }",
        "{ posts { id __typename { ... on Post { id } } } }",
        "{ ...F } fragment F on Query { __typename { ...F2 } } fragment F2 on Query { __typename }",
    ] {
        let answer = fixture.query(document).await;
        assert!(
            answer.contains("graphql-invalid") && answer.contains("must not have a selection"),
            "{answer}"
        );
    }
    for document in ["{ posts { __schema { queryType { name } } } }", "{ __unknown }"] {
        let answer = fixture.query(document).await;
        assert!(answer.contains("graphql-invalid") && answer.contains("Cannot query field"), "{answer}");
    }
    assert!(fixture.take_sorted_requests().is_empty());
    assert_eq!(fixture.query("{ __typename }").await, r#"{"data":{"__typename":"Query"}}"#);
}

#[tokio::test]
async fn reports_invalid_documents_with_locations() {
    let fixture = blog_fixture();
    let syntax = fixture.query("{ posts { id }").await;
    assert!(syntax.contains("graphql-syntax"), "{syntax}");
    let unknown = fixture.query("{ posts { nothing } }").await;
    assert!(unknown.contains("graphql-invalid") && unknown.contains("nothing"), "{unknown}");
    let several = fixture.query("query A { posts { id } } query B { posts { id } }").await;
    assert!(several.contains("graphql-operation"), "{several}");
    let subscription = fixture.query("subscription { posts { id } }").await;
    assert!(subscription.contains("graphql-"), "{subscription}");
}

#[tokio::test]
async fn rejects_excessively_complex_documents() {
    let fixture = blog_fixture();
    let nested = format!("{}{}", "{ posts ".repeat(100_000), "}".repeat(100_000));
    let values = format!("{{ post(id: {}1{}) {{ id }} }}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!("{{ posts {} {{ id }} {}", "{ comments ".repeat(40), "}".repeat(41));
    let aliased: String = (0..500).map(|number| format!("a{number}: id ")).collect();
    let aliased = format!("{{ posts {{ {aliased} }} }}");
    let fragments: String =
        (0..60).map(|n| format!("fragment F{n} on Query {{ ...F{} ...F{} }} ", n + 1, n + 1)).collect();
    let bomb = format!("{{ ...F0 }} {fragments} fragment F60 on Query {{ posts {{ id }} }}");
    let cyclic = "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A posts { id } }";
    let repeated = format!("{{ posts {{ {} }} }}", "id ".repeat(400));
    let within = format!("{{ posts {{ {} }} }}", "comments { id id id id id id id id } ".repeat(45));
    let rooted: String = (0..60).map(|number| format!("a{number}: __typename ")).collect();
    let rooted = format!("{{ ...F }} fragment F on Query {{ {rooted} }}");
    let schema =
        format!("{{ __schema {{ types {} {{ name }} {} }} }}", "{ fields { type ".repeat(3), "} }".repeat(3));
    let spread = "{ __type(name: \"Post\") { ...T } } fragment T on __Type { fields { type { possibleTypes { ...U } } } } \
                  fragment U on __Type { ... on __Type { interfaces { name } } }";
    for document in [
        nested.as_str(),
        &values,
        &deep,
        &aliased,
        &bomb,
        cyclic,
        &repeated,
        &within,
        &rooted,
        &schema,
        spread,
    ] {
        let answer = fixture.query(document).await;
        assert!(
            answer.contains("graphql-limit")
                || answer.contains("graphql-invalid")
                || answer.contains("graphql-syntax"),
            "{answer}"
        );
    }
    assert!(fixture.take_sorted_requests().is_empty());
    let answer = fixture.query("{ __type(name: \"Post\") { fields { type { fields { name } } } } }").await;
    assert!(answer.starts_with(r#"{"data":{"__type":{"fields":[{"type":{"fields":"#), "{answer}");
}

#[test]
fn planners_and_executions_are_send() {
    fn send<T: Send>(_: impl FnOnce() -> T) {}
    fn share<T: Send + Sync>() {}
    share::<QueryPlanner>();
    send(|| {
        let fixture = blog_fixture();
        async move {
            let _ = fixture.query("{ posts { id } }").await;
        }
    });
}

/// A service whose `POST /login` accepts a member of each kind.
const LOGIN: &str = r##"{ "openapi": "3.0.3", "info": { "title": "shop", "version": "1" }, "paths": {
  "/status": { "get": { "operationId": "status", "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "type": "string" } } } } } } },
  "/login": { "post": { "operationId": "login", "requestBody": { "required": true, "content": { "application/json": {
    "schema": { "$ref": "#/components/schemas/Login" } } } }, "responses": { "200": { "description": "", "content":
    { "application/json": { "schema": { "type": "string" } } } } } } } },
  "components": { "schemas": { "Login": { "type": "object", "properties": { "user": { "type": "string" },
    "pin": { "type": "integer" }, "ok": { "type": "boolean" }, "color": { "type": "string", "enum": ["red", "blue"] },
    "tags": { "type": "array", "items": { "type": "string" } }, "big": { "type": "integer", "format": "int64" },
    "at": { "type": "string", "format": "date-time" }, "day": { "type": "string", "format": "date" }, "any": {} } } } } }"##;

fn login_fixture() -> ExecutionFixture {
    ExecutionFixture::with_rest_services(&[("shop", LOGIN)], "{ \"links\": {} }", &[])
}

#[tokio::test]
async fn rejects_literals_that_do_not_match_their_type() {
    let fixture = login_fixture();
    for member in [
        "user: {a: 1}",
        "pin: {x: 1}",
        "ok: {x: 1}",
        "color: {x: 1}",
        "tags: {x: 1}",
        "tags: [{x: 1}]",
        "tags: [[\"a\"]]",
        "big: {x: 1}",
        "big: [1]",
        "big: \"1\"",
        "big: 1.5",
        "big: true",
        "big: RED",
        "at: {x: 1}",
        "at: [\"a\"]",
        "at: 1",
        "day: RED",
    ] {
        let answer = fixture.query(&format!("mutation {{ login(input: {{{member}}}) }}")).await;
        assert!(
            answer.contains("graphql-invalid") && answer.contains("Expected value of type"),
            "{member}: {answer}"
        );
    }
    for default in ["$u: String! = {a: 1}", "$u: [String] = [{a: 1}]"] {
        let answer = fixture.query(&format!("query({default}) {{ status @skip(if: false) }}")).await;
        assert!(answer.contains("found an object"), "{default}: {answer}");
    }
    let directive = fixture.query("{ status @skip(if: {a: true}) }").await;
    assert!(directive.contains("found an object"), "{directive}");
    assert!(fixture.take_sorted_requests().is_empty());
    let fit = "mutation { login(input: {user: \"a\", tags: \"a\", big: 9007199254740993, at: \"b\", day: null, \
               any: {a: [{b: RED}], c: 1.5}}) }";
    assert!(fixture.planner.plan(fit, None).is_ok(), "{:?}", fixture.planner.plan(fit, None));
}

#[tokio::test]
async fn checks_variables_of_scalars_derived_from_formats() {
    let rig = login_fixture();
    let document =
        "mutation($big: Long, $at: DateTime, $any: JSON) { login(input: {big: $big, at: $at, any: $any}) }";
    let plan = rig.planner.plan(document, None).expect("a plan");
    let coerced =
        |variables: &str| crate::execute::CoercedVariables::coerce(&plan, variables.to_owned().into());
    for wrong in [
        r#"{"big":{"a":1}}"#,
        r#"{"big":[1]}"#,
        r#"{"big":"1"}"#,
        r#"{"big":1.5}"#,
        r#"{"big":18446744073709551616}"#,
        r#"{"big":true}"#,
        r#"{"at":{"a":1}}"#,
        r#"{"at":1}"#,
        r#"{"at":["a"]}"#,
    ] {
        let errors = coerced(wrong).expect_err(wrong);
        assert_eq!(errors[0].code, "graphql-variables", "{wrong}");
    }
    for fit in [
        r#"{"big":9223372036854775807,"at":"2020-01-01T00:00:00Z","any":{"a":[1]}}"#,
        r#"{"big":-9223372036854775808,"at":null,"any":"a"}"#,
        r#"{"big":18446744073709551615,"any":1.5}"#,
        r#"{"big":1e3}"#,
    ] {
        assert!(coerced(fit).is_ok(), "{fit}");
    }
}

#[tokio::test]
async fn rejects_ambiguous_variables() {
    let rig = login_fixture();
    let document = "mutation($any: JSON, $user: String, $tags: [String!]) { login(input: {any: $any, user: $user, tags: $tags}) }";
    let plan = rig.planner.plan(document, None).expect("a plan");
    let coerced =
        |variables: &str| crate::execute::CoercedVariables::coerce(&plan, variables.to_owned().into());
    for (variables, known) in [
        (r#"{"any":{"acc":1,"acc":2}}"#, "the variable `$any` must have each name once, and not `acc` twice"),
        (r#"{"any":[{"x":{"acc":1,"\u0061cc":2}}]}"#, "`$any`: `[0].x` must have each name once"),
        (r#"{"any":{"a":["\ud800"]}}"#, "`$any`: `a[0]` must have no half of a surrogate pair"),
        (r#"{"any":{"\udc00":1}}"#, "`$any` must have no half of a surrogate pair"),
        (r#"{"user":"a\ud800"}"#, "`$user` must have no half of a surrogate pair"),
        (r#"{"tags":["a","\ud800"]}"#, "`$tags`: `[1]` must have no half of a surrogate pair"),
    ] {
        let errors = coerced(variables).expect_err(variables);
        let (code, message) = (errors[0].code, &errors[0].message);
        assert!(code == "graphql-variables" && message.contains(known), "{variables}: {message}");
    }
    let fit = r#"{"any":{"a":{"b":1},"c":[{"b":1},{"b":2}]},"user":"\ud83d\ude00"}"#;
    assert!(coerced(fit).is_ok());
}

#[tokio::test]
async fn rejects_duplicate_fields_of_an_input_object() {
    let sdl = "type Query { at(of: In): Int } input In { of: [In] by: In n: Int }";
    let rig =
        ExecutionFixture::with_subgraphs(&[("shop", sdl.to_owned())], serde_json::json!({ "shop": {} }));
    let plan = rig.planner.plan("query($in: In) { at(of: $in) }", None).expect("a plan");
    for variables in [
        r#"{"in":{"n":1,"n":2}}"#,
        r#"{"in":{"n":1,"\u006e":1}}"#,
        r#"{"in":{"of":[{},{"by":{"n":1,"n":2}}]}}"#,
        r#"{"in":{"of":null,"of":[]}}"#,
    ] {
        let given = variables.to_owned().into();
        let errors = crate::execute::CoercedVariables::coerce(&plan, given).expect_err(variables);
        let (code, message) = (errors[0].code, &errors[0].message);
        assert!(code == "graphql-variables" && message.contains("of `In` more than once"), "{message}");
    }
}

/// Scalars of a GraphQL service are its own, even if their names equal those of formats.
#[tokio::test]
async fn scalars_of_graphql_services_accept_any_value() {
    let sdl = "type Query { at(long: Long, date: DateTime): Int } scalar Long scalar DateTime";
    let rig =
        ExecutionFixture::with_subgraphs(&[("shop", sdl.to_owned())], serde_json::json!({ "shop": {} }));
    for document in ["{ at(long: {a: 1}, date: [1]) }", "{ at(long: \"1\", date: RED) }"] {
        assert!(rig.planner.plan(document, None).is_ok(), "{document}");
    }
    let plan = rig.planner.plan("query($l: Long) { at(long: $l) }", None).expect("a plan");
    assert!(crate::execute::CoercedVariables::coerce(&plan, r#"{"l":{"a":"b"}}"#.into()).is_ok());
}
