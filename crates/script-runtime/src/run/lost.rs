//! Recovery of a run whose worker is lost.
//!
//! A run without effects is repeated in another worker, unnoticed by its client. If the run may have ended
//! the worker itself, but this is not certain, it runs alone the second time; if that worker ends too, the
//! run was the cause. So a single bad request costs two workers, but no response to other requests.

use super::Run;
use crate::problem::ScriptError;
use crate::workers::Loss;

/// The maximum number of repetitions of a run.
const AGAIN: u32 = 3;

impl Run {
    pub(super) async fn lost(&mut self, loss: &Loss, was_busy: bool) -> Result<(), ScriptError> {
        let Some(mut entered) = self.entered.take() else { return Err(loss.into()) };
        entered.is_over = true;
        if loss.culprit == Some(entered.place.run) {
            self.generation.strike(self.handler, 1);
            let at = self.generation.place(self.handler).to_owned();
            return Err(ScriptError::Time { at, limit: self.setup.limits.time.0 });
        }
        if entered.place.worker.is_alone() {
            // This run also ended the worker that it shared with others before.
            self.generation.strike(self.handler, 2);
            let at = self.generation.place(self.handler);
            tracing::error!(target: "script", at, "the handler ended its worker: {}", loss.text);
            return Err(loss.into());
        }
        self.lost += 1;
        if !self.is_clean || self.lost > AGAIN {
            return Err(loss.into());
        }
        drop(entered);
        self.calls.begin_again();
        self.reply = None;
        self.removes = false;
        let is_suspect = was_busy && loss.culprit.is_none();
        if is_suspect {
            let at = self.generation.place(self.handler);
            tracing::warn!(
                target: "script", at,
                "the worker ended while the handler kept it busy; the handler is run again, alone: {}", loss.text
            );
        }
        self.enter(is_suspect).await
    }
}
