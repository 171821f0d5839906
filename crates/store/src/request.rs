//! A request on its way to the thread and back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::batch::WriteResult;
use crate::error::{FailureCause, StoreError};

/// Whether a batch has failed that others build on. Only the thread writes to it.
pub(crate) type IsBroken = Arc<AtomicBool>;

/// Whether a request only reads. A file that can't be written to can often still be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestAccess {
    Read,
    Write,
}

/// A request with any type of result.
pub(crate) trait StoreJob: Send {
    fn access(&self) -> RequestAccess;
    /// Executes the request and stores the result, which may be a refusal. An error means that the
    /// transaction has failed.
    fn attempt(&mut self, connection: &Connection) -> Result<(), FailureCause>;
    /// Resets the request after the transaction was rolled back.
    fn undo(&mut self);
    /// Sends the result, or an error of the whole transaction.
    fn send_result(self: Box<Self>, failure: Option<&StoreError>);
}

/// A request with a result of type `T`.
pub(crate) struct StoreRequest<T, F> {
    work: F,
    access: RequestAccess,
    result: Option<Result<T, StoreError>>,
    result_sender: oneshot::Sender<Result<T, StoreError>>,
    is_broken: Option<IsBroken>,
    /// Its share of the queue, which is released with the result.
    _queue_permit: OwnedSemaphorePermit,
}

impl<T, F> StoreRequest<T, F> {
    pub(crate) fn new(
        work: F,
        access: RequestAccess,
        is_broken: Option<IsBroken>,
        room: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, answered) = oneshot::channel();
        (Self { work, access, result: None, result_sender: answer, is_broken, _queue_permit: room }, answered)
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

impl<T, F> StoreJob for StoreRequest<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, FailureCause> + Send,
{
    fn access(&self) -> RequestAccess {
        self.access
    }

    fn attempt(&mut self, connection: &Connection) -> Result<(), FailureCause> {
        if self.is_broken() {
            self.result = Some(Err(StoreError::Abandoned));
            return Ok(());
        }
        let outcome = match (self.work)(connection) {
            Ok(done) => Ok(done),
            Err(FailureCause::Refused(error)) => Err(error),
            Err(fail) => return Err(fail),
        };
        if outcome.is_err() {
            self.set_broken(true);
        }
        self.result = Some(outcome);
        Ok(())
    }

    fn undo(&mut self) {
        let broke_it = matches!(&self.result, Some(Err(error)) if *error != StoreError::Abandoned);
        if broke_it {
            self.set_broken(false);
        }
        self.result = None;
    }

    fn send_result(self: Box<Self>, failure: Option<&StoreError>) {
        if failure.is_some() {
            self.set_broken(true);
        }
        let outcome = failure.cloned().map_or(self.result, |error| Some(Err(error)));
        // The receiver may be gone; a commit is durable regardless.
        let _ = self.result_sender.send(outcome.unwrap_or(Err(StoreError::Stopped)));
    }
}

/// The future result of a batch in the queue. Dropping it does not cancel the batch.
#[derive(Debug)]
#[must_use = "the batch may fail; await its result"]
pub struct PendingCommit {
    pub(crate) result_receiver: oneshot::Receiver<Result<Vec<WriteResult>, StoreError>>,
}

impl Future for PendingCommit {
    type Output = Result<Vec<WriteResult>, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result_receiver)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(StoreError::Stopped)))
    }
}
