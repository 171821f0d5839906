//! Several gateways behind one address that share only a secret: the additional requests of a client.

use std::path::Path;

use testkit::{GatewayProcess, misbehaving_upstream, with_timeout};
use tokio::process::Command;

use crate::support::orfa_binary;

/// Calls a program through the client library, and sends each request to a gateway by the given balancing
/// order. Prints the number of requests, and how many of the last nine contained the whole program.
const CALLER_SCRIPT: &str = r#"
import { orfa } from "./client.js";
const [order, options, calls, ...gateways] = process.argv.slice(1);
const text = `export default ({ a, b }) => a + b; // ${order} ${options}`;
let requests = 0, seed = 7, last = [];
const random = () => (seed = (seed * 48271) % 2147483647);
const next = { turns: () => requests % gateways.length, chance: () => random() % gateways.length,
               pairs: () => Math.floor(requests / 2) % gateways.length }[order];
async function balanced(url, init) {
  const to = new URL(url);
  to.port = new URL(gateways[next()]).port;
  requests += 1;
  last = [...last, new Headers(init.headers).get("orfa-cache")].slice(-9);
  return fetch(to, init);
}
const route = orfa(gateways[0], { fetch: balanced, ...JSON.parse(options) });
const add = route.program(text);
for (let n = 0; n < calls; n++) {
  const sum = await add({ a: n, b: 1 });
  if (sum !== n + 1) throw new Error(`${n} and 1 is ${sum}`);
}
const whole = last.filter((field) => !/=:/.test(field)).length;
process.stdout.write(JSON.stringify({ requests, whole }));
"#;

/// Starts gateways that share a secret.
async fn start_replicas(count: usize) -> Vec<GatewayProcess> {
    let upstream = misbehaving_upstream::start().await;
    let config = format!(
        "listen: 127.0.0.1:0
shed: {{ automatic: false }}
runtime: {{ compile_time: 1m, secret: a-long-secret-that-all-gateways-share }}
services: {{ up: {{ url: '{}' }} }}
routes:
  - path: /query
    query: {{ services: [up], modes: [code, instance], limits: {{ timeout: 30s }} }}
",
        upstream.url()
    );
    let mut gateways = Vec::new();
    for _ in 0..count {
        gateways.push(GatewayProcess::start(orfa_binary(), &config).await);
    }
    gateways
}

/// Makes calls with a new client. Returns the number of requests, and how many of the last nine contained the
/// program.
async fn run_calls(gateways: &[GatewayProcess], order: &str, options: &str, calls: usize) -> (usize, usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/javascript");
    let (calls, mut node) = (calls.to_string(), Command::new("node"));
    node.current_dir(folder).args([
        "--input-type=module",
        "--eval",
        CALLER_SCRIPT,
        "--",
        order,
        options,
        &calls,
    ]);
    node.args(gateways.iter().map(|gateway| &gateway.url)).kill_on_drop(true);
    let output = with_timeout("Node's end", node.output()).await.expect("node is required");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{order} {options}: {out}{err}");
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let number = |name: &str| value[name].as_u64().and_then(|number| usize::try_from(number).ok());
    number("requests").zip(number("whole")).unwrap_or_else(|| panic!("{out}"))
}

#[tokio::test]
async fn a_client_needs_at_most_one_more_request_per_additional_gateway() {
    let gateways = start_replicas(3).await;
    for (order, options) in [
        ("turns", r#"{"hash":false}"#),
        ("turns", r#"{"hash":true}"#),
        ("turns", r#"{"cache":"instance"}"#),
        ("pairs", "{}"),
        ("chance", "{}"),
    ] {
        let (requests, whole) = run_calls(&gateways, order, options, 100).await;
        assert!(requests <= 102, "{order} {options}: {requests} requests");
        assert_eq!(whole, 0, "{order} {options}: in the end each gateway has the program");
    }
}
