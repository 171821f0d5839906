//! Which requests could be read in two ways, however their bytes come.

use proptest::prelude::*;

use super::Framing;

const GOOD: &str = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &str =
    "POST /b HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nA: b\r\n\r\n";

fn followed(pieces: &[&[u8]]) -> Framing {
    let mut framing = Framing::default();
    pieces.iter().for_each(|piece| framing.follow(piece));
    framing
}

fn doubtful(text: &str) -> Option<u32> {
    followed(&[text.as_bytes()]).doubtful()
}

#[test]
fn requests_in_a_row_are_told_apart() {
    let several = format!("{GOOD}\r\n{CHUNKED}{GOOD}GET / HTTP/1.1\r\n\r\n");
    let framing = followed(&[several.as_bytes()]);
    assert_eq!((framing.doubtful(), framing.begun, framing.is_in_head()), (None, 4, false));
    assert!(followed(&[several.as_bytes(), b"G"]).is_in_head());
    assert!(followed(&[b"GET / HTTP/1.1\r\nA: b\r\n"]).is_in_head());
    assert!(!followed(&[b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1"]).is_in_head());
}

#[test]
fn what_could_be_read_in_two_ways_is_known() {
    for head in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: ",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: \"chunked\"",
        "A: b\nContent-Length: 5",
        "A: b\rContent-Length: 5",
        "A: b\r\r\nContent-Length: 5",
    ] {
        let request = format!("POST / HTTP/1.1\r\n{head}\r\n\r\n");
        assert_eq!(doubtful(&request), Some(1), "{head:?}");
        assert_eq!(doubtful(&format!("{GOOD}{CHUNKED}{request}")), Some(3), "{head:?} behind others");
    }
}

#[test]
fn a_broken_body_makes_what_follows_doubtful() {
    for body in ["5\nhello\r\n0\r\n\r\n", "x\r\n", "5\r\nhello!\r\n", "-1\r\n", "fffffffffffffffff\r\n"] {
        let request = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(doubtful(&request), Some(2), "{body:?}");
    }
}

#[test]
fn a_line_without_end_is_not_kept_for_ever() {
    let mut framing = Framing::default();
    for _ in 0..200 {
        framing.follow(&[b'a'; 1024]);
    }
    assert!(framing.doubtful().is_some() && framing.line.is_empty());
}

proptest! {
    #[test]
    fn it_does_not_matter_how_bytes_are_cut(cuts in prop::collection::vec(0_usize..400, 0..8), broken: bool) {
        let end = if broken { "Content-Length: 1\r\nTransfer-Encoding: chunked" } else { "A: b" };
        let text = format!("{GOOD}{CHUNKED}{GOOD}GET / HTTP/1.1\r\n{end}\r\n\r\n{CHUNKED}");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        let (cut, whole) = (followed(&pieces), followed(&[text.as_bytes()]));
        prop_assert_eq!((cut.doubtful(), cut.begun, cut.state), (whole.doubtful(), whole.begun, whole.state));
        prop_assert_eq!(whole.doubtful(), broken.then_some(4));
    }

    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        followed(&[&bytes]);
    }
}

#[test]
fn nothing_of_what_comes_makes_it_panic_or_depends_on_its_pieces() {
    let words = &[
        "POST / HTTP/1.1\r\n",
        "GET /a HTTP/1.0\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: ",
        "transfer-encoding: ",
        "chunked",
        "5",
        "0",
        "ffffffffffffffff",
        "18446744073709551615",
        ",",
        ";",
        "\r\n\r\n",
        "hello",
        ": ",
        " ",
        "\t",
        "+",
        "-",
        "0x",
    ];
    ::fuzz::check(words, |text: &[u8]| {
        let whole = followed(&[text]);
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        let pieces = followed(&pieces);
        assert_eq!((whole.doubtful(), whole.is_in_head()), (pieces.doubtful(), pieces.is_in_head()));
    });
}
