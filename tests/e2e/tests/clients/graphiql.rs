//! GraphiQL as served by the gateway, in a real browser. Its content security policy admits no foreign
//! scripts, so the tests drive it by the Chrome DevTools Protocol.

use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{http, with_timeout};
use tokio::process::Child;
use tokio::task::spawn_blocking;
use tungstenite::{Message, WebSocket};

use super::page::start_chromium;
use crate::graphql::GraphqlGateway;

/// Helpers for scripts on the page. `until` waits for an element with a mutation observer instead of polling.
const UNTIL: &str = "
  const until = (found) => new Promise((resolve) => {
    const look = () => { const it = found(); if (it) { watch.disconnect(); resolve(it); } };
    const watch = new MutationObserver(look);
    watch.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
    look();
  });
  const $ = (selector) => document.querySelector(selector);
";

/// A page that is driven over the DevTools protocol.
struct DrivenPage {
    socket: WebSocket<TcpStream>,
    last_id: u64,
}

impl DrivenPage {
    /// Connects to the page with this DevTools URL, in the browser at this port.
    fn open(port: u16, url: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let (socket, _) = tungstenite::client(url, stream).expect("a WebSocket");
        Self { socket, last_id: 0 }
    }

    fn send_command(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let message = json!({ "id": self.last_id, "method": method, "params": params });
        self.socket.send(Message::text(message.to_string())).expect("sent");
        loop {
            let Message::Text(text) = self.socket.read().expect("an answer") else { continue };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == self.last_id {
                assert_eq!(answer.get("error"), None, "{method}");
                return answer["result"].clone();
            }
        }
    }

    /// Evaluates a script on the page and returns its result.
    fn evaluate(&mut self, script: &str) -> Value {
        let expression = format!("(async () => {{ {UNTIL} {script} }})()");
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.send_command("Runtime.evaluate", &params);
        assert_eq!(answer.get("exceptionDetails"), None, "{answer:#}");
        answer["result"]["value"].clone()
    }
}

/// Returns the DevTools port that the browser chose.
async fn devtools_port(profile: &Path, browser: &mut Child) -> u16 {
    let file = profile.join("DevToolsActivePort");
    with_timeout("Chromium's port", async {
        loop {
            let port = std::fs::read_to_string(&file).ok().and_then(|text| text.lines().next()?.parse().ok());
            if let Some(port) = port {
                return port;
            }
            assert_eq!(browser.try_wait().expect("a state"), None, "Chromium ended");
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Returns the DevTools URL of the browser's empty page.
async fn page_url(port: u16) -> String {
    let list = format!("http://127.0.0.1:{port}/json/list");
    with_timeout("Chromium's page", async {
        loop {
            let pages = http::request("GET", &list, &[], "").await.expect("a list").json();
            let page = pages.as_array().into_iter().flatten().find(|page| page["url"] == "about:blank");
            if let Some(url) = page.and_then(|page| page["webSocketDebuggerUrl"].as_str()) {
                return url.to_owned();
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn graphiql_shows_the_schema_and_runs_a_query() {
    let graphql_gateway =
        GraphqlGateway::new("  - { path: /graphql, graphql: { services: [agents] } }\n", &[]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let query = "%7B%20agent(id%3A%202)%20%7B%20name%20%7D%20%7D";
    let url = format!("{}#query={query}", graphql_gateway.url("/graphql"));
    let mut browser = start_chromium("about:blank", folder.path(), &["--remote-debugging-port=0"]);
    let port = devtools_port(&folder.path().join("profile"), &mut browser).await;
    let page = page_url(port).await;
    let seen = with_timeout("GraphiQL", async {
        spawn_blocking(move || {
            let mut page = DrivenPage::open(port, &page);
            page.send_command("Page.navigate", &json!({ "url": url }));
            // GraphiQL ignores a query that is run before it has the schema.
            let schema = page.evaluate(
                "(await until(() => $('[aria-label=\"Show Documentation Explorer\"]'))).click();
                 (await until(() => [...document.querySelectorAll('.graphiql-doc-explorer a')].find((link) => link.innerText === 'Query'))).click();
                 return (await until(() => $('.graphiql-doc-explorer')?.innerText.includes('agents') && $('.graphiql-doc-explorer'))).innerText;",
            );
            let answer = page.evaluate(
                "$('.graphiql-execute-button').click();
                 return (await until(() => $('.graphiql-response .CodeMirror-code')?.innerText.includes('Bob') && $('.graphiql-response .CodeMirror-code'))).innerText;",
            );
            let value = page.evaluate("return performance.getEntriesByType('resource').map((entry) => entry.name);");
            (answer, schema, value)
        })
        .await
        .expect("no panic")
    });
    let (answer, schema, outside) = seen.await;
    let _ = browser.kill().await;
    assert!(answer.as_str().is_some_and(|answer| answer.contains("\"name\": \"Bob\"")), "{answer}");
    assert!(
        schema.as_str().is_some_and(|schema| schema.contains("rename") || schema.contains("agent")),
        "{schema}"
    );
    let gateway = graphql_gateway.url("/");
    for name in outside.as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(name.starts_with(&gateway) || name.starts_with("data:"), "{name} is from elsewhere");
    }
}
