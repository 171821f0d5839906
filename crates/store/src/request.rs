//! A request on its way to the thread and back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::Written;
use crate::error::{Error, Fail};

/// Whether a batch failed on which others build. Only the thread writes to it.
pub(crate) type IsBroken = Arc<AtomicBool>;

/// Whether a request only reads: what can't be written to can often still be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A request, whatever it gives.
pub(crate) trait Job: Send {
    fn access(&self) -> Access;
    /// Does it and keeps the outcome, which may be that it is refused. An error means that the transaction can't go on.
    fn attempt(&mut self, connection: &Connection) -> Result<(), Fail>;
    /// The transaction was rolled back.
    fn undo(&mut self);
    /// Gives the outcome away, or the error for which there is none.
    fn answer(self: Box<Self>, failure: Option<&Error>);
}

/// A request that gives a `T`.
pub(crate) struct Request<T, F> {
    work: F,
    access: Access,
    outcome: Option<Result<T, Error>>,
    answer: oneshot::Sender<Result<T, Error>>,
    is_broken: Option<IsBroken>,
    /// Its share of the queue, given back with the answer.
    _room: OwnedSemaphorePermit,
}

impl<T, F> Request<T, F> {
    pub(crate) fn new(
        work: F,
        access: Access,
        is_broken: Option<IsBroken>,
        room: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (answer, answered) = oneshot::channel();
        (Self { work, access, outcome: None, answer, is_broken, _room: room }, answered)
    }

    fn is_broken(&self) -> bool {
        self.is_broken.as_ref().is_some_and(|is_broken| is_broken.load(Relaxed))
    }

    fn set_broken(&self, broken: bool) {
        if let Some(is_broken) = &self.is_broken {
            is_broken.store(broken, Relaxed);
        }
    }
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, Fail> + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn attempt(&mut self, connection: &Connection) -> Result<(), Fail> {
        if self.is_broken() {
            self.outcome = Some(Err(Error::Abandoned));
            return Ok(());
        }
        let outcome = match (self.work)(connection) {
            Ok(done) => Ok(done),
            Err(Fail::Refused(error)) => Err(error),
            Err(fail) => return Err(fail),
        };
        if outcome.is_err() {
            self.set_broken(true);
        }
        self.outcome = Some(outcome);
        Ok(())
    }

    fn undo(&mut self) {
        let broke_it = matches!(&self.outcome, Some(Err(error)) if *error != Error::Abandoned);
        if broke_it {
            self.set_broken(false);
        }
        self.outcome = None;
    }

    fn answer(self: Box<Self>, failure: Option<&Error>) {
        if failure.is_some() {
            self.set_broken(true);
        }
        let outcome = failure.cloned().map_or(self.outcome, |error| Some(Err(error)));
        // Nobody may wait any more; what was kept is kept.
        let _ = self.answer.send(outcome.unwrap_or(Err(Error::Stopped)));
    }
}

/// The answer to a batch that is in the queue. To drop it undoes nothing.
#[derive(Debug)]
#[must_use = "nothing is sure before it was awaited"]
pub struct Commit {
    pub(crate) answered: oneshot::Receiver<Result<Vec<Written>, Error>>,
}

impl Future for Commit {
    type Output = Result<Vec<Written>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answered).poll(context).map(|answer| answer.unwrap_or(Err(Error::Stopped)))
    }
}
