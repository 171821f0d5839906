//! Frames in both directions, split at any position.

use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    CallReply, FramePayload, FrameReader, HandlerAnswer, MAX_FRAME_LENGTH, OutgoingBytes, PayloadKind,
    ResourceCall, WorkerMessage,
};

/// Returns a frame as a worker writes it.
fn encode_frame(kind: u8, run: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_u32_le(u32::try_from(payload.len() + 5).expect("short"));
    frame.put_u8(kind);
    frame.put_u32_le(run);
    frame.put_slice(payload);
    frame
}

fn encode_text(text: &str) -> Vec<u8> {
    let mut out = u32::try_from(text.len()).expect("short").to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

fn call_frame() -> (Vec<u8>, WorkerMessage) {
    let mut payload = Vec::new();
    payload.put_u32_le(3);
    payload.put_u32_le(1);
    payload.put_slice(&[1, 2]);
    payload.extend(encode_text("/x"));
    payload.extend(encode_text("{}"));
    payload.put_u8(4);
    payload.extend(encode_text("body"));
    let body = FramePayload { kind: PayloadKind::AsciiText, bytes: Bytes::from_static(b"body") };
    let (url, query) = ("/x".to_owned(), Bytes::from_static(b"{}"));
    (
        encode_frame(67, 9, &payload),
        WorkerMessage::Call(ResourceCall {
            number: 3,
            site: 1,
            passes_through: true,
            is_unread: false,
            method: 2,
            url,
            query,
            body,
        }),
    )
}

#[test]
fn frames_that_arrive_in_pieces_are_reassembled() {
    let (bytes, expected) = call_frame();
    let two = [bytes.clone(), bytes].concat();
    for cut in 0..two.len() {
        let mut reader = FrameReader::default();
        let mut read = Vec::new();
        for piece in [&two[..cut], &two[cut..]] {
            reader.buffer.extend_from_slice(piece);
            while let Some(next) = reader.next_frame().expect("frames") {
                read.push(next);
            }
        }
        assert_eq!(read, [(9, expected.clone()), (9, expected.clone())], "cut at {cut}");
    }
}

#[test]
fn invalid_frames_are_refused() {
    let wrong = |bytes: &[u8]| {
        let mut reader = FrameReader::default();
        reader.buffer.extend_from_slice(bytes);
        reader.next_frame().is_err()
    };
    assert!(wrong(&encode_frame(1, 0, b"")), "only the gateway sends LOAD");
    assert!(wrong(&encode_frame(74, 0, b"more")), "a PONG has no payload");
    assert!(wrong(&encode_frame(69, 0, &9_u32.to_le_bytes())), "nine missing bytes");
    assert!(wrong(&4_u32.to_le_bytes()), "too short for type and run");
    assert!(wrong(&u32::try_from(MAX_FRAME_LENGTH + 1).expect("a length").to_le_bytes()));
}

#[test]
fn a_long_frame_reserves_no_memory_before_it_arrives() {
    let mut reader = FrameReader::default();
    reader.buffer.put_u32_le(u32::try_from(MAX_FRAME_LENGTH).expect("a length"));
    assert_eq!(reader.next_frame(), Ok(None));
    assert!(reader.buffer.capacity() < 1 << 20, "{} bytes", reader.buffer.capacity());
}

#[test]
fn an_end_has_an_answer_or_changes_or_neither() {
    let read = |payload: &[u8]| {
        let mut reader = FrameReader::default();
        reader.buffer.extend_from_slice(&encode_frame(71, 1, payload));
        reader.next_frame().expect("a frame").expect("a complete frame").1
    };
    let nothing = [&[4][..], &5_u32.to_le_bytes()].concat();
    assert_eq!(read(&nothing), WorkerMessage::End { answer: None, changes: None, cpu_micros: 5 });
    let mut both = vec![3, 200, 0];
    both.extend(encode_text(""));
    both.push(0);
    both.extend(encode_text(""));
    both.extend(encode_text("[]"));
    both.extend(5_u32.to_le_bytes());
    let answer = HandlerAnswer { status: 200, ..HandlerAnswer::default() };
    let changes = Some(Bytes::from_static(b"[]"));
    assert_eq!(read(&both), WorkerMessage::End { answer: Some(answer), changes, cpu_micros: 5 });
}

#[test]
fn a_long_frame_stays_in_pieces_until_it_is_parsed() {
    let body = "x".repeat(1 << 20);
    let mut payload = 200_u16.to_le_bytes().to_vec();
    payload.extend(encode_text(""));
    payload.put_u8(4);
    payload.extend(encode_text(&body));
    let answer = encode_frame(68, 9, &payload);
    let mut reader = FrameReader::default();
    let mut read = Vec::new();
    for piece in [answer.clone(), call_frame().0, answer].concat().chunks(10_000) {
        reader.buffer.extend_from_slice(piece);
        assert!(reader.buffer.capacity() <= 256 << 10, "{} bytes", reader.buffer.capacity());
        while let Some(next) = reader.next_frame().expect("frames") {
            read.push(next);
        }
    }
    let body = FramePayload { kind: PayloadKind::AsciiText, bytes: body.into() };
    let expected = WorkerMessage::Answer(HandlerAnswer { status: 200, headers: Bytes::new(), body });
    let [(9, WorkerMessage::Long(first)), (9, WorkerMessage::Call(_)), (9, WorkerMessage::Long(second))] =
        &read[..]
    else {
        panic!("{} frames", read.len())
    };
    for long in [first, second] {
        assert!(long.pieces() > 8, "{} pieces", long.pieces());
        assert_eq!(long.clone().parse(), Ok(expected.clone()));
    }
}

#[test]
fn an_invalid_long_frame_is_refused_when_it_is_parsed() {
    let mut reader = FrameReader::default();
    reader.buffer.extend_from_slice(&encode_frame(69, 1, &vec![0; 1 << 20]));
    let Ok(Some((1, WorkerMessage::Long(long)))) = reader.next_frame() else { panic!("not a long frame") };
    assert!(long.parse().is_err(), "an empty change set with extra bytes");
}

#[test]
fn only_the_beginning_of_a_long_log_line_is_logged() {
    let mut reader = FrameReader::default();
    let line = [&[2][..], &encode_text(&"é".repeat(1 << 20))].concat();
    reader.buffer.extend_from_slice(&encode_frame(73, 1, &line));
    let Ok(Some((1, WorkerMessage::Long(long)))) = reader.next_frame() else { panic!("not a long frame") };
    assert_eq!(long.log_line(), Some((2, "é".repeat(4096))));
}

#[test]
fn long_messages_and_stacks_are_cut() {
    let (message, frames) = ("é".repeat(10_000), "    at f (shop.sjs:3:7)\n");
    let mut payload = vec![0; 7];
    payload.extend(encode_text(&message));
    payload.extend(encode_text(&format!("Error: {message}\n{frames}")));
    let mut reader = FrameReader::default();
    reader.buffer.extend_from_slice(&encode_frame(72, 1, &payload));
    let Ok(Some((1, WorkerMessage::Fail(fail)))) = reader.next_frame() else { panic!("not a failure") };
    assert_eq!(fail.message, "é".repeat(4096));
    assert!(fail.stack.len() <= 16 << 10 && fail.stack.ends_with(frames));
}

#[test]
fn many_small_frames_do_not_form_one_growing_buffer() {
    let mut out = OutgoingBytes::default();
    for run in 0..300 {
        out.put_call_result(run, 1, &CallReply::Failed(502, "x".repeat(1000)), FramePayload::default());
    }
    let mut slices = [IoSlice::new(&[]); 16];
    let filled = out.fill_slices(&mut slices);
    assert!(filled >= 4 && slices.iter().all(|slice| slice.len() < 128 << 10), "{filled} slices");
}

#[test]
fn change_sets_are_sent_as_one_array_and_large_ones_are_not_copied() {
    let large = Bytes::from(format!("[[0,[],\"{}\"]]", "x".repeat(10_000)));
    let mut out = OutgoingBytes::default();
    out.put_changes(5, 6, vec![Bytes::from_static(b"[]"), large.clone(), Bytes::from_static(b"[]")]);
    let mut slices = [IoSlice::new(&[]); 4];
    let filled = out.fill_slices(&mut slices);
    assert!(slices[..filled].iter().any(|slice| slice.as_ptr() == large.as_ptr()));
    let all = write_all(&mut out, usize::MAX);
    let array = [b"[[],", &large[..], b",[]]"].concat();
    let mut expected = vec![1];
    expected.extend(6_u64.to_le_bytes());
    expected.put_u32_le(u32::try_from(array.len()).expect("short"));
    expected.extend(array);
    assert_eq!(all, encode_frame(4, 5, &expected));
}

/// Writes all slices in steps of this size; returns the bytes.
fn write_all(out: &mut OutgoingBytes, step: usize) -> Vec<u8> {
    let mut all = BytesMut::new();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = out.fill_slices(&mut slices);
        let offered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
        let count = step.min(offered.len());
        assert!(count > 0, "there are slices while bytes are pending");
        all.extend_from_slice(&offered[..count]);
        out.advance(count);
    }
    all.to_vec()
}

#[test]
fn partial_writes_produce_the_same_bytes() {
    let say = |out: &mut OutgoingBytes| {
        out.put_ping(1);
        out.put_call_result(2, 3, &CallReply::Ok, FramePayload::text(Bytes::from(vec![b'x'; 10_000])));
        out.put_call_result(2, 4, &CallReply::Failed(502, "no".into()), FramePayload::default());
        out.put_state(5, super::StateKind::Full, 6, Bytes::from(vec![b'y'; 5000]));
        out.put_cancel(7);
    };
    let mut out = OutgoingBytes::default();
    say(&mut out);
    let whole = write_all(&mut out, usize::MAX);
    for step in [1, 7, 4096, 9999] {
        let mut out = OutgoingBytes::default();
        say(&mut out);
        assert_eq!(write_all(&mut out, step), whole, "steps of {step}");
    }
    let mut rest = &whole[..];
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let length = rest.get_u32_le() as usize;
        kinds.push(rest[0]);
        rest.advance(length);
    }
    assert_eq!(kinds, [8, 6, 6, 4, 7], "each frame's length is correct");
}
