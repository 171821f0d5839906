//! The upstream calls of a run. Each starts at once in a task of its own and is cancelled on drop.

use offload::polls::{PollSite, watch_polls};
use services::{CallError, ProgramResponse};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// The state of a handle.
#[derive(Debug)]
pub(crate) enum HandleState {
    /// In flight. `sent` is the number of bytes that the host holds for the request.
    Pending { task: AbortHandle, is_safe: bool, request_bytes: usize },
    /// Finished, with a response or an error.
    Ended(Result<ProgramResponse, CallError>),
    /// Deleted. Numbers are not reused, so that a stale handle never refers to another call's response.
    Deleted,
}

/// A finished call that has not been stored in its slot yet.
pub(crate) type UnstoredCall = (usize, Result<ProgramResponse, CallError>);

/// The futures of a run. Handles start from 1.
#[derive(Debug, Default)]
pub(crate) struct RunFutures {
    /// The last handle of earlier runs in a warm instance. New handles are larger, so that a stale handle
    /// never refers to another call's response.
    base: usize,
    slots: Vec<HandleState>,
    /// The channel for finished calls, created with the first call.
    channel: Option<(UnboundedSender<UnstoredCall>, UnboundedReceiver<UnstoredCall>)>,
}

impl RunFutures {
    /// Creates the futures of the next run in the same instance.
    pub(crate) fn new_after(before: &Self) -> Self {
        Self { base: before.base + before.slots.len(), slots: Vec::new(), channel: None }
    }

    /// Whether a handle belongs to an earlier run.
    pub(crate) fn is_stale(&self, handle: i32) -> bool {
        usize::try_from(handle).is_ok_and(|handle| (1..=self.base).contains(&handle))
    }

    /// Returns the index of a handle's slot.
    fn slot_index(&self, handle: i32) -> Option<usize> {
        usize::try_from(handle).ok()?.checked_sub(1)?.checked_sub(self.base)
    }

    /// Starts a call. It makes progress even while the program does not wait for it.
    pub(crate) fn start_call(
        &mut self,
        safe: bool,
        sent: usize,
        call: impl Future<Output = Result<ProgramResponse, CallError>> + Send + 'static,
    ) -> i32 {
        let (number, sender) = (self.slots.len(), self.sender().clone());
        let task = tokio::spawn(watch_polls(PollSite::Query, async move {
            // The receiver is gone if the run is over.
            let _ = sender.send((number, call.await));
        }));
        self.slots.push(HandleState::Pending {
            task: task.abort_handle(),
            is_safe: safe,
            request_bytes: sent,
        });
        self.handle(number)
    }

    /// Finishes a call with a recorded response.
    pub(crate) fn finish_recorded(&mut self, ended: UnstoredCall) {
        let _ = self.sender().send(ended);
    }

    fn sender(&mut self) -> &UnboundedSender<UnstoredCall> {
        &self.channel.get_or_insert_with(unbounded_channel).0
    }

    /// Returns the handle of a call.
    pub(crate) fn handle(&self, number: usize) -> i32 {
        i32::try_from(self.base + number + 1).unwrap_or(i32::MAX)
    }

    /// Returns the handle of a call that is still in flight.
    pub(crate) fn pending_handle(&self, number: usize) -> Option<i32> {
        let handle = self.handle(number);
        matches!(self.get(handle)?, HandleState::Pending { .. }).then_some(handle)
    }

    /// Returns the slot of a handle.
    pub(crate) fn get(&self, handle: i32) -> Option<&HandleState> {
        let slot = self.slots.get(self.slot_index(handle)?)?;
        (!matches!(slot, HandleState::Deleted)).then_some(slot)
    }

    /// Deletes a handle: cancels its call, or returns the response, which is not needed any more.
    pub(crate) fn delete(&mut self, handle: i32) -> Option<HandleState> {
        self.get(handle)?;
        let place = self.slot_index(handle)?;
        let slot = self.slots.get_mut(place)?;
        let slot = std::mem::replace(slot, HandleState::Deleted);
        if let HandleState::Pending { task, .. } = &slot {
            task.abort();
        }
        Some(slot)
    }

    /// Returns the next finished call, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<UnstoredCall> {
        self.channel.as_mut()?.1.try_recv().ok()
    }

    /// Waits for the next call to finish.
    pub(crate) async fn next(&mut self) -> Option<UnstoredCall> {
        self.channel.as_mut()?.1.recv().await
    }

    /// Stores a finished call in its slot. Returns the number of bytes held for its request, or `None` if the
    /// handle was deleted.
    pub(crate) fn store_result(&mut self, (number, result): UnstoredCall) -> Option<usize> {
        let slot = self.slots.get_mut(number)?;
        let HandleState::Pending { request_bytes: sent, .. } = *slot else { return None };
        *slot = HandleState::Ended(result);
        Some(sent)
    }

    /// Whether an unsafe call is in flight. A run waits for such calls, since otherwise their outcome would
    /// be unknown.
    pub(crate) fn has_unsafe_pending(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, HandleState::Pending { is_safe: false, .. }))
    }
}

impl Drop for RunFutures {
    fn drop(&mut self) {
        for slot in &self.slots {
            if let HandleState::Pending { task, .. } = slot {
                task.abort();
            }
        }
    }
}
