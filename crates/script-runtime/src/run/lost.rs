//! Recovery of a run whose worker is lost.
//!
//! A run without effects is repeated in another worker, unnoticed by its client. If the run may have ended
//! the worker itself, but this is not certain, it runs alone the second time; if that worker ends too, the
//! run was the cause. Code of a handler may compute while its run waits for calls. But many runs may wait in
//! a worker, and few can run alone at once, so such a run becomes a suspect at its last repetition only. A
//! single bad request therefore costs two to four workers, but no response to other requests.

use super::ScriptRun;
use crate::problem::ScriptError;
use crate::workers::{WorkerLoss, WorkerSlot};

/// The maximum number of repetitions of a run.
pub(super) const AGAIN: u32 = 3;

impl ScriptRun {
    pub(super) async fn lost(&mut self, loss: &WorkerLoss, was_busy: bool) -> Result<(), ScriptError> {
        let Some(mut entered) = self.entered.take() else { return Err(loss.into()) };
        entered.is_over = true;
        if let Some(error) = self.culprit_error(&entered.place, loss) {
            return Err(error);
        }
        self.lost += 1;
        if !self.is_clean || self.lost > AGAIN {
            return Err(loss.into());
        }
        drop(entered);
        self.calls.begin_again();
        self.reply = None;
        self.removes = false;
        let is_suspect = loss.culprit.is_none() && (was_busy || self.lost == AGAIN);
        if is_suspect {
            let at = self.generation.place(self.handler);
            tracing::warn!(
                target: "script", at,
                "the worker ended, perhaps because of the handler, which is run again, alone: {}", loss.text
            );
        }
        self.enter(is_suspect).await
    }

    /// Returns the error for the client if the run in this slot ended its worker; records it for its handler.
    pub(super) fn culprit_error(&self, place: &WorkerSlot, loss: &WorkerLoss) -> Option<ScriptError> {
        let at = self.generation.place(self.handler);
        if loss.culprit == Some(place.run) {
            self.generation.strike(self.handler, 1);
            return Some(match &loss.fail {
                Some(fail) => self.blamed(fail.clone()),
                None => ScriptError::Time { at: at.to_owned(), limit: self.setup.limits.cpu.0 },
            });
        }
        if loss.culprit.is_none() && place.worker.is_alone() {
            // This run also ended the worker that it shared with others before.
            self.generation.strike(self.handler, 2);
            tracing::error!(target: "script", at, "the handler ended its worker: {}", loss.text);
            return Some(loss.into());
        }
        None
    }
}
