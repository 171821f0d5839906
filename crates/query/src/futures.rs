//! The upstream calls of one run: started at once, overlapping, each a task of its own; ended by dropping.

use services::{CallError, Response};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// What a handle stands for.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Under way; `sent` is how many bytes the host holds for it.
    Pending { task: AbortHandle, safe: bool, sent: usize },
    /// Ended, with an answer or without.
    Ended(Result<Response, CallError>),
    /// Deleted. Numbers are not used again, so that a stale handle never meets another call's answer.
    Deleted,
}

/// An ended call on its way to its slot.
pub(crate) type Ended = (usize, Result<Response, CallError>);

/// The futures of a run. Handles count from 1.
#[derive(Debug, Default)]
pub(crate) struct Futures {
    /// The last handle of the runs before, in an instance that goes on living: what it still holds of them must not meet
    /// another call's answer.
    base: usize,
    slots: Vec<Slot>,
    /// By which ended calls come; there is none before the first call.
    channel: Option<(UnboundedSender<Ended>, UnboundedReceiver<Ended>)>,
}

impl Futures {
    /// Those of the next run in the same instance.
    pub(crate) fn after(before: &Self) -> Self {
        Self { base: before.base + before.slots.len(), slots: Vec::new(), channel: None }
    }

    /// Whether a handle is one of the runs before.
    pub(crate) fn is_past(&self, handle: i32) -> bool {
        usize::try_from(handle).is_ok_and(|handle| (1..=self.base).contains(&handle))
    }

    /// The place of a handle.
    fn place(&self, handle: i32) -> Option<usize> {
        usize::try_from(handle).ok()?.checked_sub(1)?.checked_sub(self.base)
    }

    /// Starts a call. It runs on its own, whether anybody waits or not.
    pub(crate) fn start(
        &mut self,
        safe: bool,
        sent: usize,
        call: impl Future<Output = Result<Response, CallError>> + Send + 'static,
    ) -> i32 {
        let (number, sender) = (self.slots.len(), self.sender().clone());
        let task = tokio::spawn(async move {
            // Nobody listens any more when the run is over.
            let _ = sender.send((number, call.await));
        });
        self.slots.push(Slot::Pending { task: task.abort_handle(), safe, sent });
        i32::try_from(self.base + self.slots.len()).unwrap_or(i32::MAX)
    }

    /// Ends a call that does not end by itself, since a recording has its answer.
    pub(crate) fn end(&mut self, ended: Ended) {
        let _ = self.sender().send(ended);
    }

    fn sender(&mut self) -> &UnboundedSender<Ended> {
        &self.channel.get_or_insert_with(unbounded_channel).0
    }

    /// The handle of a call that is still under way.
    pub(crate) fn pending(&self, number: usize) -> Option<i32> {
        let handle = i32::try_from(self.base + number + 1).ok()?;
        matches!(self.get(handle)?, Slot::Pending { .. }).then_some(handle)
    }

    /// The slot of a handle.
    pub(crate) fn get(&self, handle: i32) -> Option<&Slot> {
        let slot = self.slots.get(self.place(handle)?)?;
        (!matches!(slot, Slot::Deleted)).then_some(slot)
    }

    /// Deletes a handle: cancels its call, or returns the answer that nobody needs any more.
    pub(crate) fn delete(&mut self, handle: i32) -> Option<Slot> {
        self.get(handle)?;
        let place = self.place(handle)?;
        let slot = self.slots.get_mut(place)?;
        let slot = std::mem::replace(slot, Slot::Deleted);
        if let Slot::Pending { task, .. } = &slot {
            task.abort();
        }
        Some(slot)
    }

    /// Takes the next ended call if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Ended> {
        self.channel.as_mut()?.1.try_recv().ok()
    }

    /// Waits for the next call to end.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        self.channel.as_mut()?.1.recv().await
    }

    /// Puts an ended call into its slot; how many bytes were held for it until now. `None` if it was
    /// deleted meanwhile.
    pub(crate) fn put(&mut self, (number, result): Ended) -> Option<usize> {
        let slot = self.slots.get_mut(number)?;
        let Slot::Pending { sent, .. } = *slot else { return None };
        *slot = Slot::Ended(result);
        Some(sent)
    }

    /// Whether an unsafe call is under way. A run is not over before it has ended, or nobody could say
    /// what was done.
    pub(crate) fn unsafe_pending(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Pending { safe: false, .. }))
    }
}

impl Drop for Futures {
    fn drop(&mut self) {
        for slot in &self.slots {
            if let Slot::Pending { task, .. } = slot {
                task.abort();
            }
        }
    }
}
