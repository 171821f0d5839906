//! The floor: a bare hyper server that responds with a constant, as a plain release build. The cost of a
//! query is measured relative to it.
//!
//! `floor 127.0.0.1:4000`

use std::convert::Infallible;

use allocator::GlobalAllocator;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;

/// The gateway's allocator.
#[global_allocator]
static ALLOCATOR: GlobalAllocator = GlobalAllocator;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            // An error only ends the connection of a client that disconnected.
            let _ = builder.serve_connection(TokioIo::new(stream), service_fn(handle_request)).await;
        });
    }
}

/// Reads the body, as a gateway has to, and responds.
async fn handle_request(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Full::new(Bytes::from_static(b"hello world"))))
}
