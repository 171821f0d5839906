//! Requirements of gRPC: HTTP/2 in clear text on both sides, bidirectional streaming, `te`, and trailers. The
//! tests need no gRPC library, since its messages are only bytes to the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::GatewayProcess;
use tokio::net::{TcpListener, TcpStream};

use crate::support::orfa_binary;

type Messages = Channel<Bytes, Infallible>;

/// Echoes every message as it arrives, then sends trailers.
async fn echo(request: Request<Incoming>) -> Result<Response<Messages>, Infallible> {
    let (mut sender, body) = Messages::new(1);
    let te = request.headers().get("te").cloned();
    let is_grpc = request.version() == Version::HTTP_2 && te == Some(HeaderValue::from_static("trailers"));
    tokio::spawn(async move {
        let mut messages = request.into_body();
        while let Some(Ok(frame)) = messages.frame().await {
            if let Ok(message) = frame.into_data() {
                let _ = sender.send_data(message).await;
            }
        }
        let status = HeaderValue::from_static(if is_grpc { "0" } else { "13" });
        let _ = sender
            .send_trailers(HeaderMap::from_iter([("grpc-status".parse().expect("a name"), status)]))
            .await;
    });
    Ok(Response::builder().header("content-type", "application/grpc").body(body).expect("a response"))
}

async fn start_service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(socket), service_fn(echo)));
        }
    });
    address
}

#[tokio::test]
async fn streams_in_both_directions_and_forwards_the_status_trailer() {
    let config = format!(
        "listen: 127.0.0.1:0\n\
         services: {{ echo: {{ url: 'http://{}', protocol: http2 }} }}\n\
         routes: [{{ path: /echo.Echo/*, proxy: {{ service: echo, keep_prefix: true }} }}]\n",
        start_service().await
    );
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    let socket = TcpStream::connect(gateway.address).await.expect("a gateway");
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .expect("HTTP/2");
    tokio::spawn(connection);
    let (mut sender, body) = Messages::new(1);
    let request = Request::post(format!("{}/echo.Echo/Both", gateway.url))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request");
    let mut answer = client.send_request(request).await.expect("an answer").into_body();
    for message in ["one", "two", "three"] {
        // The next message is sent only after the previous one has come back.
        sender.send_data(message.into()).await.expect("sent");
        let frame = answer.frame().await.expect("a frame").expect("a whole one");
        assert_eq!(frame.into_data().expect("data"), message);
    }
    drop(sender);
    let end = answer.collect().await.expect("an end");
    assert_eq!(end.trailers().expect("trailers")["grpc-status"], "0");
}
