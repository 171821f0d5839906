//! Fuzzing of a worker's connection: see `fuzz/src/lib.rs`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ::fuzz::ByteChoices;
use ::fuzz::generate::worker;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::connection::{WorkerConnection, WorkerEvent};
use super::worker::{RunEvent, ScriptWorker, WorkerSlot};
use crate::frame::{FrameReader, HandlerAnswer, OutgoingBytes, WorkerMessage};
use crate::http_message::handler_reply::HandlerReply;
use crate::state::fuzz::check_change_set;

/// Parses a stream; returns the frames, and whether a protocol error follows them.
fn parse_stream(pieces: &[&[u8]]) -> (Vec<(u32, WorkerMessage)>, bool) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for piece in pieces {
        reader.buffer.extend_from_slice(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Splits bytes at these positions.
fn split_at_cuts<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut places = [&[0, bytes.len()], cuts].concat();
    places.sort_unstable();
    places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

/// Returns all messages that a run has received.
async fn drain_events(slot: &WorkerSlot) -> Vec<WorkerMessage> {
    let mut events = Vec::new();
    poll_fn(|context| {
        while let Poll::Ready(event) = slot.poll_event(context) {
            if let RunEvent::Message(from) = event {
                events.push(from);
            }
        }
        Poll::Ready(())
    })
    .await;
    events
}

/// Processes a frame like its run.
fn process_frame(from: &WorkerMessage) {
    let answer = |answer: &HandlerAnswer| {
        for is_head in [false, true] {
            if let Ok(reply) = HandlerReply::from_answer(answer.clone()) {
                let response = reply.into_response("/shop", is_head);
                assert!(!response.status().is_informational(), "{answer:?}");
                assert!(!response.headers().contains_key("transfer-encoding"), "{answer:?}");
            }
        }
    };
    match from {
        WorkerMessage::Answer(it) => answer(it),
        WorkerMessage::Commit { changes } => check_change_set(changes),
        WorkerMessage::End { answer: it, changes, .. } => {
            it.iter().for_each(answer);
            changes.iter().for_each(check_change_set);
        }
        WorkerMessage::Declare(declare) => check_change_set(&declare.initial),
        WorkerMessage::Long(frame) => drop(frame.clone().parse().inspect(process_frame)),
        _ => {}
    }
}

#[test]
fn arbitrary_frames_reach_their_runs_in_order_or_end_the_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    ::fuzz::run("worker_frames", &[], |bytes| {
        let mut choices = ByteChoices::new(bytes);
        let (stream, cuts) = worker::worker_output(&mut choices, &[1, 2]);
        let pieces = split_at_cuts(&stream, &cuts);
        let (frames, is_wrong) = parse_stream(&[&stream]);
        assert_eq!(parse_stream(&pieces), (frames.clone(), is_wrong), "in pieces");
        frames.iter().for_each(|(_, from)| process_frame(from));
        runtime.block_on(async {
            let worker = ScriptWorker::new(1, &"a".into(), None);
            let slots = [(); 2].map(|()| worker.acquire_slot().expect("a live worker"));
            let (mut ours, stream) = UnixStream::pair().unwrap();
            let (news, mut told) = mpsc::unbounded_channel();
            let (reader, writing) = (FrameReader::default(), OutgoingBytes::default());
            let link = WorkerConnection {
                worker: Arc::clone(&worker),
                stream,
                reader,
                writing,
                has_yielded: false,
                events: news,
            };
            let serving = tokio::spawn(link.serve());
            for piece in pieces {
                // The other end may have closed the connection.
                let _ = ours.write_all(piece).await;
            }
            drop(ours);
            let _ = serving.await.expect("no panic");
            for slot in &slots {
                let until_loss = frames.iter().take_while(|(_, from)| !ends_worker(from));
                let of_run = until_loss.filter(|(run, from)| *run == slot.run && !is_worker_event(from));
                let expected: Vec<WorkerMessage> = of_run.map(|(_, from)| from.clone()).collect();
                assert_eq!(drain_events(slot).await, expected);
            }
            while let Ok((_, news)) = told.try_recv() {
                assert!(matches!(news, WorkerEvent::Loaded | WorkerEvent::Damaged { .. }), "{news:?}");
            }
        });
    });
}

/// Whether a frame is the last one of its worker.
fn ends_worker(from: &WorkerMessage) -> bool {
    matches!(from, WorkerMessage::Damaged { .. })
        || matches!(from, WorkerMessage::Fail(fail) if fail.is_damage())
}

/// Whether a frame is not delivered to a run.
fn is_worker_event(from: &WorkerMessage) -> bool {
    matches!(
        from,
        WorkerMessage::Ready
            | WorkerMessage::Broken { .. }
            | WorkerMessage::Log { .. }
            | WorkerMessage::Hello { .. }
            | WorkerMessage::Stuck { .. }
    )
}
