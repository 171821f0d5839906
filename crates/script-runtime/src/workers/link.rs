//! A worker's connection: one task reads what it says and writes what it is told.
//!
//! It is polled when there is something to read or to write. Whoever has something to say wakes it, and is seldom alone:
//! so it lets all others that could go on do so first, and then writes what has come together. Many frames, one system
//! call, and one for the worker that reads them, which would otherwise take the processor from those who write.

use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::worker::{Loaded, Worker};
use crate::frame::{From, Out, Reader};

/// Room for what is read at once.
const READ: usize = 64 << 10;
/// As many parts are written at once.
const PARTS: usize = 64;
/// As often it is read in a turn; then others have theirs.
const TURNS: usize = 16;

/// A connection, and what was read of it already.
pub(super) struct Link {
    pub(super) worker: Arc<Worker>,
    pub(super) stream: UnixStream,
    pub(super) reader: Reader,
    /// What is being written: taken whole, so that nobody waits for a system call who has something to say.
    pub(super) writing: Out,
    /// Whether it has let others go first.
    pub(super) has_waited: bool,
    /// What is told of a program or of a run that keeps it busy.
    pub(super) news: Tell,
}

/// Where news go, with whom they are of.
pub(super) type Tell = mpsc::UnboundedSender<(Arc<Worker>, News)>;

/// What a worker says that is no run's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A program is ready, or broken.
    Loaded,
    /// A run has kept it busy for so long.
    Stuck { run: u32, millis: u32 },
    /// It is gone, so long after it began.
    Gone { after: Duration },
}

/// Waits until a worker says on which engine it runs.
pub(super) async fn hello(stream: &mut UnixStream) -> Option<(Reader, String)> {
    let mut reader = Reader::default();
    loop {
        if let Some((_, from)) = reader.next().ok()? {
            let From::Hello { engine, .. } = from else { return None };
            return Some((reader, engine));
        }
        if stream.read_buf(&mut reader.buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Hears what a worker's watchdog says, until it ends.
pub(super) async fn hear(worker: &Arc<Worker>, mut stream: UnixStream, news: &Tell) {
    let mut reader = Reader::default();
    loop {
        match reader.next() {
            Ok(Some((run, From::Stuck { millis }))) => {
                let _ = news.send((Arc::clone(worker), News::Stuck { run, millis })); // Nobody listens at the end.
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

impl Link {
    /// Reads and writes until the connection ends, and says why.
    pub(super) async fn serve(mut self) -> String {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        end.map_or_else(
            |error| format!("its connection: {error}"),
            |()| "it closed its connection".to_owned(),
        )
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.worker.waker.register(context.waker());
        if self.worker.is_gone() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(end) = self.read(context)? {
            return Poll::Ready(Ok(end));
        }
        if !self.has_waited && self.writing.is_empty() && !self.worker.out().is_empty() {
            self.has_waited = true;
            context.waker().wake_by_ref(); // Behind those that are awake already.
            return Poll::Pending;
        }
        self.has_waited = false;
        match self.write(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURNS {
            self.hand_out()?;
            let buffer = &mut self.reader.buffer;
            if buffer.capacity() - buffer.len() < READ / 4 {
                buffer.reserve(READ);
            }
            if ready!(pin!(self.stream.read_buf(buffer)).poll(context))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        self.hand_out()?;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.writing.is_empty() {
                std::mem::swap(&mut self.writing, &mut self.worker.out());
            }
            if self.writing.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut slices = [IoSlice::new(&[]); PARTS];
            let filled = self.writing.slices(&mut slices);
            match self.stream.try_write_vectored(slices.get(..filled).unwrap_or_default()) {
                Ok(count) => self.writing.written(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Gives all frames that are there to those whom they concern.
    fn hand_out(&mut self) -> io::Result<()> {
        loop {
            let next =
                self.reader.next().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let Some((run, from)) = next else { return Ok(()) };
            self.worker.activity.fetch_add(1, Relaxed);
            match from {
                From::Ready => self.loaded(run, Loaded::Ready),
                From::Broken { message, stack } => self.loaded(run, Loaded::Broken { message, stack }),
                From::Log { level, text } => log(&self.worker, level, &text),
                From::Pong | From::Hello { .. } | From::Stuck { .. } => {}
                from => self.worker.deliver(run, from),
            }
        }
    }

    fn loaded(&self, program: u32, loaded: Loaded) {
        self.worker.note_loaded(program, loaded);
        let _ = self.news.send((Arc::clone(&self.worker), News::Loaded)); // Nobody listens at the end.
    }
}

/// A line of a script's, or of its worker's.
pub(super) fn log(worker: &Worker, level: u8, text: &str) {
    let (script, worker) = (&*worker.script, worker.id);
    match level {
        0 => tracing::debug!(target: "script", script, worker, "{text}"),
        1 => tracing::info!(target: "script", script, worker, "{text}"),
        2 => tracing::warn!(target: "script", script, worker, "{text}"),
        _ => tracing::error!(target: "script", script, worker, "{text}"),
    }
}
