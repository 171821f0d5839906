//! TLS handshakes that stall, break off, or are not TLS.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use tokio::io::AsyncWriteExt;

use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;
use crate::wire;

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "tls/plain HTTP",
        |it| send_bytes(&it, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        [AttackEnding::problem(400, "tls-required")]
    ),
    case!(
        "tls/handshake of garbage",
        |it| send_bytes(&it, b"\x16\x03\x01\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff"),
        [AttackEnding::Closed]
    ),
    case!(
        "tls/handshake of an older version",
        |it| send_bytes(&it, b"\x16\x03\x00\x00\x05\x01\x00\x00\x01\x03"),
        [AttackEnding::Closed]
    ),
    case!(
        "tls/record that is too long",
        |it| send_bytes(&it, b"\x16\x03\x01\xff\xff\x01"),
        [AttackEnding::Closed]
    ),
    case!(
        "tls/fifty handshakes that are never finished",
        |it| stall_handshakes(&it),
        [AttackEnding::Answer(200)],
        &[("TLS handshakes of an address", 1)]
    ),
    case!("tls/protocol that is not spoken", |it| offer_unknown_protocol(&it), [AttackEnding::Closed]),
];

/// Sends bytes to the TLS port, closes the connection and returns how it ends.
async fn send_bytes(target: &AttackTarget, bytes: &[u8]) -> Result<AttackEnding> {
    let mut stream = target.connect_tls_port().await?;
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    Ok(wire::response_ending(&wire::read_all(&mut stream).await))
}

/// Opens handshakes that stall, and checks that the next client is still served.
async fn stall_handshakes(target: &AttackTarget) -> Result<AttackEnding> {
    let open = try_join_all((0..50).map(|_| async {
        let mut stream = target.connect_tls_port().await?;
        stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await?;
        anyhow::Ok(stream)
    }))
    .await?;
    let mut stream = target.connect_tls(&[b"http/1.1"]).await?;
    stream.write_all(b"GET /up/json?n=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let ending = wire::response_ending(&wire::read_all(&mut stream).await);
    drop(open);
    Ok(ending)
}

/// A handshake without a common protocol must fail (RFC 7301, section 3.2).
async fn offer_unknown_protocol(target: &AttackTarget) -> Result<AttackEnding> {
    let connected = target.connect_tls(&[b"spdy/3"]).await;
    ensure!(connected.is_err(), "the handshake succeeded");
    Ok(AttackEnding::Closed)
}
