//! Checks docs/graphql.md: its configs are valid, and its queries are answered as shown, by the marketplace.

use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde_json::{Value, json};
use testkit::{GatewayProcess, http};
use tokio::process::Command;

use crate::support::orfa_binary;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/marketplace");

/// Returns the code blocks of the page, each with its language and text.
fn code_blocks() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graphql.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let parts = page.split("\n```").collect::<Vec<_>>();
    let block =
        |part: &&str| part.split_once('\n').map(|(language, text)| (language.to_owned(), text.to_owned()));
    parts.iter().skip(1).step_by(2).filter_map(block).collect()
}

/// Returns the texts of a file in the page's code blocks.
fn file_blocks(file: &str) -> Vec<String> {
    let begin = format!("# {file}\n");
    let blocks =
        code_blocks().into_iter().filter(|(language, text)| language == "yaml" && text.starts_with(&begin));
    blocks.map(|(_, text)| text).collect()
}

/// Replaces the paths of the services' documents.
fn replace_document_paths(config: &str) -> String {
    config.replace("openapi: openapi/", &format!("openapi: {FOLDER}/openapi/"))
}

#[tokio::test]
async fn queries_have_the_documented_answers() {
    let services =
        Marketplace::start(DatabaseFolder::fresh().expect("a folder")).await.expect("a marketplace");
    let (config, links) =
        (replace_document_paths(&file_blocks("orfa.yaml")[0]), &file_blocks("links.yaml")[0]);
    let at = |config: String, service: &MarketplaceService| {
        config.replace(&format!("http://127.0.0.1:{}", service.port()), &services.url(*service))
    };
    let config = MarketplaceService::ALL.iter().fold(config, at) + "\nlisten: 127.0.0.1:0\n";
    let gateway = GatewayProcess::start_with(orfa_binary(), &config, &[("links.yaml", links)]).await;
    let blocks = code_blocks();
    let asked = blocks.iter().zip(blocks.iter().skip(1));
    let mut count = 0;
    for ((_, query), (_, answer)) in
        asked.filter(|((one, _), (other, _))| one == "graphql" && other == "json")
    {
        let headers = [("content-type", "application/json")];
        let body = json!({ "query": query }).to_string();
        let response = http::request("POST", &format!("{}/graphql", gateway.url), &headers, body).await;
        let expected: Value = serde_json::from_str(answer).expect("JSON");
        assert_eq!(response.expect("an answer").json(), expected, "{query}");
        count += 1;
    }
    assert!(count > 0, "the page shows no query");
    let renamed = &file_blocks("renamed.yaml")[0];
    gateway.replace_file("links.yaml", renamed);
    let schema =
        Command::new(orfa_binary()).args(["graphql", "schema"]).current_dir(gateway.directory()).output();
    let schema = String::from_utf8(schema.await.expect("orfa runs").stdout).expect("a text");
    assert!(
        schema.contains("type Customer") && schema.contains("fullName") && !schema.contains("type Buyer "),
        "{schema}"
    );
}

#[tokio::test]
async fn every_config_of_the_page_is_valid() {
    let configs = file_blocks("orfa.yaml");
    assert!(configs.len() > 4);
    for config in configs {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        write("orfa.yaml", &replace_document_paths(&config));
        write("links.yaml", &file_blocks("links.yaml")[0]);
        write("studio.key", "a-long-and-random-key-of-the-studio");
        write("agents.graphql", "type Query { agents: [Agent!]! }\ntype Agent { id: ID! name: String }\n");
        write("supergraph.graphql", SUPERGRAPH);
        std::fs::create_dir(folder.path().join("documents")).expect("a folder");
        write("documents/orders.graphql", "{ listOrders(limit: 2) { id } }\n");
        let checked = Command::new(orfa_binary()).arg("check").current_dir(folder.path()).output().await;
        let checked = checked.expect("orfa runs");
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{config}\n{told}");
    }
}

/// A supergraph of two subgraphs, as written by a composer.
const SUPERGRAPH: &str = r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0") @link(url: "https://specs.apollo.dev/join/v0.3", for: EXECUTION) { query: Query }
directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA
directive @join__graph(name: String!, url: String!) on ENUM_VALUE
directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR
directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION
scalar join__FieldSet
scalar link__Import
enum link__Purpose { SECURITY EXECUTION }
enum join__Graph { PRODUCTS @join__graph(name: "products", url: "http://products") REVIEWS @join__graph(name: "reviews", url: "http://reviews") }
type Query @join__type(graph: PRODUCTS) @join__type(graph: REVIEWS) { products: [Product!]! @join__field(graph: PRODUCTS) }
type Product @join__type(graph: PRODUCTS, key: "id") @join__type(graph: REVIEWS, key: "id") {
  id: ID!
  name: String! @join__field(graph: PRODUCTS)
  stars: Int @join__field(graph: REVIEWS)
}
"#;
