//! Calls to external hosts: the resolved address is checked on connect.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::{NameResolver, PermittedHosts};

/// A resolver that returns these addresses for every name.
struct FixedResolver(Mutex<Vec<SocketAddr>>);

impl NameResolver for FixedResolver {
    fn resolve(&self, _: &str, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        std::future::ready(Ok(self.0.lock().unwrap().clone())).boxed()
    }
}

async fn call_host(bench: &MisbehavingShop, hosts: &[&str], authority: &str) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let host = PermittedHosts::new(&hosts).unwrap().find_service(authority, false).unwrap();
    let leads = FixedResolver(Mutex::new(vec![bench.upstream.address()]));
    let services = bench.services.clone().with_resolver(Arc::new(leads));
    match services.send(&RequestCall::unlimited(), &host, request("GET", "/echo")).await {
        Ok(answer) => json(&answer)["headers"]["host"].as_str().unwrap_or_default().to_owned(),
        Err(error) => {
            let told = format!("{error} {}", error.hint());
            let is_said = authority.contains("127.0.0.1");
            assert!(is_said || !told.contains("127.0.0.1"), "the error reveals an address: {told}");
            format!("{} {} {:?}", error.code(), error.status().as_u16(), error.kind())
        }
    }
}

#[tokio::test]
async fn calls_a_permitted_host_as_a_service() {
    let bench = start_shop().await;
    let port = bench.upstream.address().port();
    assert_eq!(call_host(&bench, &["auth.internal"], "auth.internal:8080").await, "auth.internal:8080");
    assert_eq!(call_host(&bench, &["*.internal", "127.0.0.0/8"], "auth.internal").await, "auth.internal");
    let literal = format!("127.0.0.1:{port}");
    assert_eq!(call_host(&bench, &["127.0.0.1"], &literal).await, literal);
}

#[tokio::test]
async fn a_wildcard_does_not_permit_private_addresses() {
    let bench = start_shop().await;
    let refused = "host-address-private 502 Forbidden";
    assert_eq!(call_host(&bench, &["*"], "rebound.example.org").await, refused);
    assert_eq!(call_host(&bench, &["*.example.org", "10.0.0.0/8"], "rebound.example.org").await, refused);
    assert_eq!(call_host(&bench, &["*"], &bench.upstream.address().to_string()).await, refused);
    assert_eq!(bench.upstream.connections(), 0);
}

#[tokio::test]
async fn uses_only_the_permitted_addresses_of_a_name() {
    let bench = start_shop().await;
    let hosts =
        PermittedHosts::new(&["*.example.org".to_owned(), bench.upstream.address().to_string()]).unwrap();
    let host = hosts.find_service("a.example.org", false).unwrap();
    // The second address leads to the same server, but no pattern lists it.
    let elsewhere = SocketAddr::new("127.0.0.2".parse().unwrap(), bench.upstream.address().port());
    let leads = FixedResolver(Mutex::new(vec![elsewhere, bench.upstream.address()]));
    let services = bench.services.clone().with_resolver(Arc::new(leads));
    for _ in 0..4 {
        let answer = services.send(&RequestCall::unlimited(), &host, request("GET", "/echo")).await.unwrap();
        assert_eq!(answer.status, 200);
    }
}
