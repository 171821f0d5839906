//! A service with minimal cost, used behind the servers that are compared: it searches for the end of a head,
//! and writes a response from memory that is selected by the beginning of the path. It reads no bodies and
//! does not support pipelining. With recorded responses of another service, by path and query, it replaces
//! that service.
//!
//! | path | answer |
//! | --- | --- |
//! | `/large` | JSON of 100 KB |
//! | `/user`, `/items` | JSON: an object, and a list of 12 |
//! | `/page` | HTML of 100 KB with links |
//! | `/tree?n=1` | page 1 of an infinite binary tree: links to 2 and 3 |
//! | `/words?n=9` | 300 words, including 9 times `keyword` |
//! | else | JSON of 1 KB |

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The size of the default response without its head.
pub const SMALL: usize = 1_000;
/// The size of the response for paths that begin with `/large`.
pub const LARGE: usize = 100_000;
/// The number of entries of the list at `/items`.
pub const ITEMS: usize = 12;
/// The number of words of a page at `/words`.
const WORDS: usize = 300;

const HEAD_END: &[u8] = b"\r\n\r\n";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// JSON texts by the path and query of their requests.
pub type PlayedTexts = HashMap<String, String>;

/// The constant responses, including heads.
struct ConstantResponses {
    address: String,
    small: Vec<u8>,
    large: Vec<u8>,
    user: Vec<u8>,
    items: Vec<u8>,
    page: Vec<u8>,
    /// Responses of another service, by path and query.
    recorded: Option<HashMap<String, Vec<u8>>>,
}

/// Serves forever.
///
/// # Errors
/// Fails if connections can no longer be accepted.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let answers = ConstantResponses::new(listener.local_addr()?);
    accept_connections(listener, answers).await
}

/// Serves the responses of another service forever.
///
/// # Errors
/// Fails if connections can no longer be accepted.
pub async fn serve_recorded(listener: TcpListener, played: &PlayedTexts) -> io::Result<()> {
    let answers = ConstantResponses::new(listener.local_addr()?);
    let played = played.iter().map(|(asked, body)| (asked.clone(), json_response(body))).collect();
    accept_connections(listener, ConstantResponses { recorded: Some(played), ..answers }).await
}

async fn accept_connections(listener: TcpListener, answers: ConstantResponses) -> io::Result<()> {
    let answers = Arc::new(answers);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_connection(stream, Arc::clone(&answers)));
    }
}

impl ConstantResponses {
    fn new(at: SocketAddr) -> Self {
        let text = |length: usize| json_response(&format!("\"{}\"", "x".repeat(length - 2)));
        Self {
            address: at.to_string(),
            small: text(SMALL),
            large: text(LARGE),
            user: json_response(USER),
            items: json_response(&items_json()),
            page: html_response(&large_page()),
            recorded: None,
        }
    }

    fn response_to(&self, request: &[u8]) -> Cow<'_, [u8]> {
        if let Some(played) = &self.recorded {
            return played.get(&request_target(request)).map_or(NOT_FOUND, Vec::as_slice).into();
        }
        let path = request.strip_prefix(b"GET /").unwrap_or_default();
        let kept = match () {
            () if path.starts_with(b"large") => &self.large,
            () if path.starts_with(b"user") => &self.user,
            () if path.starts_with(b"items") => &self.items,
            () if path.starts_with(b"page") => &self.page,
            () if path.starts_with(b"tree?n=") => {
                return html_response(&tree_page(&self.address, parse_number(path))).into();
            }
            () if path.starts_with(b"words?n=") => {
                return html_response(&word_page(parse_number(path))).into();
            }
            () => &self.small,
        };
        kept.into()
    }
}

/// A page of an infinite binary tree, whose pages are all served at this address.
#[must_use]
pub fn tree_page(at: &str, number: usize) -> String {
    let link = |number, name| format!("<a href=\"http://{at}/tree?n={number}\">{name}</a>\n");
    link(2 * number, "left") + &link(2 * number + 1, "right")
}

const USER: &str = r#"{"id":7,"name":"Ada Lovelace","mail":"ada@example.org","town":"London"}"#;

fn items_json() -> String {
    let item = |id| format!(r#"{{"id":{id},"title":"The posting with number {id}","price":{}.5}}"#, 10 * id);
    format!("[{}]", (1..=ITEMS).map(item).collect::<Vec<_>>().join(","))
}

fn large_page() -> String {
    let (mut page, mut number) = (String::with_capacity(LARGE), 0);
    while page.len() < LARGE {
        number += 1;
        page += &format!(
            "<li><a href=\"/items/{number}\">item {number}</a> of a long list, with words about it that nobody reads</li>\n"
        );
    }
    page
}

fn word_page(count: usize) -> String {
    let word = |place| if place < count { "keyword " } else { "another " };
    (0..WORDS).map(word).collect()
}

/// The path and query of a GET request. An encoded comma is decoded.
fn request_target(request: &[u8]) -> String {
    let target = request.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next());
    String::from_utf8_lossy(target.unwrap_or_default()).replace("%2C", ",")
}

/// The number after the first `=` of a path.
fn parse_number(path: &[u8]) -> usize {
    let digits = path.iter().skip_while(|byte| **byte != b'=').skip(1);
    let digits = digits.map_while(|byte| char::from(*byte).to_digit(10));
    digits.fold(0, |number, digit| number * 10 + digit as usize)
}

fn json_response(body: &str) -> Vec<u8> {
    encode_response("application/json", body)
}

fn html_response(body: &str) -> Vec<u8> {
    encode_response("text/html", body)
}

/// A response including its head.
fn encode_response(kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

async fn serve_connection(mut stream: TcpStream, answers: Arc<ConstantResponses>) -> io::Result<()> {
    let mut request = Vec::with_capacity(4096);
    while stream.read_buf(&mut request).await? > 0 {
        if request.ends_with(HEAD_END) {
            stream.write_all(&answers.response_to(&request)).await?;
            request.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &str) -> String {
        let answers = ConstantResponses::new(SocketAddr::from(([127, 0, 0, 1], 80)));
        let answer = String::from_utf8(answers.response_to(request.as_bytes()).into_owned()).expect("a text");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    #[test]
    fn a_page_of_the_tree_links_to_two_others() {
        let page = body("GET /tree?n=5 HTTP/1.1\r\n\r\n");
        assert!(page.contains("/tree?n=10\"") && page.contains("/tree?n=11\""), "{page}");
    }

    #[test]
    fn word_pages_have_the_requested_number_of_keywords() {
        assert_eq!(body("GET /words?n=12 HTTP/1.1\r\n\r\n").matches("keyword").count(), 12);
    }

    #[test]
    fn replays_another_service_by_path_and_query() {
        let played = HashMap::from([("/rows?ids=1,2".to_owned(), json_response("[]"))]);
        let mut answers = ConstantResponses::new(SocketAddr::from(([127, 0, 0, 1], 80)));
        answers.recorded = Some(played);
        assert!(answers.response_to(b"GET /rows?ids=1%2C2 HTTP/1.1\r\n\r\n").ends_with(b"[]"));
        assert_eq!(&*answers.response_to(b"GET /rows HTTP/1.1\r\n\r\n"), NOT_FOUND);
    }

    #[test]
    fn responses_have_their_nominal_sizes() {
        assert_eq!(body("GET /small HTTP/1.1\r\n\r\n").len(), SMALL);
        assert_eq!(body("GET /large HTTP/1.1\r\n\r\n").len(), LARGE);
        assert!(body("GET /page HTTP/1.1\r\n\r\n").len().abs_diff(LARGE) < 200);
    }
}
