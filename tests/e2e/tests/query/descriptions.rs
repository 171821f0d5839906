//! A route's self-description for each caller, its types, and the API catalogue.

use serde_json::{Value, json};
use testkit::GatewayProcess;
use testkit::http::{TestResponse, request};

use crate::support::orfa_binary;

const CATALOG: &str = "
openapi: 3.1.0
info: { title: Catalog }
paths:
  /catalogs:
    get:
      summary: Postings
      parameters: [{ name: limit, in: query, schema: { type: integer } }]
      responses: { 200: { description: ok, content: { application/json: { schema: { $ref: '#/components/schemas/Odd' } } } } }
    post: { responses: { 201: { description: ok } } }
  /hidden: { get: { responses: { 200: { description: ok } } } }
components: { schemas: { Odd: { type: strnig } } }
";
const CONFIG: &str = "
listen: 127.0.0.1:0
shed: { automatic: false }
services:
  catalog: { url: 'http://127.0.0.1:1', openapi: catalog.yaml, paths: ['/catalogs', '/catalogs/*'] }
  order: { url: 'http://127.0.0.1:1' }
callers:
  shop: { key: '${file:shop.key}' }
rights:
  anonymous: { routes: [/query, /only], services: [catalog], methods: [GET], limits: { cpu: 7ms } }
  shop: {}
routes:
  - path: /query
    query: { services: [catalog, order], methods: [GET, POST], modes: [code, instance] }
  - { path: /only, query: { services: [catalog], programs: stored, stored: [hello.js] } }
  - { path: /secret, query: { services: [order] } }
";
const SHOP_KEY: &str = "a-long-and-random-key-of-the-shop";
const KEY_HEADER: (&str, &str) = ("x-api-key", SHOP_KEY);
const FILES: &[(&str, &str)] =
    &[("catalog.yaml", CATALOG), ("hello.js", "export default () => 'hello'"), ("shop.key", SHOP_KEY)];

async fn start_gateway() -> GatewayProcess {
    GatewayProcess::start_with(orfa_binary(), CONFIG, FILES).await
}

async fn get(gateway: &GatewayProcess, path: &str, headers: &[(&str, &str)]) -> TestResponse {
    request("GET", &format!("{}{path}", gateway.url), headers, Vec::new()).await.expect("an answer")
}

#[tokio::test]
async fn makes_each_description_once_in_the_offload_pool() {
    let config = format!("admin: 127.0.0.1:0\n{}", CONFIG.trim_start());
    let gateway = GatewayProcess::start_with(orfa_binary(), &config, FILES).await;
    for headers in [&[][..], &[], &[KEY_HEADER], &[KEY_HEADER]] {
        assert_eq!(get(&gateway, "/query", headers).await.status, 200);
    }
    let page = crate::support::fetch_metrics(&gateway).await;
    let jobs = page.lines().find(|line| line.contains("orfa_offload_jobs_total{kind=\"describe\"}"));
    assert_eq!(jobs, Some("orfa_offload_jobs_total{kind=\"describe\"} 2"));
}

#[tokio::test]
async fn a_route_describes_itself() {
    let gateway = start_gateway().await;
    let answer = get(&gateway, "/query", &[KEY_HEADER]).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
    let about = answer.json();
    assert_eq!(about["programs"], "any");
    assert_eq!(about["modes"], json!(["code", "instance"]));
    assert_eq!(about["environments"], json!(["env:c@1", "env:javascript@1"]));
    assert_eq!(about["limits"]["cpu"], 50);
    assert!(about["orfa_limit"].as_str().is_some_and(|limit| limit.starts_with("cpu=50, deadline=5000, ")));
    assert_eq!(
        about["media_types"],
        json!(["application/wasm", "text/javascript", "text/typescript", "multipart/form-data"])
    );
    assert!(answer.header("accept-query").contains("text/typescript"));
    let catalog = &about["services"]["catalog"];
    assert_eq!(catalog["title"], "Catalog");
    let parameters = json!([{ "name": "limit", "in": "query" }]);
    let value =
        json!({ "method": "GET", "path": "/catalogs", "summary": "Postings", "parameters": parameters });
    assert_eq!(catalog["operations"][0], value);
    assert_eq!(catalog["operations"][1]["method"], "POST");
    assert_eq!(about["services"]["order"], json!({ "methods": ["GET", "POST"] }));
    let head = request("HEAD", &format!("{}/query", gateway.url), &[KEY_HEADER], Vec::new())
        .await
        .expect("an answer");
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("etag"), answer.header("etag"));
}

#[tokio::test]
async fn descriptions_contain_only_what_the_caller_may_use() {
    let gateway = start_gateway().await;
    let about = get(&gateway, "/query", &[]).await.json();
    assert_eq!(about["limits"]["cpu"], 7);
    let services: Vec<_> = about["services"].as_object().expect("services").keys().collect();
    assert_eq!(services, ["catalog"]);
    assert_eq!(about["services"]["catalog"]["methods"], json!(["GET"]));
    // `/hidden` is not among the service's `paths`.
    assert_eq!(about["services"]["catalog"]["operations"].as_array().map(Vec::len), Some(1));
    let types = get(&gateway, "/query/types.d.ts", &[]).await;
    assert_eq!(
        (types.status.as_u16(), types.header("content-type")),
        (200, "text/typescript; charset=utf-8")
    );
    let types = types.text();
    assert!(
        types.contains("get(path: \"/catalogs\", params?: { limit?: number }): Promise<catalog.Odd>"),
        "{types}"
    );
    assert!(!types.contains("post(path: \"/catalogs\"") && !types.contains("readonly order"), "{types}");
    let whole = get(&gateway, "/query/types.d.ts", &[KEY_HEADER]).await.text();
    assert!(
        whole.contains("post(path: \"/catalogs\"") && whole.contains("readonly order: Service"),
        "{whole}"
    );
    let response = get(&gateway, "/query", &[KEY_HEADER, ("accept", "text/typescript")]).await;
    assert_eq!(response.text(), whole);
}

#[tokio::test]
async fn unchanged_descriptions_answer_with_304() {
    let gateway = start_gateway().await;
    for path in ["/query", "/query/types.d.ts"] {
        let first = get(&gateway, path, &[]).await;
        assert_eq!(first.header("cache-control"), "no-cache");
        let tag = first.header("etag").to_owned();
        let response = get(&gateway, path, &[("if-none-match", &format!("\"other\", W/{tag}"))]).await;
        assert_eq!((response.status.as_u16(), response.body.len()), (304, 0), "{path}");
        assert_eq!(response.header("etag"), format!("W/{tag}"), "the client's version");
        let others = get(&gateway, path, &[KEY_HEADER, ("if-none-match", &tag)]).await;
        assert_eq!(others.status.as_u16(), 200, "{path}: another caller has another version");
    }
}

#[tokio::test]
async fn the_example_runs_as_it_is() {
    let gateway = start_gateway().await;
    let about = get(&gateway, "/query", &[]).await.json();
    let program = about["example"]["program"].as_str().expect("a program");
    assert!(program.contains("services[\"catalog\"].get(\"/catalogs\")"), "{program}");
    let curl = about["example"]["curl"].as_str().expect("a line");
    assert!(curl.starts_with(&format!("curl '{}/query' ", gateway.url)), "{curl}");
    let headers = [("content-type", "text/javascript")];
    let url = format!("{}/query", gateway.url);
    let ran = request("POST", &url, &headers, program.as_bytes().to_vec()).await.expect("an answer");
    // The service is unreachable: the program was compiled, ran, and called it.
    assert_eq!(ran.json()["calls"][0]["path"], "/catalogs", "{}", ran.text());
}

#[tokio::test]
async fn stored_programs_are_listed_and_the_example_works() {
    let gateway = start_gateway().await;
    let about = get(&gateway, "/only", &[]).await.json();
    assert_eq!(about["programs"], "stored");
    let stored = about["stored"].as_array().expect("a list");
    assert_eq!(stored[0]["name"], "hello");
    let hash = stored[0]["hash"].as_str().expect("a hash");
    let called = get(&gateway, &format!("/only/hello@{hash}"), &[]).await;
    assert_eq!((called.text(), called.header("cache-control")), ("hello".to_owned(), "no-store"));
    assert_eq!(about["example"]["curl"], format!("curl '{}/only/hello'", gateway.url));
    assert!(get(&gateway, "/only/types.d.ts", &[]).await.text().contains("export interface Services"));
}

#[tokio::test]
async fn shell_characters_of_the_host_are_not_in_the_example() {
    let gateway = start_gateway().await;
    let about = get(&gateway, "/query", &[("host", "a'b")]).await;
    assert!(!about.text().contains("a'b"), "{}", about.text());
}

fn link_anchors(catalogue: &Value) -> Vec<String> {
    let links = catalogue["linkset"].as_array().expect("a linkset");
    links.iter().map(|link| link["anchor"].as_str().expect("an anchor").to_owned()).collect()
}

#[tokio::test]
async fn the_catalogue_lists_routes_the_caller_may_use() {
    let gateway = start_gateway().await;
    let path = "/.well-known/api-catalog";
    let answer = get(&gateway, path, &[]).await;
    let profile = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, profile));
    let url = &gateway.url;
    assert_eq!(link_anchors(&answer.json()), [format!("{url}/query"), format!("{url}/only")]);
    let all = get(&gateway, path, &[KEY_HEADER]).await.json();
    assert_eq!(link_anchors(&all).len(), 3);
    for link in all["linkset"][0]["service-desc"].as_array().expect("links") {
        let href = link["href"].as_str().expect("a URL").strip_prefix(url.as_str()).expect("of this gateway");
        let there = get(&gateway, href, &[KEY_HEADER]).await;
        assert!(there.header("content-type").starts_with(link["type"].as_str().expect("a type")), "{link}");
    }
    let head = request("HEAD", &format!("{url}{path}"), &[], Vec::new()).await.expect("an answer");
    assert!(head.header("link").contains("rel=\"api-catalog\""), "{:?}", head.headers);
    let post = request("POST", &format!("{url}{path}"), &[], Vec::new()).await.expect("an answer");
    assert_eq!((post.status.as_u16(), post.header("allow")), (405, "GET, HEAD"));
    let response = get(&gateway, path, &[("x-api-key", "wrong")]).await;
    assert_eq!(response.status.as_u16(), 401);
}

#[tokio::test]
async fn configured_routes_take_precedence_over_the_catalogue() {
    let upstream = testkit::misbehaving_upstream::start().await;
    let config = format!(
        "listen: 127.0.0.1:0\nservices: {{ up: {{ url: '{}' }} }}\nroutes:\n  - {{ path: /query, query: {{ services: [up] }} }}\n  - {{ path: /*, proxy: {{ service: up, keep_prefix: true }} }}\n",
        upstream.url()
    );
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    let answer = get(&gateway, "/.well-known/api-catalog", &[]).await;
    assert!(!answer.header("content-type").starts_with("application/linkset+json"), "{:?}", answer.headers);
}

#[tokio::test]
async fn odd_openapi_documents_warn_and_invalid_ones_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("orfa.yaml", CONFIG);
    FILES.iter().for_each(|(name, text)| write(name, text));
    let check =
        || tokio::process::Command::new(orfa_binary()).arg("check").current_dir(folder.path()).output();
    let odd = check().await.expect("orfa runs");
    let said = String::from_utf8_lossy(&odd.stderr).into_owned();
    assert_eq!(odd.status.code(), Some(0), "{said}");
    assert!(
        said.contains("catalog: #/components/schemas/Odd/type: there is no type `strnig`: read as unknown"),
        "{said}"
    );
    for (text, told) in [("openapi: [", "neither JSON nor YAML"), ("a: b", "not an OpenAPI document")] {
        write("catalog.yaml", text);
        let output = check().await.expect("orfa runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(
            said.contains("orfa.yaml:5:") && said.contains("services.catalog.openapi: catalog.yaml: "),
            "{said}"
        );
        assert!(said.contains(told) && said.contains("hint: "), "{said}");
    }
}
