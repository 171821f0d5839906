//! S services behind a gateway: the paper's listings over HTTP (`listings.rs`), gateway features on script
//! routes (`route.rs`), reloads (`reload.rs`), misbehaving handlers (`isolation.rs`), other engines
//! (`engines.rs`), durability (`durability.rs`), the commands (`commands.rs`) and the examples
//! (`examples.rs`). `ledger.rs` checks that no acknowledged write is lost.

mod commands;
mod durability;
mod engines;
mod examples;
mod isolation;
mod ledger;
mod listings;
mod pages;
mod reload;
mod route;

use bytes::Bytes;
use testkit::http::{self, TestResponse};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use testkit::{GatewayProcess, with_timeout};

use crate::support::orfa_binary;

/// A gateway with a script at `/s/*` and the misbehaving service `up`.
struct ScriptTestGateway {
    gateway: GatewayProcess,
    upstream: MisbehavingUpstream,
}

impl ScriptTestGateway {
    /// Starts a gateway with this script and default settings.
    async fn start(script: &str) -> Self {
        Self::start_with_options(script, "", "").await
    }

    /// Like `by`, with further options of the script and further lines of the config.
    async fn start_with_options(script: &str, options: &str, more: &str) -> Self {
        let route = format!("  - {{ path: '/s/*', script: {{ file: shop.sjs, {options} }} }}\n");
        Self::start_with_routes(script, &route, more).await
    }

    /// Like `by`, with these routes.
    async fn start_with_routes(script: &str, routes: &str, more: &str) -> Self {
        let upstream = misbehaving_upstream::start().await;
        let config = config(&upstream.url(), routes, more);
        let gateway = GatewayProcess::start_with(orfa_binary(), &config, &[("shop.sjs", script)]).await;
        Self { gateway, upstream }
    }

    /// Sends a request without a body to a path below the script's mount path.
    async fn request(&self, method: &str, path: &str) -> TestResponse {
        self.send(method, path, &[], "").await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestResponse {
        let url = format!("{}/s{path}", self.gateway.url);
        http::request(method, &url, headers, body).await.expect("an answer")
    }

    /// Returns the text of an answer, which must have status 200.
    async fn get(&self, path: &str) -> String {
        let answer = self.request("GET", path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// Returns the status and the code of a problem.
    async fn problem_code(&self, method: &str, path: &str) -> (u16, String) {
        let answer = self.request(method, path).await;
        (answer.status.as_u16(), answer.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// Repeats the request until the answer is this text.
    async fn wait_for_text(&self, path: &str, wanted: &str) {
        let asked = async { while self.request("GET", path).await.text() != wanted {} };
        with_timeout(format_args!("{path} answers {wanted}"), asked).await;
    }
}

fn config(service: &str, routes: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain: {{ delay: 0s, timeout: 5m }}\nshed: {{ automatic: false }}\n{more}\n\
         services: {{ up: {{ url: '{service}' }} }}\nroutes:\n{routes}"
    )
}
