//! Tests of request parsing.

use http::Request;
use services::body;

use super::*;

fn far_deadline() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

fn parse_request(request: Request<StreamedServiceBody>) -> Result<GraphqlRequest, RequestParseError> {
    let (head, body) = request.into_parts();
    futures_util::FutureExt::now_or_never(GraphqlRequest::from_http(&head, body, 200, far_deadline()))
        .expect("the body is there")
}

fn parse_post(body: &str) -> Result<GraphqlRequest, RequestParseError> {
    parse_post_typed("application/json", body)
}

fn parse_post_typed(kind: &str, body: &str) -> Result<GraphqlRequest, RequestParseError> {
    let request = Request::post("/graphql").header(CONTENT_TYPE, kind);
    parse_request(request.body(body::full(body.to_owned())).unwrap())
}

fn parse_get(query: &str) -> Result<GraphqlRequest, RequestParseError> {
    parse_request(Request::get(format!("/graphql{query}")).body(body::empty()).unwrap())
}

fn document_request(text: &str) -> GraphqlRequest {
    GraphqlRequest { query: Some(text.to_owned()), ..GraphqlRequest::default() }
}

#[test]
fn reads_document_operation_and_variables_from_the_body() {
    let request =
        parse_post(r#"{"query": "{a}", "operationName": "A", "variables": {"id": 1.0}, "more": []}"#)
            .unwrap();
    let variables = Some(Bytes::from_static(br#"{"id": 1.0}"#));
    assert_eq!(
        request,
        GraphqlRequest { operation_name: Some("A".to_owned()), variables, ..document_request("{a}") }
    );
    let nothing = r#"{"query": "{a}", "operationName": null, "variables": null, "extensions": null}"#;
    assert_eq!(parse_post(nothing).unwrap(), document_request("{a}"));
    assert_eq!(
        parse_post("\u{feff}{\"query\": \"{a}\"}").unwrap(),
        document_request("{a}"),
        "a byte order mark"
    );
}

#[test]
fn reads_document_operation_and_variables_from_the_url() {
    let request =
        parse_get("?query=%7Ba%7D&operationName=A&variables=%7B%22id%22%3A1%7D&extensions=%7B%7D&utm=x")
            .unwrap();
    let variables = Some(Bytes::from_static(br#"{"id":1}"#));
    assert_eq!(
        request,
        GraphqlRequest { operation_name: Some("A".to_owned()), variables, ..document_request("{a}") }
    );
    assert_eq!(parse_get("?query={a}&operationName=&variables=").unwrap(), document_request("{a}"));
}

#[test]
fn reads_a_hash_from_the_extensions_or_the_document_id() {
    let hash = "0123456789abcdef".repeat(4);
    let expected = parse_hash(&hash);
    assert_eq!(expected.unwrap()[..3], [0x01, 0x23, 0x45]);
    for body in [
        format!(r#"{{"extensions": {{"persistedQuery": {{"version": 1, "sha256Hash": "{hash}"}}}}}}"#),
        format!(r#"{{"documentId": "sha256:{hash}"}}"#),
    ] {
        assert_eq!(parse_post(&body).unwrap().hash, expected, "{body}");
    }
    assert_eq!(parse_get(&format!("?documentId=sha256:{hash}")).unwrap().hash, expected);
    assert_eq!(parse_post(r#"{"documentId": "buyers"}"#).unwrap().document_id.as_deref(), Some("buyers"));
}

#[test]
fn reports_parameters_of_the_wrong_type_by_name() {
    let wrong = |body: &str| match parse_post(body) {
        Err(RequestParseError::Graphql(refusal)) => refusal.to_string(),
        other => panic!("{body}: {other:?}"),
    };
    for (body, expected) in [
        (r#"{"query": 1}"#, "`query` has to be a string, and is a number"),
        (r#"{"query": "{a}", "operationName": []}"#, "`operationName` has to be a string, and is an array"),
        (r#"{"query": "{a}", "variables": "{}"}"#, "`variables` has to be an object, and is a string"),
        (r#"{"query": "{a}", "variables": []}"#, "`variables` has to be an object, and is an array"),
        (r#"{"query": "{a}", "extensions": true}"#, "`extensions` has to be an object, and is a boolean"),
        (
            r#"{"query": "{a}", "extensions": {"persistedQuery": 1}}"#,
            "`persistedQuery` has to be an object, and is a number",
        ),
        (r#"{"extensions": {"persistedQuery": {"version": 2}}}"#, "PersistedQueryNotSupported"),
        (
            r#"{"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "zz"}}}"#,
            "the hash is not a hexadecimal SHA-256",
        ),
        (r#"{"qeury": "{a}"}"#, "there is no `query`"),
        (r#"{"query": null}"#, "there is no `query`"),
        (
            r#"[{"query": "{a}"}]"#,
            "several operations in one request are not answered: send a request for each",
        ),
        (r#""{a}""#, "the body is a string, and has to be an object with `query`"),
        ("", "the body is not JSON: byte 0: this is not JSON"),
        (r#"{"query"#, "the body is not JSON: byte 7: this is not JSON"),
    ] {
        assert_eq!(wrong(body), expected, "{body}");
    }
    assert_eq!(
        parse_get("?query={a}&query={b}"),
        Err(GraphqlRefusal::DuplicateParameter("query".into()).into())
    );
    assert_eq!(
        parse_get("?query={a}&variables=1").map_err(|error| matches!(error, RequestParseError::Graphql(_))),
        Err(true)
    );
    assert_eq!(parse_get(""), Err(GraphqlRefusal::MissingQuery.into()));
}

#[test]
fn rejects_duplicate_names_in_the_request() {
    let hash = "0".repeat(64);
    for (body, name) in [
        (r#"{"query": "{a}", "query": "{b}"}"#, "query"),
        (r#"{"query": "{a}", "qu\u0065ry": "{b}"}"#, "query"),
        (r#"{"query": null, "query": "{b}"}"#, "query"),
        (r#"{"query": "{a}", "operationName": "A", "operationName": "B"}"#, "operationName"),
        (r#"{"query": "{a}", "variables": {"i": 1}, "variables": {"i": 2}}"#, "variables"),
        (r#"{"query": "{a}", "extensions": {}, "extensions": {}}"#, "extensions"),
        (r#"{"query": "{a}", "documentId": "a", "documentId": "b"}"#, "documentId"),
        (r#"{"query": "{a}", "variables": {"i": 1, "i": 2}}"#, "variables.i"),
        (r#"{"query": "{a}", "variables": {"i": 1, "\u0069": 1}}"#, "variables.i"),
        (
            r#"{"query": "{a}", "extensions": {"persistedQuery": null, "persistedQuery": null}}"#,
            "extensions.persistedQuery",
        ),
    ] {
        assert_eq!(parse_post(body), Err(GraphqlRefusal::DuplicateParameter(name.into()).into()), "{body}");
    }
    let persisted = format!(r#"{{"version": 1, "sha256Hash": "{hash}", "version": 1}}"#);
    assert_eq!(
        parse_post(&format!(r#"{{"extensions": {{"persistedQuery": {persisted}}}}}"#)),
        Err(GraphqlRefusal::DuplicateParameter("persistedQuery.version".into()).into())
    );
    assert_eq!(
        parse_get("?query={a}&variables=%7B%22i%22:1,%22i%22:2%7D"),
        Err(GraphqlRefusal::DuplicateParameter("variables.i".into()).into())
    );
    // Names outside the protocol are ignored.
    assert!(parse_post(r#"{"query": "{a}", "more": 1, "more": 2}"#).is_ok());
}

#[test]
fn rejects_bodies_not_declared_as_json() {
    let refused = |kind: &str| parse_post_typed(kind, r#"{"query": "{a}"}"#).map(drop);
    for kind in ["application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\"", "application/json"]
    {
        assert_eq!(refused(kind), Ok(()), "{kind}");
    }
    for kind in
        ["text/plain", "application/graphql", "application/x-www-form-urlencoded", "multipart/form-data"]
    {
        assert_eq!(refused(kind), Err(HttpError::ContentType(kind.to_owned()).into()));
    }
    let utf16 = Err(HttpError::Charset("utf-16".to_owned()).into());
    assert_eq!(refused("application/json; charset=utf-16"), utf16);
    let bare = Request::post("/graphql").body(body::full("{}")).unwrap();
    assert_eq!(parse_request(bare), Err(HttpError::ContentTypeMissing.into()));
    let head =
        Request::post("/graphql").header(CONTENT_TYPE, "application/json").header(CONTENT_ENCODING, "gzip");
    let refused = Err(HttpError::ContentEncoding("gzip".to_owned()).into());
    assert_eq!(parse_request(head.body(body::full("{}")).unwrap()), refused);
    let twice =
        Request::post("/graphql").header(CONTENT_TYPE, "application/json").header(CONTENT_TYPE, "text/plain");
    let refused = Err(HttpError::ContentType("several at once".to_owned()).into());
    assert_eq!(parse_request(twice.body(body::full("{}")).unwrap()), refused);
    let put = Request::put("/graphql").body(body::empty()).unwrap();
    assert_eq!(parse_request(put), Err(HttpError::Method(Method::PUT).into()));
}

#[test]
fn rejects_bodies_and_urls_above_the_limit() {
    let long = format!(r#"{{"query": "{}"}}"#, "a".repeat(200));
    assert_eq!(parse_post(&long), Err(HttpError::Size(200).into()));
    assert_eq!(parse_get(&format!("?query={}", "a".repeat(200))), Err(HttpError::Size(200).into()));
}

/// Returns how often reading a request of at most 1 MiB moves to the pool.
async fn count_moves(request: http::request::Builder, body: String) -> u64 {
    let request = request.body(body::full(body)).unwrap();
    let reading = async move {
        let (head, body) = request.into_parts();
        GraphqlRequest::from_http(&head, body, 1 << 20, far_deadline()).await.is_ok()
    };
    let (is_read, moves) = crate::fetch::shop_fixture::count_moves(reading).await;
    assert!(is_read);
    moves
}

#[tokio::test]
async fn reads_many_values_in_the_pool() {
    let post = || Request::post("/graphql").header(CONTENT_TYPE, "application/json");
    let with = |variables: String| format!(r#"{{"query":"{{a}}","variables":{{{variables}}}}}"#);
    let names: String = (0..7_000).map(|number| format!(r#""v{number}":1,"#)).collect();
    assert_eq!(count_moves(post(), with(format!(r#"{names}"z":1"#))).await, 1);
    assert_eq!(count_moves(post(), with(format!(r#""z":"{}""#, "x".repeat(60_000)))).await, 0);
    assert_eq!(count_moves(post(), with(format!(r#""z":"{}""#, r"\u0041".repeat(100_000)))).await, 1);
    let get = |more: String| Request::get(format!("/graphql?query={{a}}{more}"));
    assert_eq!(count_moves(get("&a".repeat(16_000)), String::new()).await, 1);
    assert_eq!(count_moves(get("&a".repeat(100)), String::new()).await, 0);
}
