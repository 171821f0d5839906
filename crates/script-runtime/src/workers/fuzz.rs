//! Fuzzing of a worker's connection: see `fuzz/src/lib.rs`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ::fuzz::ByteChoices;
use ::fuzz::generate::worker;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::link::{WorkerConnection, WorkerEvent};
use super::worker::{RunEvent, ScriptWorker, WorkerSlot};
use crate::answer::HandlerReply;
use crate::frame::{FrameReader, HandlerAnswer, OutgoingBytes, WorkerMessage};
use crate::state::fuzz::keeps_values_whole;

/// Parses a stream; returns the frames, and whether a protocol error follows them.
fn read(pieces: &[&[u8]]) -> (Vec<(u32, WorkerMessage)>, bool) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for piece in pieces {
        reader.buffer.extend_from_slice(piece);
        loop {
            match reader.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Splits bytes at these positions.
fn cut<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut places = [&[0, bytes.len()], cuts].concat();
    places.sort_unstable();
    places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

/// Returns all messages that a run has received.
async fn events(place: &WorkerSlot) -> Vec<WorkerMessage> {
    let mut events = Vec::new();
    poll_fn(|context| {
        while let Poll::Ready(event) = place.poll_event(context) {
            if let RunEvent::From(from) = event {
                events.push(from);
            }
        }
        Poll::Ready(())
    })
    .await;
    events
}

/// Processes a frame like its run.
fn used(from: &WorkerMessage) {
    let answer = |answer: &HandlerAnswer| {
        for is_head in [false, true] {
            if let Ok(reply) = HandlerReply::of(answer.clone()) {
                let response = reply.respond("/shop", is_head);
                assert!(!response.status().is_informational(), "{answer:?}");
                assert!(!response.headers().contains_key("transfer-encoding"), "{answer:?}");
            }
        }
    };
    match from {
        WorkerMessage::Answer(it) => answer(it),
        WorkerMessage::Commit { changes } => keeps_values_whole(changes),
        WorkerMessage::End { answer: it, changes, .. } => {
            it.iter().for_each(answer);
            changes.iter().for_each(keeps_values_whole);
        }
        WorkerMessage::Declare(declare) => keeps_values_whole(&declare.initial),
        WorkerMessage::Long(frame) => drop(frame.clone().parse().inspect(used)),
        _ => {}
    }
}

#[test]
fn arbitrary_frames_reach_their_runs_in_order_or_end_the_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    ::fuzz::run("worker_frames", &[], |bytes| {
        let mut choices = ByteChoices::new(bytes);
        let (stream, cuts) = worker::stream(&mut choices, &[1, 2]);
        let pieces = cut(&stream, &cuts);
        let (frames, is_wrong) = read(&[&stream]);
        assert_eq!(read(&pieces), (frames.clone(), is_wrong), "in pieces");
        frames.iter().for_each(|(_, from)| used(from));
        runtime.block_on(async {
            let worker = ScriptWorker::new(1, &"a".into(), None);
            let places = [(); 2].map(|()| worker.place().expect("a live worker"));
            let (mut ours, stream) = UnixStream::pair().unwrap();
            let (news, mut told) = mpsc::unbounded_channel();
            let (reader, writing) = (FrameReader::default(), OutgoingBytes::default());
            let link = WorkerConnection {
                worker: Arc::clone(&worker),
                stream,
                reader,
                writing,
                has_waited: false,
                news,
            };
            let serving = tokio::spawn(link.serve());
            for piece in pieces {
                // The other end may have closed the connection.
                let _ = ours.write_all(piece).await;
            }
            drop(ours);
            let _ = serving.await.expect("no panic");
            for place in &places {
                let until_loss = frames.iter().take_while(|(_, from)| !ends_worker(from));
                let of_run = until_loss.filter(|(run, from)| *run == place.run && !is_news(from));
                let expected: Vec<WorkerMessage> = of_run.map(|(_, from)| from.clone()).collect();
                assert_eq!(events(place).await, expected);
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
fn is_news(from: &WorkerMessage) -> bool {
    matches!(
        from,
        WorkerMessage::Ready
            | WorkerMessage::Broken { .. }
            | WorkerMessage::Log { .. }
            | WorkerMessage::Hello { .. }
            | WorkerMessage::Stuck { .. }
    )
}
