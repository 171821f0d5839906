//! How long joined connections may be silent.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::splice;

const IDLE: Duration = Duration::from_secs(300);
const LESS: Duration = Duration::from_secs(299);

/// What the client and the service hold, and what joins them.
fn joined() -> (DuplexStream, DuplexStream, JoinHandle<()>) {
    let ((client, near), (far, service)) = (duplex(8), duplex(8));
    (client, service, tokio::spawn(splice(near, far, IDLE)))
}

#[tokio::test(start_paused = true)]
async fn either_side_keeps_the_connection_alive_and_silence_ends_it() {
    let (mut client, mut service, joining) = joined();
    let mut heard = [0; 4];
    for _ in 0..3 {
        sleep(LESS).await;
        client.write_all(b"ping").await.unwrap();
        service.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ping");
        sleep(LESS).await;
        service.write_all(b"news").await.unwrap();
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"news");
    }
    let silent = Instant::now();
    // Both sides are told.
    assert_eq!((client.read(&mut heard).await.unwrap(), service.read(&mut heard).await.unwrap()), (0, 0));
    assert_eq!(silent.elapsed(), IDLE);
    joining.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_side_that_takes_nothing_more_is_silent() {
    let (mut client, service, joining) = joined();
    let begun = Instant::now();
    let sending = tokio::spawn(async move { client.write_all(&[0; 100_000]).await });
    joining.await.unwrap();
    assert_eq!(begun.elapsed(), IDLE);
    assert!(sending.await.unwrap().is_err());
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn a_side_that_ends_lets_the_other_finish() {
    let (mut client, mut service, joining) = joined();
    let begun = Instant::now();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    service.read_to_end(&mut all).await.unwrap();
    sleep(LESS).await;
    service.write_all(b"bye").await.unwrap();
    drop(service);
    client.read_to_end(&mut all).await.unwrap();
    joining.await.unwrap();
    assert_eq!((all.as_slice(), begun.elapsed()), (&b"bye"[..], LESS));
}
