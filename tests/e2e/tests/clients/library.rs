//! The client library's own tests and type checks, equal to `npm test` without npm. Its tests in a browser
//! are in `cross_origin.rs`.

use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::{GatewayProcess, with_timeout};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::support::orfa_binary;

const SETUP: &str = "run `scripts/setup test` for instructions";

fn library_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/javascript")
}

/// Runs Node in the library's folder until it exits.
async fn run_node(arguments: &[&str]) {
    let mut node = Command::new("node");
    let output = node.args(arguments).current_dir(library_folder()).kill_on_drop(true).output();
    let ended = with_timeout("Node's end", output).await;
    let ended = ended.unwrap_or_else(|error| panic!("node is required: {error}; {SETUP}"));
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "node {arguments:?}:\n{out}{err}");
}

#[tokio::test]
async fn the_client_library_passes_its_own_tests() {
    let files = std::fs::read_dir(library_folder().join("test")).expect("the folder of the tests");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name in ASCII"));
    let tests: Vec<String> =
        names.filter(|name| name.ends_with(".test.js")).map(|name| format!("test/{name}")).collect();
    assert!(!tests.is_empty(), "there are no tests");
    let arguments: Vec<&str> = std::iter::once("--test").chain(tests.iter().map(String::as_str)).collect();
    run_node(&arguments).await;
}

#[tokio::test]
async fn the_types_of_the_client_library_match_its_code() {
    let compiler = library_folder().join("node_modules/typescript/lib/tsc.js");
    assert!(compiler.is_file(), "TypeScript is missing: {SETUP}");
    let compiler = compiler.to_str().expect("a path in UTF-8");
    run_node(&[compiler]).await;
    run_node(&[compiler, "--project", "tsconfig.apollo.json"]).await;
}

/// Answers a GraphQL request with thirty posts by one author.
async fn serve_posts(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await? > 2 {
        let said = line.to_ascii_lowercase();
        length =
            said.strip_prefix("content-length:").map_or(Ok(length), |said| said.trim().parse()).unwrap_or(0);
        line.clear();
    }
    stream.read_exact(&mut vec![0; length]).await?;
    let by = json!({ "__typename": "User", "id": "1", "name": "Ada Lovelace, Countess of" });
    let post = |id: u32| json!({ "__typename": "Post", "id": id.to_string(), "by": by });
    let body = json!({ "data": { "posts": (0..30).map(post).collect::<Vec<_>>() } }).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/graphql-response+json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

#[tokio::test]
async fn apollo_client_reads_deduplicated_responses_of_a_graphql_service() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let service = format!("http://{}", listener.local_addr().expect("an address"));
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_posts(stream));
        }
    });
    let config = format!(
        "listen: 127.0.0.1:0\ndrain: {{ delay: 0s }}\nshed: {{ automatic: false }}\n\
         services: {{ posts: {{ url: '{service}' }} }}\nroutes: [{{ path: '/graphql/*', proxy: posts }}]\n"
    );
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    run_node(&["test/through.js", &format!("{}/graphql/", gateway.url)]).await;
    serving.abort();
}
