//! Services in S behind a gateway: the language on the way from HTTP to HTTP (`listings.rs`), what of the gateway holds
//! for a script's route (`route.rs`), a script that changes (`reload.rs`), handlers that misbehave (`contained.rs`),
//! other engines (`engines.rs`), what is kept when processes end (`kept.rs`), the verbs (`verbs.rs`), the examples
//! (`examples.rs`). `ledger.rs` says whether anything was lost.

mod contained;
mod engines;
mod examples;
mod kept;
mod ledger;
mod listings;
mod pages;
mod reload;
mod route;
mod verbs;

use bytes::Bytes;
use testkit::http::{self, Response};
use testkit::misbehave::{self, Upstream};
use testkit::{Gateway, patiently};

use crate::orfa;

/// A gateway with a script at `/s/*`, before a service that misbehaves: `up`.
struct Served {
    gateway: Gateway,
    upstream: Upstream,
}

impl Served {
    /// The script with all that is not said as it is by default.
    async fn by(script: &str) -> Self {
        Self::with(script, "", "").await
    }

    /// With further options of the script, and further lines of the config.
    async fn with(script: &str, options: &str, more: &str) -> Self {
        let route = format!("  - {{ path: '/s/*', script: {{ file: shop.sjs, {options} }} }}\n");
        Self::at(script, &route, more).await
    }

    /// With routes of one's own.
    async fn at(script: &str, routes: &str, more: &str) -> Self {
        let upstream = misbehave::start().await;
        let config = config(&upstream.url(), routes, more);
        let gateway = Gateway::start_with(orfa(), &config, &[("shop.sjs", script)]).await;
        Self { gateway, upstream }
    }

    /// What is asked below the script's mount path.
    async fn ask(&self, method: &str, path: &str) -> Response {
        self.send(method, path, &[], "").await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response {
        let url = format!("{}/s{path}", self.gateway.url);
        http::request(method, &url, headers, body).await.expect("an answer")
    }

    /// The text of an answer that has to be one.
    async fn get(&self, path: &str) -> String {
        let answer = self.ask("GET", path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// The status and code of an answer that has to be a problem.
    async fn refused(&self, method: &str, path: &str) -> (u16, String) {
        let answer = self.ask(method, path).await;
        (answer.status.as_u16(), answer.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// Asks until the answer is this text.
    async fn comes_to(&self, path: &str, wanted: &str) {
        let asked = async { while self.ask("GET", path).await.text() != wanted {} };
        patiently(format_args!("{path} answers {wanted}"), asked).await;
    }
}

fn config(service: &str, routes: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain: {{ delay: 0s, timeout: 5m }}\nshed: {{ automatic: false }}\n{more}\n\
         services: {{ up: {{ url: '{service}' }} }}\nroutes:\n{routes}"
    )
}
