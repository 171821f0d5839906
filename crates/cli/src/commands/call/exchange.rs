//! A single request and its response on a separate connection, with every byte counted.
//!
//! It uses hyper's plain connection instead of a pooled client, so that the reported bytes are those on the
//! socket, with headers and framing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::output::exit::CliError;

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct ProgramCallRequest {
    pub(crate) url: String,
    pub(crate) program: Bytes,
    pub(crate) content_type: &'static str,
    pub(crate) input: Option<Bytes>,
    /// Headers beyond those that the protocol needs.
    pub(crate) headers: HeaderMap,
}

/// The response.
#[derive(Clone, Debug)]
pub(crate) struct ProgramCallResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Bytes of the whole HTTP messages.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// The time from the first byte of the request to the last of the response, on an established connection.
    pub(crate) duration: Duration,
}

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
struct CallUrl {
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl ProgramCallRequest {
    /// Sends the request and waits for the complete response.
    pub(crate) async fn send(&self) -> Result<ProgramCallResponse, CliError> {
        let target = CallUrl::parse(&self.url)?;
        let request = self.build_request(&target)?;
        let counts = Arc::new(TransferredBytes::default());
        let address = (target.host.as_str(), target.port);
        let stream =
            TcpStream::connect(address).await.map_err(|error| unreachable_error(&self.url, &error))?;
        let _ = stream.set_nodelay(true);
        let counted = TokioIo::new(CountedStream { stream, counts: Arc::clone(&counts) });
        let broken = |error: hyper::Error| incomplete_response(&self.url, &error);
        let started = Instant::now();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(counted).await.map_err(broken)?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        let body = body.collect().await.map_err(broken)?.to_bytes();
        Ok(ProgramCallResponse {
            status: parts.status,
            headers: parts.headers,
            body,
            bytes_sent: counts.sent.load(Relaxed),
            bytes_received: counts.received.load(Relaxed),
            duration: started.elapsed(),
        })
    }

    fn build_request(&self, target: &CallUrl) -> Result<Request<Full<Bytes>>, CliError> {
        let mut request = Request::post(&target.path)
            .header(header::HOST, &target.authority)
            .header(header::USER_AGENT, concat!("orfa/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, self.content_type);
        if let Some(input) = &self.input {
            request = request.header("orfa-input", input.len());
        }
        let mut request = request.body(Full::new(self.build_body())).map_err(|_| bad_url_error(&self.url))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    /// The input, followed by the program.
    fn build_body(&self) -> Bytes {
        match &self.input {
            None => self.program.clone(),
            Some(input) => [input.as_ref(), self.program.as_ref()].concat().into(),
        }
    }
}

impl CallUrl {
    fn parse(url: &str) -> Result<Self, CliError> {
        let uri: Uri = url.parse().map_err(|_| bad_url_error(url))?;
        let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
            return Err(bad_url_error(url));
        };
        if uri.scheme_str() != Some("http") {
            return Err(bad_url_error(url));
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

fn bad_url_error(url: &str) -> CliError {
    let hint = format!("write it like {}; https is not supported here yet", super::DEFAULT_URL);
    CliError::usage("bad-url", format!("`{url}` is not the URL of a query route"), hint)
}

fn unreachable_error(url: &str, error: &std::io::Error) -> CliError {
    let hint = "is `orfa dev` or `orfa serve` running there? `--url` selects another gateway";
    CliError::failed("no-gateway", format!("can't connect to {url}: {error}"), hint)
}

fn incomplete_response(url: &str, error: &hyper::Error) -> CliError {
    let hint = "is the server a gateway, and is it still running? See its log";
    CliError::failed("no-answer", format!("{url} gave no complete response: {error}"), hint)
}

#[derive(Debug, Default)]
struct TransferredBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

/// A connection that counts its bytes.
#[derive(Debug)]
struct CountedStream {
    stream: TcpStream,
    counts: Arc<TransferredBytes>,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.counts.received.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        polled
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = polled {
            self.counts.sent.fetch_add(written as u64, Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls() {
        let target = CallUrl::parse("http://[::1]:8080/query?x=1").ok();
        let expected = CallUrl {
            host: "::1".into(),
            port: 8080,
            authority: "[::1]:8080".into(),
            path: "/query?x=1".into(),
        };
        assert_eq!(target, Some(expected));
    }

    #[test]
    fn rejects_other_urls() {
        for url in ["localhost:8080/query", "https://example.org/query", "/query", "", "http://"] {
            let complaint = CallUrl::parse(url).expect_err(url);
            assert_eq!(complaint.code, "bad-url", "{url}");
        }
    }
}
