//! A clock that runs only while somebody keeps the gateway waiting: nothing is set where nobody does.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// How long something has stood still.
#[derive(Default)]
pub(crate) struct Stall(Option<Pin<Box<Sleep>>>);

impl Stall {
    /// Whether it has stood still for so long since the last [`Stall::end`]; wakes the task when it has.
    pub(crate) fn is_over(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        self.0.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context).is_ready()
    }

    /// It goes on.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}
