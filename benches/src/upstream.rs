//! A service that costs next to nothing, to stand behind the proxies that are compared: it looks for the
//! end of a head, and writes a constant of 1 KB, or of 100 KB where the path begins with `/large`. It
//! reads no bodies and knows no pipelining.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of the usual answer, without its head.
pub const SMALL: usize = 1_000;
/// Bytes of the answer where the path begins with `/large`.
pub const LARGE: usize = 100_000;

const END: &[u8] = b"\r\n\r\n";

/// Serves for ever.
///
/// # Errors
/// If no connection can be accepted any more.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let (small, large): (&[u8], &[u8]) = (answer(SMALL).leak(), answer(LARGE).leak());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, small, large));
    }
}

/// What is sent, head and all.
fn answer(length: usize) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n\"");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + length - 2, b'x');
    answer.push(b'"');
    answer
}

async fn connection(mut stream: TcpStream, small: &[u8], large: &[u8]) -> io::Result<()> {
    let mut request = Vec::with_capacity(4096);
    while stream.read_buf(&mut request).await? > 0 {
        if request.ends_with(END) {
            let is_large = request.starts_with(b"GET /large");
            stream.write_all(if is_large { large } else { small }).await?;
            request.clear();
        }
    }
    Ok(())
}
