//! Helpers for gateways whose config has an admin listener on `127.0.0.1:0`.

use serde_json::Value;
use testkit::{GatewayProcess, http};

/// Returns the base URL of the admin listener.
pub(crate) async fn admin_url(gateway: &GatewayProcess) -> String {
    let line =
        gateway.wait_for_log(|line| line.contains("admin listening")).await.expect("an admin listener");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    format!("http://{}", line["address"].as_str().expect("an address"))
}

/// Fetches `/metrics`.
pub(crate) async fn fetch_metrics(gateway: &GatewayProcess) -> String {
    let url = format!("{}/metrics", admin_url(gateway).await);
    let answer = http::request("GET", &url, &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200);
    answer.text()
}

/// Returns the value of a metric in the text of `/metrics`.
pub(crate) fn metric_value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().expect("a whole number")
}
