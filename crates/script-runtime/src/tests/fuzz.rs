//! Fuzzing of the input from workers: see `fuzz/src/lib.rs`.

use bytes::Bytes;

use crate::frame::{FrameReader, HandlerAnswer};

#[test]
fn arbitrary_bytes_are_parsed_as_frames_or_refused() {
    ::fuzz::check(&[], |bytes: &[u8]| {
        let mut reader = FrameReader::default();
        reader.buffer.extend_from_slice(bytes);
        while let Ok(Some(_)) = reader.next_frame() {}
    });
}

#[test]
fn a_frame_with_any_payload_is_parsed_or_refused_within_its_bounds() {
    ::fuzz::check(&[], |payload: &[u8]| {
        for kind in 64..=77_u8 {
            let mut reader = FrameReader::default();
            let length = u32::try_from(payload.len() + 5).expect("short");
            reader.buffer.extend_from_slice(&length.to_le_bytes());
            reader.buffer.extend_from_slice(&[kind, 7, 0, 0, 0]);
            reader.buffer.extend_from_slice(payload);
            reader.buffer.extend_from_slice(b"next");
            let read = reader.next_frame();
            assert_ne!(read, Ok(None), "the frame is complete");
            assert!(read.is_err() || &*reader.buffer == b"next");
        }
    });
}

#[test]
fn an_answer_with_any_headers_is_converted_or_refused() {
    let words = &["{", "}", "\"", ":", ",", "[", "]", "null", "location", "set-cookie", "/", "\\n", "1e9"];
    ::fuzz::check(words, |text: &[u8]| {
        let answer =
            HandlerAnswer { status: 200, headers: Bytes::copy_from_slice(text), ..HandlerAnswer::default() };
        if let Ok(reply) = crate::http_message::handler_reply::HandlerReply::from_answer(answer) {
            reply.into_response("/shop", false);
        }
    });
}
