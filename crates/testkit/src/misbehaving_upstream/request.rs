//! A minimal HTTP/1.1 parser for the gateway's requests.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// A request as received.
#[derive(Debug, Default)]
pub(super) struct UpstreamRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl UpstreamRequest {
    /// Reads the next request, or `None` at the end of the connection.
    pub(super) async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let Some(first) = read_line(stream).await? else { return Ok(None) };
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut request = Self { method, target, ..Self::default() };
        while let Some(line) = read_line(stream).await?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        request.body = request.read_body(stream).await?;
        Ok(Some(request))
    }

    /// The path without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    async fn read_body(&self, stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some() {
            while let Some(size) =
                read_line(stream).await?.and_then(|line| u64::from_str_radix(&line, 16).ok())
            {
                stream.take(size).read_to_end(&mut body).await?;
                read_line(stream).await?;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = self.header("content-length").and_then(|text| text.parse().ok()) {
            stream.take(length).read_to_end(&mut body).await?;
        }
        Ok(body)
    }
}

async fn read_line(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    let read = stream.read_until(b'\n', &mut text).await?;
    Ok((read > 0).then(|| String::from_utf8_lossy(&text).trim_end_matches(['\r', '\n']).to_owned()))
}
