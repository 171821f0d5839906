//! The stream contexts of exchanges in flight, with the instances that have them.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::callbacks::EndStream;
use super::entry::{CallbackFuture, CallbackTarget, EntryError, ModuleCallback};
use super::slot::InstanceSlot;
use crate::context::StreamContext;

/// A stream context with the instance that has it.
#[derive(Clone)]
pub(crate) struct StreamHandle {
    context: Arc<StreamContext>,
    slot: Weak<InstanceSlot>,
    /// The generation of the slot's instance that has this context.
    generation: u64,
}

impl Deref for StreamHandle {
    type Target = Arc<StreamContext>;

    fn deref(&self) -> &Arc<StreamContext> {
        &self.context
    }
}

impl StreamHandle {
    pub(super) fn new(context: Arc<StreamContext>, (slot, generation): (Weak<InstanceSlot>, u64)) -> Self {
        Self { context, slot, generation }
    }

    /// Runs a callback in the instance that has this context.
    pub(crate) fn enter<C: ModuleCallback>(&self, callback: C) -> CallbackFuture<C::Output> {
        match self.slot.upgrade() {
            Some(slot) => slot.enter(CallbackTarget::Generation(self.generation), callback),
            None => CallbackFuture::from_error(EntryError::InstanceLost),
        }
    }
}

/// Owns a stream of an exchange. The stream ends when it is dropped.
pub(crate) struct StreamGuard {
    handle: StreamHandle,
    has_ended: bool,
}

impl Deref for StreamGuard {
    type Target = StreamHandle;

    fn deref(&self) -> &StreamHandle {
        &self.handle
    }
}

impl StreamGuard {
    pub(crate) fn new(handle: StreamHandle) -> Self {
        Self { handle, has_ended: false }
    }

    /// Ends the stream, unless it has ended. Returns whether its callbacks ran until a tick and continue in a
    /// task.
    pub(crate) fn end_stream(&mut self) -> bool {
        if std::mem::replace(&mut self.has_ended, true) {
            return false;
        }
        // A service may read the request's body beyond its response.
        self.state().is_ended = true;
        let StreamHandle { context, slot, generation } = &self.handle;
        // If the instance is gone, there is nothing to notify.
        let Some(slot) = slot.upgrade() else { return false };
        let end = || EndStream(Arc::clone(context));
        match slot.try_lock_state() {
            Some(mut state) if !context.features.has_end_callbacks => {
                state.remove_stream(*generation, context.id)
            }
            Some(state) => {
                let ending = CallbackFuture::begin(state, CallbackTarget::Generation(*generation), end());
                return matches!(ending, CallbackFuture::Task(_));
            }
            None => drop(self.enter(end())),
        }
        false
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.end_stream();
    }
}
