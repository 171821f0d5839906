//! Parsing of response heads: the result does not depend on how the input is split.

use proptest::prelude::*;

use super::response;
use crate::protocol::http1::tests::{decode, split_at_places};
use crate::protocol::http1::{BodyDecoder, ReceiveBuffer};

proptest! {
    #[test]
    fn parses_a_head_in_any_pieces(places in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let text = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\nbody";
        let (mut input, mut heads) = (ReceiveBuffer::default(), Vec::new());
        for piece in split_at_places(text, &places) {
            input.append_bytes(piece);
            while heads.len() < 2 && let Some(head) = response::read_head(&mut input, &http::Method::GET).unwrap() {
                heads.push(head);
            }
        }
        prop_assert!(heads[0].is_interim() && !heads[1].is_interim());
        prop_assert_eq!(&heads[1].response.headers()["a"], "b");
        prop_assert_eq!(input.bytes(), b"body");
    }
}

#[test]
fn rejects_an_endless_head() {
    let mut input = ReceiveBuffer::default();
    input.append_bytes(b"HTTP/1.1 200 OK\r\n");
    let mut result = Ok(None);
    for _ in 0..70 {
        input.append_bytes(format!("a: {}\r\n", "x".repeat(1000)).as_bytes());
        result = response::read_head(&mut input, &http::Method::GET).map(|head| head.map(drop));
    }
    assert_eq!(result, Err(response::ResponseParseError::Large));
}

mod fuzz {
    use super::*;

    /// Compares decoding of a response in one piece and byte by byte, and checks that nothing panics.
    #[test]
    fn decodes_a_response_in_any_pieces() {
        let words = &[
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 ",
            "103",
            "204",
            "content-length: 3\r\n",
            "transfer-encoding: chunked\r\n",
            "connection: close\r\n",
            "\r\n",
            "\n",
            "\r",
            "0",
            "3",
            "ffffffffffffffff",
            ";",
            "x: y\r\n",
            " ",
            "abc",
        ];
        ::fuzz::run("upstream_http1", words, |text: &[u8]| {
            let single: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(answer(&[text]), answer(&single));
        });
    }

    fn answer(pieces: &[&[u8]]) -> Result<Option<(u16, Vec<u8>)>, String> {
        let mut input = ReceiveBuffer::default();
        for (index, piece) in pieces.iter().enumerate() {
            input.append_bytes(piece);
            let head =
                response::read_head(&mut input, &http::Method::GET).map_err(|error| error.to_string())?;
            if let Some(head) = head {
                let rest = [&[input.bytes()], &pieces[index + 1..]].concat();
                let (data, ..) = decode(BodyDecoder::new(head.framing), &rest)
                    .map_err(|framing_error| framing_error.to_string())?;
                return Ok(Some((head.response.status().as_u16(), data)));
            }
        }
        Ok(None)
    }
}
