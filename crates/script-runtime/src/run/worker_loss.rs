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
pub(super) const MAX_RETRIES: u32 = 3;

impl ScriptRun {
    pub(super) async fn recover_from_loss(
        &mut self,
        loss: &WorkerLoss,
        was_busy: bool,
    ) -> Result<(), ScriptError> {
        let Some(mut entered) = self.dispatched.take() else { return Err(loss.into()) };
        entered.is_completed = true;
        if let Some(error) = self.culprit_error(&entered.slot, loss) {
            return Err(error);
        }
        self.lost_workers += 1;
        if !self.is_repeatable || self.lost_workers > MAX_RETRIES {
            return Err(loss.into());
        }
        drop(entered);
        self.calls.reset();
        self.reply = None;
        self.removes_instance = false;
        let is_suspect = loss.culprit.is_none() && (was_busy || self.lost_workers == MAX_RETRIES);
        if is_suspect {
            let at = self.generation.handler_position(self.handler);
            tracing::warn!(
                target: "script", at,
                "the worker ended, perhaps because of the handler, which is run again, alone: {}", loss.text
            );
        }
        self.enter_worker(is_suspect).await
    }

    /// Returns the error for the client if the run in this slot ended its worker; records it for its handler.
    pub(super) fn culprit_error(&self, place: &WorkerSlot, loss: &WorkerLoss) -> Option<ScriptError> {
        let at = self.generation.handler_position(self.handler);
        if loss.culprit == Some(place.run) {
            self.generation.record_strike(self.handler, 1);
            return Some(match &loss.failure {
                Some(fail) => self.handler_error(fail.clone()),
                None => ScriptError::CpuLimit { at: at.to_owned(), limit: self.setup.limits.cpu.0 },
            });
        }
        if loss.culprit.is_none() && place.worker.is_dedicated() {
            // This run also ended the worker that it shared with others before.
            self.generation.record_strike(self.handler, 2);
            tracing::error!(target: "script", at, "the handler ended its worker: {}", loss.text);
            return Some(loss.into());
        }
        None
    }
}
