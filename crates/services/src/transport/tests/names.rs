//! Names with more addresses than the service listens on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http::Response;

use super::target::TargetServer;
use super::*;
use crate::NameResolver;
use crate::body::full;

/// A resolver that returns the addresses of `localhost` on most systems.
struct LocalhostResolver;

impl NameResolver for LocalhostResolver {
    fn resolve(&self, _: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let addresses = [IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST)];
        async move { Ok(addresses.map(|address| SocketAddr::new(address, port)).to_vec()) }.boxed()
    }
}

#[tokio::test]
async fn loses_no_request_if_only_one_address_of_a_name_listens() {
    for protocol in [ServiceProtocol::Http1, ServiceProtocol::Http2] {
        let arrived: Arc<AtomicUsize> = Arc::default();
        let counting = Arc::clone(&arrived);
        let target = TargetServer::start_server(None, move |_| {
            counting.fetch_add(1, SeqCst);
            async { Response::new(full("ok")) }
        })
        .await;
        let shop = ShopClient::new(config_with_protocol(
            format!("http://localhost:{}", target.address.port()),
            protocol,
        ));
        let shop = ShopClient(shop.0.with_resolver(Arc::new(LocalhostResolver)));
        let post = || shop.send(http::Request::post("/").body(full("order")).unwrap());
        // All at once, before the state of either address is known, and far beyond the retry budget.
        let answers = join_all((0..300).map(|_| post())).await;
        assert!(answers.iter().all(Result::is_ok), "{protocol:?}: {:?}", answers.iter().find(|a| a.is_err()));
        assert_eq!(arrived.load(SeqCst), 300);
        // Afterwards, the address without a listener gets an occasional probe only.
        let tried = || shop.0.stats()[0].endpoints.iter().map(|endpoint| endpoint.failures).sum::<u64>();
        let before = tried();
        for _ in 0..50 {
            post().await.unwrap();
        }
        assert!(tried() - before < 5, "{protocol:?}: {before} and {}", tried());
    }
}

#[tokio::test]
async fn finds_a_service_by_its_name_and_by_any_spelling_of_its_addresses() {
    let target = TargetServer::start_server(None, |_| async { Response::new(full("ok")) }).await;
    let port = target.address.port();
    let shop =
        ShopClient::new(config_with_protocol(format!("http://localhost:{port}"), ServiceProtocol::Http1));
    let shop = ShopClient(shop.0.with_resolver(Arc::new(LocalhostResolver)));
    // The name is resolved by the first request.
    shop.get("/").await.unwrap();
    let host = ["localhost", "LocalHost", "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "[0:0::1]"];
    for authority in host.map(|host| format!("{host}:{port}")) {
        assert!(shop.0.find_by_authority(&authority).is_some(), "{authority}");
    }
    for authority in
        [format!("127.0.0.2:{port}"), format!("local:{port}"), "localhost".into(), "[::1]".into()]
    {
        assert!(shop.0.find_by_authority(&authority).is_none(), "{authority}");
    }
}
