//! Engines other than Node.js, as fetched by `scripts/setup script`.

use super::ScriptTestGateway;
use crate::support::orfa_binary;

const LISTING_1: &str = include_str!("../../../../crates/script/tests/listings/1.sjs");
const LISTING_7: &str = include_str!("../../../../crates/script/tests/listings/7.sjs");

/// Serves a script with this engine.
async fn start_on_engine(engine: &str, script: &str) -> ScriptTestGateway {
    let tools =
        orfa_binary().parent().and_then(std::path::Path::parent).expect("a folder").join("tools/engines");
    let command = tools.join("node_modules/.bin").join(engine);
    assert!(command.exists(), "{}: `scripts/setup script` fetches it", command.display());
    let command = match engine {
        "bun" => format!("[{}, --no-install]", command.display()),
        _ => format!("[{}, run, --no-prompt, -A]", command.display()),
    };
    ScriptTestGateway::start_with_options(script, "", &format!("scripts: {{ engine: {command} }}")).await
}

#[tokio::test]
async fn listing_1_runs_on_bun_and_on_deno() {
    for engine in ["bun", "deno"] {
        let gateway = start_on_engine(engine, LISTING_1).await;
        let put = gateway.request("PUT", "/data?value=S").await;
        assert_eq!(put.status, 204, "{engine}: {} {:?}", put.text(), gateway.gateway.log_lines());
        assert_eq!(gateway.get("/data").await, "Hello S", "{engine}");
    }
}

#[tokio::test]
async fn listing_7_runs_on_bun() {
    let gateway = start_on_engine(
        "bun",
        &LISTING_7
            .replace("res url = query.url", "res url = 'http://up/json?n=@'")
            .replace("url.get()", "JSON.stringify(url.get(query.url))"),
    )
    .await;
    let body = r#"{"urls": ["1", "2", "3"], "key": "{"}"#;
    let started = gateway.send("POST", "/start", &[("content-type", "application/json")], body).await;
    assert_eq!(
        (started.status.as_u16(), started.header("location")),
        (302, "/s/red/1"),
        "{}",
        started.text()
    );
    gateway.wait_for_text("/red/1", "6").await;
}
