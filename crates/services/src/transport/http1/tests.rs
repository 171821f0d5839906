//! Heads of answers: what is found does not depend on the pieces in which they came.

use proptest::prelude::*;

use super::response;
use crate::http1::tests::{cut, decode};
use crate::http1::{Decoder, Input};

proptest! {
    #[test]
    fn a_head_is_the_same_in_any_pieces(places in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let text = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\nbody";
        let (mut input, mut heads) = (Input::default(), Vec::new());
        for piece in cut(text, &places) {
            input.put(piece);
            while heads.len() < 2 && let Some(head) = response::read(&mut input, &http::Method::GET).unwrap() {
                heads.push(head);
            }
        }
        prop_assert!(heads[0].is_interim() && !heads[1].is_interim());
        prop_assert_eq!(&heads[1].response.headers()["a"], "b");
        prop_assert_eq!(input.bytes(), b"body");
    }
}

#[test]
fn a_head_without_end_is_given_up() {
    let mut input = Input::default();
    input.put(b"HTTP/1.1 200 OK\r\n");
    let mut result = Ok(None);
    for _ in 0..70 {
        input.put(format!("a: {}\r\n", "x".repeat(1000)).as_bytes());
        result = response::read(&mut input, &http::Method::GET).map(|head| head.map(drop));
    }
    assert_eq!(result, Err(response::Wrong::Large));
}

mod fuzz {
    use super::*;

    /// The head of an answer and its body, in one piece or byte by byte: the same, and never a panic.
    #[test]
    fn an_answer_is_the_same_in_any_pieces_or_none() {
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
        let mut input = Input::default();
        for (index, piece) in pieces.iter().enumerate() {
            input.put(piece);
            let head = response::read(&mut input, &http::Method::GET).map_err(|wrong| wrong.to_string())?;
            if let Some(head) = head {
                let rest = [&[input.bytes()], &pieces[index + 1..]].concat();
                let (data, ..) =
                    decode(Decoder::new(head.framing), &rest).map_err(|wrong| wrong.to_string())?;
                return Ok(Some((head.response.status().as_u16(), data)));
            }
        }
        Ok(None)
    }
}
