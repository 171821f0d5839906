//! The pages of a small web, for programs that crawl it.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An infinite binary tree of pages: page `/n` links to `/2n` and `/2n+1`. The server stops on drop.
pub(super) struct PageTree {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl PageTree {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { address, task }
    }
}

impl Drop for PageTree {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request per connection. A client that breaks off gets no answer.
async fn serve(mut stream: TcpStream) -> Option<()> {
    let (read, mut write) = stream.split();
    let mut head = String::new();
    let mut lines = BufReader::new(read.take(16 << 10));
    while !head.ends_with("\r\n\r\n") {
        (lines.read_line(&mut head).await.ok()? > 0).then_some(())?;
    }
    let number: u64 = head.split(' ').nth(1)?.trim_start_matches('/').parse().ok()?;
    let page = page_html(number);
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
    );
    write.write_all(answer.as_bytes()).await.ok()
}

/// Returns a page: two links, and the word `leaf` once for every one-bit of its number.
fn page_html(number: u64) -> String {
    let (left, right, words) = (2 * number, 2 * number + 1, "leaf ".repeat(number.count_ones() as usize));
    format!("<a href=\"http://pages/{left}\">left</a> <a href=\"http://pages/{right}\">right</a> {words}")
}
