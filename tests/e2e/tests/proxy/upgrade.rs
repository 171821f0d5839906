//! Protocol upgrades through the proxy (RFC 9110, 7.8): WebSockets.

#![expect(clippy::result_large_err, reason = "the callback of tungstenite's handshake has this shape")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::GatewayProcess;
use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::{HandshakeError, Message, WebSocket};

use crate::support::orfa_binary;

/// The time limit for waiting on either side.
const PATIENCE: Duration = Duration::from_secs(60);

async fn start_gateway(service: SocketAddr) -> GatewayProcess {
    start_gateway_with(service, "").await
}

/// Like `gateway`, with further fields of the service.
async fn start_gateway_with(service: SocketAddr, more: &str) -> GatewayProcess {
    let config = format!(
        "listen: 127.0.0.1:0\n\
         services: {{ chat: {{ url: 'http://{service}'{more} }} }}\n\
         routes: [{{ path: /chat/*, proxy: chat }}]\n"
    );
    GatewayProcess::start(orfa_binary(), &config).await
}

/// Starts a service that handles its first connection with `talk`. Returns its address and a handle for the
/// result.
fn start_service<T: Send + 'static>(
    talk: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let talk = move || talk(with_read_timeout(listener.accept().expect("a connection").0));
    (address, std::thread::spawn(talk))
}

fn with_read_timeout(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    socket
}

/// Opens a WebSocket through the gateway. Blocks, like the library.
fn open_web_socket(gateway: SocketAddr) -> Result<WebSocket<TcpStream>, Box<tungstenite::Error>> {
    let socket = with_read_timeout(TcpStream::connect(gateway).expect("a gateway"));
    match tungstenite::client("ws://shop.example/chat/room?seat=7", socket) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(error)) => Err(Box::new(error)),
        Err(HandshakeError::Interrupted(_)) => panic!("a blocking handshake was interrupted"),
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("a thread")
}

#[tokio::test]
async fn a_web_socket_transfers_messages_in_both_directions() {
    let (address, served) = start_service(|socket| {
        let mut asked = None;
        let mut socket = tungstenite::accept_hdr(socket, |request: &Request, response: Response| {
            asked = Some((request.uri().to_string(), request.headers().clone()));
            Ok(response)
        })
        .expect("a handshake");
        // The service speaks first.
        socket.send("hello".into()).expect("sent");
        loop {
            match socket.read().expect("a message") {
                Message::Close(_) => return asked.expect("a request"),
                message => socket.send(message).expect("sent"),
            }
        }
    });
    let gateway = start_gateway(address).await;
    let to = gateway.address;
    run_blocking(move || {
        let mut socket = open_web_socket(to).expect("a WebSocket");
        assert_eq!(socket.read().expect("a message"), Message::from("hello"));
        for message in [Message::from("one"), Message::from(vec![7; 1 << 20]), Message::from("three")] {
            socket.send(message.clone()).expect("sent");
            assert_eq!(socket.read().expect("a message"), message);
        }
        socket.close(None).expect("closed");
        while socket.read().is_ok() {}
    })
    .await;
    let (uri, headers) = run_blocking(move || served.join().expect("a service")).await;
    assert_eq!(uri, "/room?seat=7");
    assert_eq!(headers["forwarded"], "for=127.0.0.1;host=\"shop.example\";proto=http");
    assert_eq!(headers["via"], "1.1 orfa");
    let line = gateway.wait_for_log(|line| line.contains("\"path\":\"/chat/room\"")).await.expect("a line");
    assert!(line.contains("\"status\":101"), "{line}");
}

#[tokio::test]
async fn a_service_may_refuse_an_upgrade() {
    let (address, served) = start_service(|socket| {
        let refuse = |_: &Request, _: Response| {
            let mut refusal = tungstenite::http::Response::new(Some("full".to_owned()));
            *refusal.status_mut() = tungstenite::http::StatusCode::FORBIDDEN;
            Err(refusal)
        };
        assert!(tungstenite::accept_hdr(socket, refuse).is_err());
    });
    let gateway = start_gateway(address).await;
    let to = gateway.address;
    let refused = run_blocking(move || open_web_socket(to)).await.expect_err("a refusal");
    match *refused {
        tungstenite::Error::Http(response) => assert_eq!(response.status().as_u16(), 403),
        other => panic!("{other}"),
    }
    run_blocking(move || served.join().expect("a service")).await;
}

#[tokio::test]
async fn a_disconnect_of_the_client_closes_the_services_side() {
    let (address, served) = start_service(|socket| {
        let mut socket = tungstenite::accept(socket).expect("a handshake");
        assert_eq!(socket.read().expect("a message"), Message::from("bye"));
        socket.read().is_err()
    });
    let gateway = start_gateway(address).await;
    let to = gateway.address;
    run_blocking(move || open_web_socket(to).expect("a WebSocket").send("bye".into()).expect("sent")).await;
    assert!(run_blocking(move || served.join().expect("a service")).await);
}

#[tokio::test]
async fn an_idle_web_socket_is_closed_on_both_sides() {
    /// Asserts that the connection ends, rather than that the read times out.
    fn assert_closed(socket: &mut WebSocket<TcpStream>) {
        match socket.read() {
            Err(tungstenite::Error::Protocol(ResetWithoutClosingHandshake)) => {}
            other => panic!("{other:?}"),
        }
    }
    let (address, served) = start_service(|socket| {
        let mut socket = tungstenite::accept(socket).expect("a handshake");
        socket.send("hello".into()).expect("sent");
        assert_closed(&mut socket);
    });
    let gateway = start_gateway_with(address, ", upgrade_idle_timeout: 300ms").await;
    let to = gateway.address;
    let lasted = run_blocking(move || {
        let begun = Instant::now();
        let mut socket = open_web_socket(to).expect("a WebSocket");
        assert_eq!(socket.read().expect("a message"), Message::from("hello"));
        assert_closed(&mut socket);
        begun.elapsed()
    });
    assert!(lasted.await >= Duration::from_millis(300));
    run_blocking(move || served.join().expect("a service")).await;
}
