//! Decoding of bodies: the result does not depend on how the input is split, and bytes after the end
//! are not consumed.

use std::future::poll_fn;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::fields::MAX_SHARED_TEXT;
use super::{
    BodyDecoder, BodyFraming, BodyPart, FramingError, MAX_TRAILERS, ReceiveBuffer, announced_trailers,
    parse_fields,
};
use crate::headers::MAX_MEMBERS;

/// A body, its trailers, and the unconsumed bytes after it.
pub(crate) type DecodedBody = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

/// Decodes the input in these pieces.
pub(crate) fn decode(decoder: BodyDecoder, pieces: &[&[u8]]) -> Result<DecodedBody, FramingError> {
    let (mut decoder, mut input) = (decoder, ReceiveBuffer::default());
    let (mut data, mut trailers) = (Vec::new(), None);
    for piece in pieces {
        input.append_bytes(piece);
        loop {
            match decoder.next(&mut input)? {
                BodyPart::Data(more) => data.extend_from_slice(&more),
                BodyPart::Trailers(found) => trailers = Some(found),
                BodyPart::End | BodyPart::NeedsInput => break,
            }
        }
    }
    Ok((data, trailers, input.bytes().to_vec()))
}

/// Splits a text at these positions.
pub(crate) fn split_at_places<'a>(text: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

#[tokio::test]
async fn lets_other_tasks_run_between_small_chunks() {
    const COUNT: usize = 10_000;
    let text = "1\r\nx\r\n".repeat(COUNT) + "0\r\n\r\n";
    let (mut decoder, mut input, mut stream) =
        (BodyDecoder::new(BodyFraming::Chunked), ReceiveBuffer::default(), &b""[..]);
    input.append_bytes(text.as_bytes());
    let (mut frames, mut polls) = (0_usize, 0_usize);
    loop {
        let frame = poll_fn(|context| {
            polls += 1;
            decoder.poll_frame(&mut input, &mut stream, context)
        });
        if frame.await.unwrap().is_none() {
            break;
        }
        frames += 1;
    }
    assert_eq!(frames, COUNT);
    // Each poll without a frame ends the turn of the task.
    assert!(polls - frames > COUNT / 1_000, "{polls} polls");
}

proptest! {
    #[test]
    fn decodes_a_chunked_body_in_any_pieces(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9000), 0..6),
        has_trailer: bool,
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut text = Vec::new();
        for chunk in &chunks {
            text.extend_from_slice(format!("{:X} ; name=value\r\n", chunk.len()).as_bytes());
            text.extend_from_slice(chunk);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\n");
        if has_trailer {
            text.extend_from_slice(b"x-sum: 7\r\ncontent-length: 1\r\n");
        }
        text.extend_from_slice(b"\r\nHTTP/1.1 200 OK\r\n");
        let (data, trailers, rest) = decode(BodyDecoder::new(BodyFraming::Chunked), &split_at_places(&text, &places)).unwrap();
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(rest, b"HTTP/1.1 200 OK\r\n");
        prop_assert_eq!(trailers.is_some(), has_trailer);
        if let Some(trailers) = trailers {
            // Trailers about the framing of the message are dropped.
            prop_assert_eq!(trailers, HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]));
        }
    }

    #[test]
    fn a_body_of_known_length_leaves_the_following_bytes(
        body in prop::collection::vec(any::<u8>(), 0..20_000),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = [&body[..], b"more"].concat();
        let decoder = BodyDecoder::new(BodyFraming::Length(body.len() as u64));
        let (data, _, rest) = decode(decoder, &split_at_places(&text, &places)).unwrap();
        prop_assert_eq!((data, rest), (body, b"more".to_vec()));
    }
}

#[test]
fn announces_a_bounded_number_of_trailers() {
    let names: Vec<String> = (0..1000).map(|number| format!("x-{number}")).collect();
    let headers = HeaderMap::from_iter([(TRAILER, HeaderValue::try_from(names.join(",")).unwrap())]);
    assert_eq!(announced_trailers(&headers).len(), MAX_TRAILERS);
}

#[test]
fn rejects_trailers_with_more_connection_options_than_are_read() {
    let found = |options: usize| {
        let options = "a,".repeat(options - 1) + "x-a";
        let text = format!("0\r\nconnection: {options}\r\nx-a: 1\r\nx-b: 2\r\n\r\n");
        decode(BodyDecoder::new(BodyFraming::Chunked), &[text.as_bytes()]).map(|(_, trailers, _)| trailers)
    };
    let rest = HeaderMap::from_iter([("x-b".parse().unwrap(), "2".parse().unwrap())]);
    assert_eq!(found(MAX_MEMBERS), Ok(Some(rest)));
    assert_eq!(found(MAX_MEMBERS + 1), Err(FramingError::Trailers));
}

#[test]
fn rejects_ambiguous_chunked_bodies() {
    for text in [
        "x\r\n",
        "\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x1\r\n",
        "1\n",
        "1\r\nab\r\n",
        "1\r\na\n0\r\n\r\n",
        "1 1\r\n",
        "10000000000000000\r\n",
        "1\r;x\r\n",
        "1;\x00\x01\r\na\r\n0\r\n\r\n",
        "1;a=\"\x7f\"\r\na\r\n0\r\n\r\n",
        "1;a=\x0b\r\na\r\n0\r\n\r\n",
        "0\r\nno header\r\n\r\n",
        "0\r\n\nx: y\r\n\r\n",
        "0\r\na: b\n\nx: y\r\n\r\n",
        "0\r\na: b\nx: y\r\n\r\n",
    ] {
        let found = decode(BodyDecoder::new(BodyFraming::Chunked), &[text.as_bytes()]);
        assert!(found.is_err(), "{text:?}: {found:?}");
    }
    for (start, filler) in [("1;", "x"), ("0\r\na: ", "x")] {
        let text = format!("{start}{}", filler.repeat(20_000));
        assert!(
            decode(BodyDecoder::new(BodyFraming::Chunked), &[text.as_bytes()]).is_err(),
            "{start:?} without end"
        );
    }
}

#[test]
fn a_rejected_body_stays_rejected() {
    for text in
        ["x\r\n", "1\r\nab\r\n", "0\r\nno header\r\n\r\n", "0\r\na: b\r\n c\r\n\r\n", "0\r\n : b\r\n\r\n"]
    {
        let (mut decoder, mut input) = (BodyDecoder::new(BodyFraming::Chunked), ReceiveBuffer::default());
        input.append_bytes(text.as_bytes());
        input.append_bytes(b"GET / HTTP/1.1\r\n\r\n");
        let error = loop {
            match decoder.next(&mut input) {
                Ok(BodyPart::Data(_)) => {}
                Ok(part) => panic!("{text:?}: {part:?}"),
                Err(framing_error) => break framing_error,
            }
        };
        for _ in 0..3 {
            assert_eq!(decoder.next(&mut input), Err(error), "{text:?}");
            assert_eq!(decoder.skip_framing(&mut input), Err(error), "{text:?}");
            assert_ne!(decoder, BodyDecoder::Done, "{text:?}");
        }
    }
}

#[test]
fn reads_an_available_body_into_one_piece_unless_it_is_long() {
    for (length, is_read_on) in [(100_000, true), (1 << 20, false)] {
        let text = vec![b'x'; length];
        let (mut input, mut stream) = (ReceiveBuffer::default(), &text[..]);
        let mut context = Context::from_waker(Waker::noop());
        assert!(input.poll_more(&mut stream, &mut context).is_ready());
        let begun = input.bytes().len();
        input.fill_available(length as u64, &mut stream, &mut context);
        assert_eq!(input.bytes().len(), if is_read_on { length } else { begun });
    }
}

#[test]
fn reserves_no_memory_for_a_slow_body() {
    let (mut input, mut first, mut more) =
        (ReceiveBuffer::default(), &b"only a little"[..], &[b'x'; 1000][..]);
    let mut context = Context::from_waker(Waker::noop());
    assert!(input.poll_more(&mut first, &mut context).is_ready());
    input.fill_available(1013, &mut more, &mut context);
    assert_eq!((input.bytes(), more.len()), (&b"only a little"[..], 1000));
}

#[test]
fn small_parts_do_not_retain_large_buffers() {
    let mut input = ReceiveBuffer::default();
    input.append_bytes(&[b'x'; 60_000]);
    let part: Bytes = input.take(10);
    assert_eq!((part.len(), input.bytes().len()), (10, 59_990));
}

#[test]
fn values_share_the_memory_of_a_short_text_only() {
    // The other bytes of the text.
    let least = "b: \r\na: 1\r\n\r\n".len();
    for (length, is_shared) in [(MAX_SHARED_TEXT, true), (MAX_SHARED_TEXT + 1, false)] {
        let text = Bytes::from(format!("b: {}\r\na: 1\r\n\r\n", "x".repeat(length - least)));
        let mut room = [httparse::EMPTY_HEADER; 2];
        let Ok(httparse::Status::Complete((_, found))) = httparse::parse_headers(&text, &mut room) else {
            panic!("{text:?}");
        };
        let map = parse_fields(&text, found).unwrap();
        assert_eq!(text.as_ptr_range().contains(&map["a"].as_bytes().as_ptr()), is_shared, "{length}");
        assert_eq!(map["a"], "1");
    }
}
