//! The connection of a worker: a single task reads and writes it.
//!
//! The task is polled when it can read or when frames are queued. The sender of a frame wakes it, often
//! together with other tasks, so it first yields to all tasks that are ready and then writes all queued
//! frames at once. This saves system calls on both sides, and the worker does not compete with the senders
//! for the processor.

use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use services::coop::TURN_BYTES;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::worker::{ProgramLoadStatus, ScriptWorker, WorkerLoss};
use crate::frame::{FrameReader, OutgoingBytes, WorkerMessage};

/// Buffer space for one read.
const READ_BUFFER: usize = 64 << 10;
/// The maximum number of parts in one write.
const MAX_WRITE_PARTS: usize = 64;

/// A connection, with the bytes that are already read.
pub(super) struct WorkerConnection {
    pub(super) worker: Arc<ScriptWorker>,
    pub(super) stream: UnixStream,
    pub(super) reader: FrameReader,
    /// The bytes being written, swapped with the queue, so that senders never wait for a system call.
    pub(super) writing: OutgoingBytes,
    /// Whether the task has yielded to others.
    pub(super) has_yielded: bool,
    /// The channel for messages to the supervisor.
    pub(super) events: SupervisorSender,
}

/// The sender of messages to the supervisor, each with its worker.
pub(super) type SupervisorSender = mpsc::UnboundedSender<(Arc<ScriptWorker>, WorkerEvent)>;

/// An event of a worker that is not about the result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerEvent {
    /// A program is ready or broken.
    Loaded,
    /// Code of a handler damaged the worker after its run had ended; of an unknown one, if the program is 0.
    Damaged { program: u32, handler: usize },
    /// A run has kept the worker busy for this time.
    Stuck { run: u32, millis: u32 },
    /// The worker has ended.
    Ended { is_failed_start: bool },
}

/// Waits for the HELLO of a worker; returns the name of its engine.
pub(super) async fn read_hello(stream: &mut UnixStream) -> Option<(FrameReader, String)> {
    let mut reader = FrameReader::default();
    loop {
        if let Some((_, from)) = reader.next_frame().ok()? {
            let WorkerMessage::Hello { engine, .. } = from else { return None };
            return Some((reader, engine));
        }
        if stream.read_buf(&mut reader.buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Forwards the reports of a worker's watchdog until its connection ends.
pub(super) async fn forward_reports(
    worker: &Arc<ScriptWorker>,
    mut stream: UnixStream,
    news: &SupervisorSender,
) {
    let mut reader = FrameReader::default();
    loop {
        match reader.next_frame() {
            Ok(Some((run, WorkerMessage::Stuck { millis }))) => {
                let _ = news.send((Arc::clone(worker), WorkerEvent::Stuck { run, millis })); // It may have ended.
            }
            Ok(Some(_)) => {}
            Ok(None) => match stream.read_buf(&mut reader.buffer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

impl WorkerConnection {
    /// Reads and writes until the connection ends; returns the reason.
    pub(super) async fn serve(mut self) -> String {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        end.map_or_else(
            |error| format!("its connection: {error}"),
            |()| "it closed its connection".to_owned(),
        )
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.worker.waker.register(context.waker());
        if self.worker.is_lost() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(end) = self.poll_read(context)? {
            return Poll::Ready(Ok(end));
        }
        if !self.has_yielded && self.writing.is_empty() && !self.worker.lock_outgoing().is_empty() {
            self.has_yielded = true;
            context.waker().wake_by_ref(); // After all tasks that are ready already.
            return Poll::Pending;
        }
        self.has_yielded = false;
        match self.poll_write(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut received = 0;
        while received < TURN_BYTES {
            self.dispatch_frames()?;
            if self.worker.has_backlog() {
                return Poll::Pending; // A run that takes a long frame wakes the connection.
            }
            let buffer = &mut self.reader.buffer;
            if buffer.capacity() - buffer.len() < READ_BUFFER / 4 {
                buffer.reserve(READ_BUFFER);
            }
            let mut room = buffer.limit(READ_BUFFER);
            match ready!(pin!(self.stream.read_buf(&mut room)).poll(context))? {
                0 => return Poll::Ready(Ok(())),
                count => received += count,
            }
        }
        self.dispatch_frames()?;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut sent = 0;
        while sent < TURN_BYTES {
            if self.writing.is_empty() {
                std::mem::swap(&mut self.writing, &mut self.worker.lock_outgoing());
            }
            if self.writing.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut slices = [IoSlice::new(&[]); MAX_WRITE_PARTS];
            let filled = self.writing.fill_slices(&mut slices);
            match self.stream.try_write_vectored(slices.get(..filled).unwrap_or_default()) {
                Ok(count) => {
                    self.writing.advance(count);
                    sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Dispatches all complete frames to their runs.
    fn dispatch_frames(&mut self) -> io::Result<()> {
        loop {
            let next = self
                .reader
                .next_frame()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let Some((run, from)) = next else { return Ok(()) };
            self.worker.activity.fetch_add(1, Relaxed);
            match from {
                WorkerMessage::Ready => self.report_loaded(run, ProgramLoadStatus::Ready),
                WorkerMessage::Broken { message, stack } => {
                    self.report_loaded(run, ProgramLoadStatus::Broken { message, stack })
                }
                WorkerMessage::Log { level, text } => log_line(&self.worker, level, &text),
                WorkerMessage::Long(frame) if let Some((level, text)) = frame.log_line() => {
                    log_line(&self.worker, level, &format!("{text}…"));
                }
                WorkerMessage::Hello { .. } | WorkerMessage::Stuck { .. } => {}
                WorkerMessage::Fail(fail) if fail.is_damage() => {
                    self.worker.mark_lost(WorkerLoss::from_damage(run, Some(fail)))
                }
                WorkerMessage::Damaged { handler } => self.report_damage(run, handler.into()),
                from => self.worker.deliver(run, from),
            }
        }
    }

    /// Ends the worker, and records the damage for the handler; its run, which has ended, does not fail.
    fn report_damage(&self, program: u32, handler: usize) {
        // The supervisor may have ended.
        let _ = self.events.send((Arc::clone(&self.worker), WorkerEvent::Damaged { program, handler }));
        self.worker.mark_lost(WorkerLoss::from_damage(0, None));
    }

    fn report_loaded(&self, program: u32, loaded: ProgramLoadStatus) {
        self.worker.set_load_status(program, loaded);
        let _ = self.events.send((Arc::clone(&self.worker), WorkerEvent::Loaded)); // The supervisor may have ended.
    }
}

/// Logs a line of a script or of its worker.
pub(super) fn log_line(worker: &ScriptWorker, level: u8, text: &str) {
    let (script, worker) = (&*worker.script, worker.id);
    match level {
        0 => tracing::debug!(target: "script", script, worker, "{text}"),
        1 => tracing::info!(target: "script", script, worker, "{text}"),
        2 => tracing::warn!(target: "script", script, worker, "{text}"),
        _ => tracing::error!(target: "script", script, worker, "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::io::AsyncWriteExt;

    use super::super::worker::{MAX_BACKLOG, RunEvent, WorkerSlot};
    use super::*;

    #[tokio::test]
    async fn a_poll_reads_a_limited_number_of_bytes() {
        const PONG: [u8; 9] = [5, 0, 0, 0, 74, 0, 0, 0, 0];
        let (ours, stream) = UnixStream::pair().unwrap();
        ours.writable().await.unwrap();
        let pongs = PONG.repeat(1 << 17);
        let mut sent = 0;
        while let Ok(count) = ours.try_write(&pongs[sent..]) {
            sent += count;
        }
        assert!(sent > TURN_BYTES + READ_BUFFER, "the socket takes only {sent} bytes");
        let worker = ScriptWorker::new(1, &"a".into(), None);
        let (reader, writing, events) =
            (FrameReader::default(), OutgoingBytes::default(), mpsc::unbounded_channel().0);
        let mut link = WorkerConnection {
            worker: Arc::clone(&worker),
            stream,
            reader,
            writing,
            has_yielded: false,
            events,
        };
        let (mut before, mut most) = (0, 0);
        poll_fn(|context| {
            assert!(link.poll(context).is_pending(), "the connection is open");
            let frames = worker.activity.load(Relaxed) as usize;
            most = most.max(frames - before);
            before = frames;
            if frames == sent / PONG.len() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert!(most * PONG.len() <= TURN_BYTES + READ_BUFFER, "{most} frames in one poll");
    }

    #[tokio::test]
    async fn a_hello_with_the_id_of_another_worker_changes_nothing() {
        let frame = |kind: u8, run: u32, payload: &[u8]| {
            let length = u32::try_from(5 + payload.len()).unwrap();
            [&length.to_le_bytes()[..], &[kind], &run.to_le_bytes(), payload].concat()
        };
        let workers = [1, 2].map(|id| ScriptWorker::new(id, &"a".into(), None));
        let slots = workers.each_ref().map(|worker| worker.acquire_slot().expect("a live worker"));
        assert_eq!(slots[0].run, slots[1].run);
        let of_other = frame(64, 0, &[2, 0, 0, 0, 4, 0, 0, 0, b'n', b'o', b'd', b'e']);
        let (mut ours, mut stream) = UnixStream::pair().unwrap();
        let (ready, pong) = (frame(65, 7, &[]), frame(74, slots[0].run, &[]));
        let frames = [of_other.clone(), of_other.clone(), ready, of_other, pong];
        ours.write_all(&frames.concat()).await.unwrap();
        drop(ours);
        let (reader, engine) = read_hello(&mut stream).await.expect("a HELLO");
        assert_eq!(engine, "node");
        let (events, mut told) = mpsc::unbounded_channel();
        let (worker, writing) = (Arc::clone(&workers[0]), OutgoingBytes::default());
        let link = WorkerConnection { worker, stream, reader, writing, has_yielded: false, events };
        assert_eq!(link.serve().await, "it closed its connection");
        let told: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        let told: Vec<_> = told.iter().map(|(worker, news)| (worker.id, *news)).collect();
        assert_eq!(told, [(1, WorkerEvent::Loaded)]);
        assert_eq!(
            workers.each_ref().map(|worker| worker.load_status(7)),
            [ProgramLoadStatus::Ready, ProgramLoadStatus::NotLoaded]
        );
        assert_eq!(workers[1].activity.load(Relaxed), 0);
        let mut context = Context::from_waker(Waker::noop());
        let mut next = |slot: &WorkerSlot| slot.poll_event(&mut context);
        assert!(matches!(next(&slots[0]), Poll::Ready(RunEvent::Message(WorkerMessage::Pong))));
        assert!(slots.iter().all(|worker_slot| next(worker_slot).is_pending()));
    }

    #[tokio::test]
    async fn reads_no_more_long_frames_than_runs_take() {
        const PAYLOAD: usize = 1 << 20;
        const COUNT: usize = 3 * MAX_BACKLOG / PAYLOAD;
        let (mut ours, stream) = UnixStream::pair().unwrap();
        let worker = ScriptWorker::new(1, &"a".into(), None);
        let slot = worker.acquire_slot().expect("a live worker");
        let mut frame = u32::try_from(5 + PAYLOAD).unwrap().to_le_bytes().to_vec();
        frame.push(69);
        frame.extend(slot.run.to_le_bytes());
        frame.resize(frame.len() + PAYLOAD, 0);
        let sending = tokio::spawn(async move {
            for _ in 0..COUNT {
                ours.write_all(&frame).await.unwrap();
            }
            ours
        });
        let (reader, writing, events) =
            (FrameReader::default(), OutgoingBytes::default(), mpsc::unbounded_channel().0);
        let mut link = WorkerConnection {
            worker: Arc::clone(&worker),
            stream,
            reader,
            writing,
            has_yielded: false,
            events,
        };
        let mut taken = 0;
        poll_fn(|context| {
            assert!(link.poll(context).is_pending(), "the connection is open");
            assert!(worker.backlog.load(Relaxed) <= MAX_BACKLOG + 2 * PAYLOAD, "{taken} frames were taken");
            if worker.has_backlog() || taken + worker.backlog.load(Relaxed) / PAYLOAD == COUNT {
                while let Poll::Ready(event) = slot.poll_event(context) {
                    assert!(matches!(event, RunEvent::Message(WorkerMessage::Long(_))));
                    taken += 1;
                }
            }
            if taken == COUNT { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(sending.await.unwrap());
    }
}
