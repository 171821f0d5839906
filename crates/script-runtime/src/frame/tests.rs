//! Frames in both directions, split at any position.

use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Answer, Call, From, Kind, LONGEST, Out, Outcome, Payload, Reader};

/// Returns a frame as a worker writes it.
fn frame(kind: u8, run: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_u32_le(u32::try_from(payload.len() + 5).expect("short"));
    frame.put_u8(kind);
    frame.put_u32_le(run);
    frame.put_slice(payload);
    frame
}

fn text(text: &str) -> Vec<u8> {
    let mut out = u32::try_from(text.len()).expect("short").to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

fn call() -> (Vec<u8>, From) {
    let mut payload = Vec::new();
    payload.put_u32_le(3);
    payload.put_u32_le(1);
    payload.put_slice(&[1, 2]);
    payload.extend(text("/x"));
    payload.extend(text("{}"));
    payload.put_u8(4);
    payload.extend(text("body"));
    let body = Payload { kind: Kind::AsciiText, bytes: Bytes::from_static(b"body") };
    let (url, query) = ("/x".to_owned(), Bytes::from_static(b"{}"));
    (
        frame(67, 9, &payload),
        From::Call(Call { number: 3, site: 1, passes: true, is_unread: false, method: 2, url, query, body }),
    )
}

#[test]
fn frames_that_arrive_in_pieces_are_reassembled() {
    let (bytes, expected) = call();
    let two = [bytes.clone(), bytes].concat();
    for cut in 0..two.len() {
        let mut reader = Reader::default();
        let mut read = Vec::new();
        for piece in [&two[..cut], &two[cut..]] {
            reader.buffer.extend_from_slice(piece);
            while let Some(next) = reader.next().expect("frames") {
                read.push(next);
            }
        }
        assert_eq!(read, [(9, expected.clone()), (9, expected.clone())], "cut at {cut}");
    }
}

#[test]
fn invalid_frames_are_refused() {
    let wrong = |bytes: &[u8]| {
        let mut reader = Reader::default();
        reader.buffer.extend_from_slice(bytes);
        reader.next().is_err()
    };
    assert!(wrong(&frame(1, 0, b"")), "only the gateway sends LOAD");
    assert!(wrong(&frame(74, 0, b"more")), "a PONG has no payload");
    assert!(wrong(&frame(69, 0, &9_u32.to_le_bytes())), "nine missing bytes");
    assert!(wrong(&4_u32.to_le_bytes()), "too short for type and run");
    assert!(wrong(&u32::try_from(LONGEST + 1).expect("a length").to_le_bytes()));
}

#[test]
fn a_long_frame_reserves_no_memory_before_it_arrives() {
    let mut reader = Reader::default();
    reader.buffer.put_u32_le(u32::try_from(LONGEST).expect("a length"));
    assert_eq!(reader.next(), Ok(None));
    assert!(reader.buffer.capacity() < 1 << 20, "{} bytes", reader.buffer.capacity());
}

#[test]
fn an_end_has_an_answer_or_changes_or_neither() {
    let read = |payload: &[u8]| {
        let mut reader = Reader::default();
        reader.buffer.extend_from_slice(&frame(71, 1, payload));
        reader.next().expect("a frame").expect("a complete frame").1
    };
    let nothing = [&[4][..], &5_u32.to_le_bytes()].concat();
    assert_eq!(read(&nothing), From::End { answer: None, changes: None, cpu_micros: 5 });
    let mut both = vec![3, 200, 0];
    both.extend(text(""));
    both.push(0);
    both.extend(text(""));
    both.extend(text("[]"));
    both.extend(5_u32.to_le_bytes());
    let answer = Answer { status: 200, ..Answer::default() };
    let changes = Some(Bytes::from_static(b"[]"));
    assert_eq!(read(&both), From::End { answer: Some(answer), changes, cpu_micros: 5 });
}

/// Writes all slices in steps of this size; returns the bytes.
fn written(out: &mut Out, step: usize) -> Vec<u8> {
    let mut all = BytesMut::new();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = out.slices(&mut slices);
        let offered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
        let count = step.min(offered.len());
        assert!(count > 0, "there are slices while bytes are pending");
        all.extend_from_slice(&offered[..count]);
        out.written(count);
    }
    all.to_vec()
}

#[test]
fn partial_writes_produce_the_same_bytes() {
    let say = |out: &mut Out| {
        out.ping(1);
        out.done(2, 3, &Outcome::Ok, Payload::text(Bytes::from(vec![b'x'; 10_000])));
        out.done(2, 4, &Outcome::Failed(502, "no".into()), Payload::default());
        out.state(5, super::StateKind::Whole, 6, Bytes::from(vec![b'y'; 5000]));
        out.cancel(7);
    };
    let mut out = Out::default();
    say(&mut out);
    let whole = written(&mut out, usize::MAX);
    for step in [1, 7, 4096, 9999] {
        let mut out = Out::default();
        say(&mut out);
        assert_eq!(written(&mut out, step), whole, "steps of {step}");
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
