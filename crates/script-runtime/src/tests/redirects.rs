//! The allowed targets of redirects, and the credentials that are sent there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use offload::OffloadPool;
use script::HandlerMethod;
use serde_json::Value;
use services::{PermittedHosts, RequestCall, ServiceConfig, ServiceSet};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::fixture::offload_pool;
use crate::frame::{CallReply, FramePayload};
use crate::run::outbound_call::{ExternalCalls, OutboundCall, REDIRECTS};

const SECRET: &str = "the-operators-secret";
const TOKEN: &str = "Bearer the-clients-token";

/// Starts a server that redirects every request to the query of its path.
async fn start_redirecting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).await.is_err() {
                        return;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let to =
                    head.split_once('?').and_then(|(_, rest)| rest.split_once(' ')).map_or("", |(to, _)| to);
                let answer = format!(
                    "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

struct RedirectService {
    outside: ExternalCalls,
    pool: OffloadPool,
    upstream: MisbehavingUpstream,
    foreign_host: SocketAddr,
}

impl RedirectService {
    /// Sets up a service with credentials, which also redirects; a foreign host, which does too; and the
    /// hosts that `opened` allows in addition.
    async fn new(opened: impl Fn(&MisbehavingUpstream) -> Vec<String>) -> Self {
        let (upstream, elsewhere) = (misbehaving_upstream::start().await, start_redirecting().await);
        let with_credentials = |url: String| ServiceConfig {
            headers: BTreeMap::from([("x-api-key".to_owned(), SECRET.to_owned())]),
            forward: vec!["authorization".to_owned()],
            ..ServiceConfig::with_url(url)
        };
        let services = BTreeMap::from([
            ("catalog".to_owned(), with_credentials(upstream.url())),
            ("moved".to_owned(), with_credentials(format!("http://{elsewhere}"))),
        ]);
        let mut hosts = opened(&upstream);
        hosts.push(elsewhere.to_string());
        let calls = ExternalCalls {
            services: ServiceSet::new(&services).unwrap(),
            hosts: PermittedHosts::new(&hosts).unwrap(),
        };
        Self { outside: calls, pool: offload_pool(), upstream, foreign_host: elsewhere }
    }

    async fn fetch(&self, url: &str) -> (CallReply, Value) {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static(TOKEN));
        let call = RequestCall { headers: Some(Arc::new(headers)), ..RequestCall::unlimited() };
        let errand =
            OutboundCall { method: HandlerMethod::Get, url: url.to_owned(), body: FramePayload::default() };
        let (outcome, payload) = self.outside.send(&self.pool, &call, errand).await;
        (outcome, serde_json::from_slice(&payload.bytes).unwrap_or_default())
    }

    /// Returns a host that is not a service: `localhost` instead of its address, which belongs to `moved`.
    fn foreign_authority(&self) -> String {
        format!("http://localhost:{}", self.foreign_host.port())
    }
}

#[tokio::test]
async fn a_redirect_from_a_host_to_a_service_is_refused_under_any_name() {
    let service = RedirectService::new(|_| Vec::new()).await;
    // The patterns cover the address of the service, too.
    let hosts = [format!("localhost:{}", service.foreign_host.port()), "127.0.0.0/8".to_owned()];
    let redirect_service = RedirectService {
        outside: ExternalCalls { hosts: PermittedHosts::new(&hosts).unwrap(), ..service.outside },
        ..service
    };
    let address = redirect_service.upstream.address();
    let names = [
        "http://catalog/echo".to_owned(),
        "HTTP://Catalog/echo".to_owned(),
        "//catalog/echo".to_owned(),
        "http://catalog:80/echo".to_owned(),
        format!("http://{address}/echo"),
        format!("//{address}/echo"),
        format!("http://[::ffff:127.0.0.1]:{}/echo", address.port()),
        format!("http://127.0.0.1:0{}/echo", address.port()),
        "http://x@catalog/echo".to_owned(),
    ];
    for location in names {
        let (outcome, _) =
            redirect_service.fetch(&format!("{}/x?{location}", redirect_service.foreign_authority())).await;
        assert!(matches!(&outcome, CallReply::Refused(403, _)), "{location}: {outcome:?}");
    }
    assert_eq!(redirect_service.upstream.connections(), 0);
}

#[tokio::test]
async fn a_host_gets_no_credentials_after_a_redirect() {
    // A host under a name that is not the service's.
    let host = |upstream: &MisbehavingUpstream| format!("localhost:{}", upstream.address().port());
    let service = RedirectService::new(|upstream| vec![host(upstream)]).await;
    let echo = format!("http://{}/echo", host(&service.upstream));
    for first in [format!("http://{}", service.foreign_host), "http://moved".to_owned()] {
        let (outcome, answer) = service.fetch(&format!("{first}/x?{echo}")).await;
        assert_eq!(answer["path"], "/echo", "{first}: {outcome:?}");
        let seen = answer["headers"].to_string();
        assert!(!seen.contains(SECRET) && !seen.contains(TOKEN), "{first}: {seen}");
    }
}

#[tokio::test]
async fn a_service_may_redirect_to_itself_but_not_to_another_service() {
    let service = RedirectService::new(|_| Vec::new()).await;
    let (_, answer) = service.fetch("http://catalog/redirect").await;
    assert_eq!(answer["headers"]["x-api-key"], SECRET, "a path: {answer}");
    let own = ["http://moved/y?http://catalog/echo", "/y?http://catalog/echo"].map(str::to_owned);
    let own = own.into_iter().chain([format!("http://{}/y?http://catalog/echo", service.foreign_host)]);
    for location in own {
        let (outcome, _) = service.fetch(&format!("http://moved/x?{location}")).await;
        let CallReply::Refused(403, text) = &outcome else { panic!("{location}: {outcome:?}") };
        assert!(text.contains("/y?"), "the second redirect is refused, not the first: {text}");
    }
    assert_eq!(service.upstream.hits("/echo"), 1);
}

#[tokio::test]
async fn a_service_redirects_to_paths_below_the_base_path_of_its_url() {
    let (elsewhere, pool) = (start_redirecting().await, offload_pool());
    let based = ServiceConfig::with_url(format!("http://{elsewhere}/base"));
    let services = ServiceSet::new(&BTreeMap::from([("based".to_owned(), based)])).unwrap();
    let calls = ExternalCalls { services, hosts: PermittedHosts::new(&[]).unwrap() };
    let absolute = format!("http://{elsewhere}/base/y");
    for (location, refused) in [
        ("/base/y", "http://based/y?http://other/ redirects on"),
        (absolute.as_str(), "http://based/y?http://other/ redirects on"),
        ("y", "http://based/a/y?http://other/ redirects on"),
        ("../y", "http://based/y?http://other/ redirects on"),
        ("/base", "http://based/?http://other/ redirects on"),
        ("/y", "http://based/a/x?/y?http://other/ redirects to /y?http://other/, which is not below"),
        ("../../y", "http://based/a/x?../../y?http://other/ redirects to /y?"),
        ("/based", "http://based/a/x?/based?http://other/ redirects to /based?"),
    ] {
        let url = format!("http://based/a/x?{location}?http://other/");
        let errand = OutboundCall { method: HandlerMethod::Get, url, body: FramePayload::default() };
        let (outcome, _) = calls.send(&pool, &RequestCall::unlimited(), errand).await;
        let CallReply::Refused(403, text) = &outcome else { panic!("{location}: {outcome:?}") };
        assert!(text.starts_with(refused), "{location}: {text}");
    }
}

#[tokio::test]
async fn the_number_of_redirects_is_limited() {
    let service = RedirectService::new(|_| Vec::new()).await;
    let location = "/x?".repeat(REDIRECTS + 3);
    let (outcome, _) = service.fetch(&format!("http://moved{location}")).await;
    assert!(matches!(outcome, CallReply::Failed(502, _)), "{outcome:?}");
}
