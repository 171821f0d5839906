//! Tests of requests to REST services, and of the handling of their responses.

use http::Method;
use serde_json::json;

use super::*;
use crate::fetch::shop_fixture::{ShopFixture, describe_outcomes};
use crate::subgraph::RestParameter;

fn new_parameter(name: &str, parameter_location: ParameterLocation, from: ParameterSource) -> RestParameter {
    RestParameter {
        name: name.into(),
        location: parameter_location,
        is_required: false,
        is_repeated: false,
        source: from,
    }
}

fn argument_parameter(name: &str, location: ParameterLocation) -> RestParameter {
    new_parameter(name, location, ParameterSource::Argument(name.into()))
}

fn get_operation(path: &str, parameters: Vec<RestParameter>) -> RestOperation {
    RestOperation {
        method: Method::GET,
        path: path.into(),
        parameters,
        body: None,
        response_path: JsonPath::default(),
        is_text: false,
        is_empty: false,
    }
}

fn parse_arguments(text: &str) -> ArgumentValues {
    ArgumentValues::parse(text.to_owned().into()).expect("arguments in JSON")
}

/// Returns the result of a plain GET of `/` with this response.
async fn fetch_response(status: u16, text: &str) -> (FetchedValues, Vec<String>) {
    let fixture = ShopFixture::new(&[("/", status, text)]).await;
    let fetched =
        fetch_root(&fixture.call_context(), "shop", &get_operation("/", vec![]), &ArgumentValues::default())
            .await;
    let shown = describe_outcomes(&fetched);
    (fetched, shown)
}

/// Returns the URL of an operation with these arguments, or the code of the error.
async fn request_url(operation: &RestOperation, text: &str) -> String {
    let fixture = ShopFixture::new(&[]).await;
    let fetched = fetch_root(&fixture.call_context(), "shop", operation, &parse_arguments(text)).await;
    match fetched.errors.first().map(|error| error.code) {
        Some("upstream-status") => fixture.pop_last_request().request_line,
        code => code.unwrap_or_default().to_owned(),
    }
}

#[tokio::test]
async fn encodes_values_in_paths_and_queries() {
    let operation = get_operation(
        "/a/{id}/b",
        vec![
            argument_parameter("id", ParameterLocation::Path),
            argument_parameter("q", ParameterLocation::Query),
            argument_parameter("n", ParameterLocation::Query),
        ],
    );
    assert_eq!(
        request_url(&operation, r#"{"id":"ä b","q":"x&y=\u00e9/?","n":7}"#).await,
        "GET /a/%C3%A4%20b/b?q=x%26y%3D%C3%A9%2F%3F&n=7"
    );
    assert_eq!(request_url(&operation, r#"{"id":1.50,"q":null}"#).await, "GET /a/1.50/b");
}

#[tokio::test]
async fn writes_lists_in_queries_with_commas_or_repeated_names() {
    let mut operation = get_operation("/", vec![argument_parameter("ids[]", ParameterLocation::Query)]);
    let text = r#"{"ids[]":[1,"b,c",true,null]}"#;
    assert_eq!(request_url(&operation, text).await, "GET /?ids%5B%5D=1,b%2Cc,true");
    operation.parameters[0].is_repeated = true;
    assert_eq!(request_url(&operation, text).await, "GET /?ids%5B%5D=1&ids%5B%5D=b%2Cc&ids%5B%5D=true");
}

#[tokio::test]
async fn an_exploded_object_adds_no_further_parameters() {
    let mut operation = get_operation(
        "/",
        vec![
            argument_parameter("since", ParameterLocation::Query),
            argument_parameter("q", ParameterLocation::Query),
        ],
    );
    operation.parameters[0].is_repeated = true;
    for text in [r#"{"since":{"admin":1},"q":"x"}"#, r#"{"since":{"q":"y"}}"#, r#"{"since":[{"admin":1}]}"#] {
        assert_eq!(request_url(&operation, text).await, "argument-unfit", "{text}");
    }
}

#[tokio::test]
async fn rejects_an_empty_list_in_a_path() {
    let mut operation =
        get_operation("/items/{ids}", vec![argument_parameter("ids", ParameterLocation::Path)]);
    for method in [Method::GET, Method::DELETE] {
        operation.method = method.clone();
        for ids in ["[]", "[null]", "[1,null]", "[[]]"] {
            let text = format!(r#"{{"ids":{ids}}}"#);
            let code = if ids == "[[]]" { "argument-unfit" } else { "argument-missing" };
            assert_eq!(request_url(&operation, &text).await, code, "{text}");
        }
        for ids in [r#""""#, r#"".""#, r#""..""#, r#"["a",""]"#, r#"["..","a"]"#, r#"["a/b"]"#, r#""\u0000""#]
        {
            assert_eq!(
                request_url(&operation, &format!(r#"{{"ids":{ids}}}"#)).await,
                "argument-unfit",
                "{ids}"
            );
        }
        assert_eq!(request_url(&operation, r#"{"ids":[1,"b,c"]}"#).await, format!("{method} /items/1,b%2Cc"));
    }
}

#[tokio::test]
async fn omits_an_empty_list_outside_the_path_only_if_that_is_safe() {
    for location in [ParameterLocation::Query, ParameterLocation::Header, ParameterLocation::Cookie] {
        for is_repeated in [false, true] {
            let mut operation = get_operation("/items", vec![argument_parameter("ids", location)]);
            operation.parameters[0].is_repeated = is_repeated;
            for text in [r#"{"ids":[]}"#, r#"{"ids":[null]}"#] {
                let fixture = ShopFixture::new(&[]).await;
                operation.method = Method::GET;
                let _ = fetch_root(&fixture.call_context(), "shop", &operation, &parse_arguments(text)).await;
                let request = fixture.pop_last_request();
                assert_eq!(request.request_line, "GET /items");
                assert!(!request.headers.contains_key("ids") && !request.headers.contains_key("cookie"));
                operation.method = Method::DELETE;
                assert_eq!(request_url(&operation, text).await, "argument-missing");
            }
            operation.method = Method::GET;
            operation.parameters[0].is_required = true;
            assert_eq!(request_url(&operation, r#"{"ids":[]}"#).await, "argument-missing");
        }
    }
}

#[tokio::test]
async fn rejects_a_list_with_an_empty_text_in_unsafe_requests() {
    for location in [ParameterLocation::Query, ParameterLocation::Header, ParameterLocation::Cookie] {
        for is_repeated in [false, true] {
            let mut operation = get_operation("/items", vec![argument_parameter("ids", location)]);
            operation.parameters[0].is_repeated = is_repeated;
            for text in [r#"{"ids":[""]}"#, r#"{"ids":["",null]}"#, r#"{"ids":["a",""]}"#] {
                operation.method = Method::DELETE;
                assert_eq!(request_url(&operation, text).await, "argument-unfit", "{text}");
                operation.method = Method::GET;
                assert!(request_url(&operation, text).await.starts_with("GET /items"), "{text}");
            }
            operation.method = Method::DELETE;
            assert!(request_url(&operation, r#"{"ids":["a"]}"#).await.starts_with("DELETE /items"));
        }
    }
}

#[tokio::test]
async fn rejects_surrounding_white_space_in_headers() {
    let operation = get_operation("/", vec![argument_parameter("x-tenant", ParameterLocation::Header)]);
    for value in [r#"" x""#, r#""x ""#, r#""\t""#, r#"["a"," b"]"#, r#"["a\t","b"]"#] {
        assert_eq!(
            request_url(&operation, &format!(r#"{{"x-tenant":{value}}}"#)).await,
            "argument-unfit",
            "{value}"
        );
    }
    for value in [r#""a b""#, r#""""#, r#"["a","b\tc"]"#] {
        assert_eq!(request_url(&operation, &format!(r#"{{"x-tenant":{value}}}"#)).await, "GET /", "{value}");
    }
}

#[tokio::test]
async fn omits_an_object_without_scalars_only_if_that_is_safe() {
    for filter in
        ["{}", r#"{"a":null}"#, r#"{"a":[]}"#, r#"{"a":{}}"#, r#"{"a":[{"b":[null]}],"c":{"d":{}}}"#]
    {
        let text = format!(r#"{{"filter":{filter}}}"#);
        let mut operation =
            get_operation("/all", vec![argument_parameter("filter", ParameterLocation::Query)]);
        assert_eq!(request_url(&operation, &text).await, "GET /all", "{text}");
        operation.method = Method::DELETE;
        assert_eq!(request_url(&operation, &text).await, "argument-missing", "{text}");
        operation.parameters[0].is_required = true;
        for method in [Method::GET, Method::DELETE] {
            operation.method = method;
            assert_eq!(request_url(&operation, &text).await, "argument-missing", "{text}");
        }
    }
    let mut operation = get_operation("/all", vec![argument_parameter("filter", ParameterLocation::Query)]);
    operation.method = Method::DELETE;
    assert_eq!(request_url(&operation, r#"{"filter":{"a":[],"b":""}}"#).await, "DELETE /all?filter%5Bb%5D=");
}

#[tokio::test]
async fn omits_a_null_body() {
    let operation =
        RestOperation { method: Method::POST, body: Some("input".into()), ..get_operation("/", vec![]) };
    let fixture = ShopFixture::new(&[]).await;
    let _ =
        fetch_root(&fixture.call_context(), "shop", &operation, &parse_arguments(r#"{"input":null}"#)).await;
    let request = fixture.pop_last_request();
    assert_eq!((&*request.body, request.headers.get("content-type")), ("", None));
}

/// A deep object repeats the names above each of its values: the URL for this one of 400 KB would have 200
/// MB.
#[tokio::test]
async fn a_deep_object_does_not_exceed_the_url_limit() {
    let operation = get_operation("/", vec![argument_parameter("filters", ParameterLocation::Query)]);
    let name = "n".repeat(200);
    let open = format!("{{\"{name}\":").repeat(900);
    let text = format!("{{\"filters\":{open}[{}1]{}}}", "1,".repeat(1000), "}".repeat(900));
    assert_eq!(request_url(&operation, &text).await, "url-invalid");
}

#[tokio::test]
async fn writes_objects_in_queries_with_bracketed_names() {
    let mut operation = get_operation("/", vec![argument_parameter("filters", ParameterLocation::Query)]);
    let text = r#"{"filters":{"name":{"$eq":"x"},"ids":[1,2],"none":null}}"#;
    let expected = "GET /?filters%5Bname%5D%5B%24eq%5D=x&filters%5Bids%5D%5B0%5D=1&filters%5Bids%5D%5B1%5D=2";
    assert_eq!(request_url(&operation, text).await, expected);
    operation.parameters[0].is_repeated = true;
    assert_eq!(request_url(&operation, text).await, "argument-unfit");
}

#[tokio::test]
async fn rejects_path_segments_that_would_change_the_path() {
    let operation = get_operation("/a/{id}", vec![argument_parameter("id", ParameterLocation::Path)]);
    for id in ["", ".", "..", "a/b", "a\\b", "a\nb"] {
        assert_eq!(
            request_url(&operation, &json!({ "id": id }).to_string()).await,
            "argument-unfit",
            "{id:?}"
        );
    }
    assert_eq!(request_url(&operation, r#"{"id":{}}"#).await, "argument-unfit");
    assert_eq!(request_url(&operation, "{}").await, "argument-missing");
}

#[tokio::test]
async fn sends_headers_cookies_fixed_values_and_bodies() {
    let fixed = |name, value| new_parameter(name, ParameterLocation::Query, ParameterSource::Fixed(value));
    let parameters = vec![
        argument_parameter("x-tenant", ParameterLocation::Header),
        argument_parameter("session", ParameterLocation::Cookie),
        fixed("sort", json!("name")),
        fixed("with", json!(["a", 1])),
    ];
    let operation =
        RestOperation { method: Method::POST, body: Some("input".into()), ..get_operation("/", parameters) };
    let fixture = ShopFixture::new(&[("POST /?sort=name&with=a,1", 200, "{}")]).await;
    let values = parse_arguments(r#"{"x-tenant":"t","session":"a b","input":{"n": 1.0,"s":"é"}}"#);
    let fetched = fetch_root(&fixture.call_context(), "shop", &operation, &values).await;
    assert_eq!(describe_outcomes(&fetched), ["{}"]);
    let request = fixture.pop_last_request();
    let header = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap());
    assert_eq!((header("x-tenant"), header("cookie")), ("t", "session=a%20b"));
    assert_eq!((header("content-type"), header("accept")), ("application/json", "application/json"));
    assert_eq!(request.body, r#"{"n": 1.0,"s":"é"}"#);
    let argument_values = parse_arguments(r#"{"x-tenant":"a\nb"}"#);
    let fetched = fetch_root(&fixture.call_context(), "shop", &operation, &argument_values).await;
    assert_eq!(describe_outcomes(&fetched), ["argument-unfit"]);
}

#[tokio::test]
async fn reads_the_value_at_the_path_of_the_operation() {
    let fixture = ShopFixture::new(&[("/", 200, r#"{"data":{"items":[1,2]},"meta":{}}"#)]).await;
    let at =
        |path| RestOperation { response_path: JsonPath::parse(path).unwrap(), ..get_operation("/", vec![]) };
    let find = async |path| {
        describe_outcomes(
            &fetch_root(&fixture.call_context(), "shop", &at(path), &ArgumentValues::default()).await,
        )
    };
    assert_eq!(find(".data.items").await, ["[1,2]"]);
    assert_eq!(find(".data.none").await, ["upstream-shape"]);
}

#[tokio::test]
async fn accepts_texts_and_empty_responses_as_values() {
    let fixture = ShopFixture::new(&[("/", 200, "a \"text\"\n"), ("DELETE /", 204, "")]).await;
    let text = RestOperation { is_text: true, ..get_operation("/", vec![]) };
    let none = ArgumentValues::default();
    assert_eq!(
        describe_outcomes(&fetch_root(&fixture.call_context(), "shop", &text, &none).await),
        [r#""a \"text\"\n""#]
    );
    let delete = RestOperation { method: Method::DELETE, ..get_operation("/", vec![]) };
    assert_eq!(
        describe_outcomes(&fetch_root(&fixture.call_context(), "shop", &delete, &none).await),
        ["nothing"]
    );
    let delete = RestOperation { is_empty: true, ..delete };
    assert_eq!(
        describe_outcomes(&fetch_root(&fixture.call_context(), "shop", &delete, &none).await),
        ["true"]
    );
}

#[tokio::test]
async fn not_found_for_a_value_in_the_path_is_null_without_an_error() {
    let rig = ShopFixture::new(&[("/a/1", 404, "{}"), ("/a", 404, "{}"), ("DELETE /a/1", 404, "{}")]).await;
    let by_id = get_operation("/a/{id}", vec![argument_parameter("id", ParameterLocation::Path)]);
    let values = parse_arguments(r#"{"id":1}"#);
    assert_eq!(
        describe_outcomes(&fetch_root(&rig.call_context(), "shop", &by_id, &values).await),
        ["nothing"]
    );
    assert_eq!(
        describe_outcomes(
            &fetch_root(&rig.call_context(), "shop", &get_operation("/a", vec![]), &values).await
        ),
        ["upstream-status"]
    );
    let delete = RestOperation { method: Method::DELETE, ..by_id };
    assert_eq!(
        describe_outcomes(&fetch_root(&rig.call_context(), "shop", &delete, &values).await),
        ["upstream-status"]
    );
}

#[tokio::test]
async fn distinguishes_statuses_html_and_truncated_json() {
    for (status, text, code, message) in [
        (500, "{}", "upstream-status", "the service `shop` answered 500 Internal Server Error"),
        (401, "{}", "upstream-status", "the service `shop` answered 401 Unauthorized"),
        (200, " <html>", "upstream-not-json", "the service `shop` answered with HTML instead of JSON"),
        (200, r#"[{"id":1},{"id"#, "upstream-not-json", "the response of the service `shop` is not JSON"),
        (200, "", "upstream-not-json", "the service `shop` answered with an empty body instead of JSON"),
    ] {
        let (fetched, shown) = fetch_response(status, text).await;
        assert_eq!(shown, [code], "{text}");
        let error = &fetched.errors[0];
        assert!(error.message.starts_with(message), "{}", error.message);
        assert_eq!((&*error.service, error.status), ("shop", (status != 200).then_some(status)));
    }
}

#[tokio::test]
async fn reports_broken_responses_and_unknown_services_by_call_codes() {
    let fixture = ShopFixture::new(&[]).await;
    let unknown = fetch_root(
        &fixture.call_context(),
        "nobody",
        &get_operation("/", vec![]),
        &ArgumentValues::default(),
    )
    .await;
    assert_eq!(describe_outcomes(&unknown), ["service-unknown"]);
    let upstream = testkit::misbehaving_upstream::start().await;
    let config = services::ServiceConfig::with_url(upstream.url());
    let services = services::ServiceSet::new(&[("shop".to_owned(), config)].into()).unwrap();
    let limits = crate::fetch::call_context::SourceLimits { calls: 1, concurrency: 1, upstream_bytes: 1000 };
    let sources = crate::fetch::call_context::RouteServices::new(services, limits, false);
    for (path, code) in
        [("/garbage", "upstream-broken"), ("/short", "upstream-broken"), ("/gigabyte", "limit-received")]
    {
        let budget = services::RequestBudget::new(std::time::Duration::from_secs(60), 1, 1000, 1);
        let call = services::RequestCall { budget: budget.into(), ..services::RequestCall::unlimited() };
        let fetched = fetch_root(
            &sources.call_context(call),
            "shop",
            &get_operation(path, vec![]),
            &ArgumentValues::default(),
        )
        .await;
        assert_eq!(describe_outcomes(&fetched), [code], "{path}");
    }
}

#[tokio::test]
async fn sends_equal_reads_of_one_request_once() {
    let fixture = ShopFixture::new(&[("/", 200, "[1]")]).await;
    let (context, operation, none) =
        (fixture.call_context(), get_operation("/", vec![]), ArgumentValues::default());
    let both = futures_util::future::join(
        fetch_root(&context, "shop", &operation, &none),
        fetch_root(&context, "shop", &operation, &none),
    )
    .await;
    assert!(Arc::ptr_eq(&both.0.documents[0], &both.1.documents[0]), "read once, too");
    assert_eq!(fixture.request_lines(), ["GET /"]);
}

#[tokio::test]
async fn coalesces_equal_reads_of_several_requests() {
    let fixture = ShopFixture::with_config(&[("/", 200, "[1]")], "", true).await;
    let (operation, none) = (get_operation("/", vec![]), ArgumentValues::default());
    let grounds = [fixture.call_context(), fixture.call_context()];
    let asked = grounds.iter().map(|context| fetch_root(context, "shop", &operation, &none));
    let fetched = futures_util::future::join_all(asked).await;
    assert!(Arc::ptr_eq(&fetched[0].documents[0], &fetched[1].documents[0]));
    assert_eq!(fixture.request_lines(), ["GET /"]);
}
