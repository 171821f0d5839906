//! Properties of pooled connections: every response belongs to its own request, and no request arrives twice,
//! whatever targets and readers did to their connections before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::net::TcpStream;

use super::target::{TargetServer, read_head, write_text};
use super::*;

/// The behaviour of a target and a reader for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExchangeBehaviour {
    /// A complete response; the connection may be reused.
    Length,
    Chunked,
    Hints,
    /// A complete response, followed by an unannounced close of the connection.
    Close,
    /// A complete response, followed by an unrequested one.
    Forge,
    /// Half a response, followed by a close of the connection.
    Half,
    /// No response.
    Nothing,
    /// A complete response; only its head is read.
    Unread,
}

const BEHAVIOURS: [ExchangeBehaviour; 8] = {
    use ExchangeBehaviour::{Chunked, Close, Forge, Half, Hints, Length, Nothing, Unread};
    [Length, Chunked, Hints, Close, Forge, Half, Nothing, Unread]
};

impl ExchangeBehaviour {
    /// Sends the response; returns whether the connection stays open.
    async fn run(self, socket: &mut TcpStream, number: &str) -> bool {
        let length = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{number}", number.len());
        let text = match self {
            Self::Length | Self::Close | Self::Unread => length,
            Self::Chunked => format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{number}\r\n0\r\n\r\n",
                number.len()
            ),
            Self::Hints => format!("HTTP/1.1 103 Early Hints\r\n\r\n{length}"),
            Self::Forge => format!("{length}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"),
            Self::Half => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_owned(),
            Self::Nothing => String::new(),
        };
        write_text(socket, text).await;
        !matches!(self, Self::Close | Self::Half | Self::Nothing)
    }

    /// Whether the response must be complete.
    fn is_complete(self) -> bool {
        !matches!(self, Self::Half | Self::Nothing | Self::Unread)
    }
}

/// Starts a target that behaves according to the path of each request, such as `/Length/7`, and counts the
/// requests of each number.
async fn start_target(seen: Arc<Mutex<BTreeMap<String, usize>>>) -> TargetServer {
    TargetServer::start_acceptor(move |mut socket| {
        let seen = Arc::clone(&seen);
        async move {
            while let Some(head) = read_head(&mut socket).await {
                let mut path = head.split(' ').nth(1).unwrap_or_default().split('/').skip(1);
                let (deed, number) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
                *seen.lock().unwrap().entry(number.to_owned()).or_default() += 1;
                let deed = BEHAVIOURS.into_iter().find(|behaviour| format!("{behaviour:?}") == deed).unwrap();
                if !deed.run(&mut socket, number).await {
                    return;
                }
            }
        }
    })
    .await
}

async fn check_exchange(shop: &ShopClient, deed: ExchangeBehaviour, number: String) {
    let response = shop.start_get(&format!("/{deed:?}/{number}")).await;
    if deed == ExchangeBehaviour::Unread {
        return;
    }
    let body = match response {
        Ok(response) => response.into_body().collect().await.ok().map(|body| body.to_bytes()),
        Err(_) => None,
    };
    let expected = deed.is_complete().then(|| Bytes::from(number));
    assert_eq!(body, expected, "the answer of {deed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_response_belongs_to_its_request(
        rounds in proptest::collection::vec(
            proptest::collection::vec(proptest::sample::select(&BEHAVIOURS[..]), 1..4), 1..8,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let seen: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
            let target = start_target(Arc::clone(&seen)).await;
            let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
            for (round, deeds) in rounds.iter().enumerate() {
                let asked = deeds.iter().enumerate().map(|(index, deed)| {
                    check_exchange(&shop, *deed, format!("{round}-{index}"))
                });
                join_all(asked).await;
            }
            let seen = seen.lock().unwrap();
            assert!(seen.values().all(|times| *times == 1), "{seen:?}");
        });
    }
}
