//! Protocol upgrades: forwarded offers, accepted switches, and the idle timeout of tunnels.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{RewoundStream, UpgradeOffer, parse_protocol, splice};
use http::header::{HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, Version};

const IDLE: Duration = Duration::from_secs(300);
const BELOW_IDLE: Duration = Duration::from_secs(299);

/// Returns the client's end, the service's end, and the task that connects them.
fn spawn_tunnel() -> (DuplexStream, DuplexStream, JoinHandle<()>) {
    let ((client, near), (far, service)) = (duplex(8), duplex(8));
    (client, service, tokio::spawn(splice(near, far, IDLE)))
}

#[tokio::test(start_paused = true)]
async fn traffic_of_either_side_keeps_the_tunnel_open() {
    let (mut client, mut service, joining) = spawn_tunnel();
    let mut heard = [0; 4];
    for _ in 0..3 {
        sleep(BELOW_IDLE).await;
        client.write_all(b"ping").await.unwrap();
        service.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ping");
        sleep(BELOW_IDLE).await;
        service.write_all(b"news").await.unwrap();
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"news");
    }
    let silent = Instant::now();
    // Both sides see the end.
    assert_eq!((client.read(&mut heard).await.unwrap(), service.read(&mut heard).await.unwrap()), (0, 0));
    assert_eq!(silent.elapsed(), IDLE);
    joining.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_side_that_stops_reading_counts_as_idle() {
    let (mut client, service, joining) = spawn_tunnel();
    let begun = Instant::now();
    let sending = tokio::spawn(async move { client.write_all(&[0; 100_000]).await });
    joining.await.unwrap();
    assert_eq!(begun.elapsed(), IDLE);
    assert!(sending.await.unwrap().is_err());
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn a_side_can_finish_after_the_other_has_ended() {
    let (mut client, mut service, joining) = spawn_tunnel();
    let begun = Instant::now();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    service.read_to_end(&mut all).await.unwrap();
    sleep(BELOW_IDLE).await;
    service.write_all(b"bye").await.unwrap();
    drop(service);
    client.read_to_end(&mut all).await.unwrap();
    joining.await.unwrap();
    assert_eq!((all.as_slice(), begun.elapsed()), (&b"bye"[..], BELOW_IDLE));
}

#[tokio::test]
async fn frees_the_bytes_that_were_read_ahead_once_they_are_read() {
    let (near, mut far) = duplex(8);
    let begun = bytes::Bytes::from(b"begun ".to_vec());
    let mut stream = RewoundStream::new(near, begun.clone());
    let mut heard = [0; 3];
    stream.read_exact(&mut heard).await.unwrap();
    assert!(!begun.is_unique());
    stream.read_exact(&mut heard).await.unwrap();
    assert!(begun.is_unique());
    far.write_all(b"end").await.unwrap();
    assert_eq!(heard, *b"un ");
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, *b"end");
    stream.write_all(b"bye").await.unwrap();
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, *b"bye");
}

/// Returns the part of an `Upgrade` field that is forwarded with these listed protocols.
fn forwarded_offer(
    listed: &[&str],
    version: Version,
    connection: &str,
    upgrade: &str,
    has_body: bool,
) -> Vec<String> {
    let listed: Vec<HeaderValue> = listed.iter().map(|text| parse_protocol(text).unwrap()).collect();
    let request =
        Request::builder().version(version).header("connection", connection).header("upgrade", upgrade);
    let (head, ()) = request.body(()).unwrap().into_parts();
    let mut sent = HeaderMap::new();
    UpgradeOffer::from_request(&head, has_body, &listed)
        .iter()
        .for_each(|offer| offer.add_headers(&mut sent));
    sent.get_all(UPGRADE).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn offers_only_listed_protocols_to_the_service() {
    let usual = |upgrade| forwarded_offer(&["websocket"], Version::HTTP_11, "Upgrade", upgrade, false);
    for upgrade in ["websocket", "WebSocket", "h2c, websocket", "TLS/1.3 ,websocket,"] {
        assert_eq!(usual(upgrade), ["websocket"], "{upgrade}");
    }
    for upgrade in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0", "websocket/13", "web socket", "xwebsocket", "", ","]
    {
        assert!(usual(upgrade).is_empty(), "{upgrade}");
    }
    let tcp = |upgrade| forwarded_offer(&["tcp", "SPDY/3.1"], Version::HTTP_11, "x, upgrade", upgrade, false);
    assert_eq!(tcp("spdy/3.1, websocket, tcp"), ["tcp", "SPDY/3.1"]);
    assert!(forwarded_offer(&[], Version::HTTP_11, "upgrade", "websocket", false).is_empty());
}

#[test]
fn ignores_invalid_offers() {
    let websocket = |version, connection, has_body| {
        forwarded_offer(&["websocket"], version, connection, "websocket", has_body)
    };
    assert_eq!(websocket(Version::HTTP_11, "upgrade", false), ["websocket"]);
    assert!(websocket(Version::HTTP_11, "keep-alive", false).is_empty());
    assert!(websocket(Version::HTTP_11, "upgraded", false).is_empty());
    assert!(websocket(Version::HTTP_10, "upgrade", false).is_empty());
    assert!(websocket(Version::HTTP_2, "upgrade", false).is_empty());
    assert!(websocket(Version::HTTP_11, "upgrade", true).is_empty(), "it could split the body");
}

#[test]
fn accepts_a_switch_to_exactly_one_offered_protocol() {
    let listed = ["websocket", "tcp"].map(|text| parse_protocol(text).unwrap());
    let request = Request::builder().header("connection", "upgrade").header("upgrade", "websocket");
    let (head, ()) = request.body(()).unwrap().into_parts();
    let offer = UpgradeOffer::from_request(&head, false, &listed).unwrap();
    let accepts = |upgrades: &[&'static str]| {
        let mut response = Response::new(crate::body::empty());
        upgrades
            .iter()
            .for_each(|value| _ = response.headers_mut().append(UPGRADE, HeaderValue::from_static(value)));
        offer.is_accepted(&response)
    };
    assert!(accepts(&["WebSocket"]));
    for refused in [&[][..], &["h2c"], &["tcp"], &["websocket, h2c"], &["websocket", "h2c"], &[""]] {
        assert!(!accepts(refused), "{refused:?}");
    }
}

#[test]
fn configs_cannot_permit_tunnels_for_requests() {
    for text in
        ["h2c", "H2C", "h2", "h3", "HTTP/2.0", "http", "TLS/1.2", "tls", "", "a b", "a/b/c", "websocket/"]
    {
        assert!(parse_protocol(text).is_err(), "{text:?}");
    }
}
