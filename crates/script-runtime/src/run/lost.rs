//! What becomes of a run whose worker is lost.
//!
//! One that changed nothing is run again elsewhere, and nobody notices. It may be the one that ended the worker: if that
//! can't be told, it runs alone the second time, and if it ends that worker too, it was. So one bad request costs two
//! workers, and no neighbour its answer.

use super::Run;
use crate::problem::ScriptError;
use crate::workers::Loss;

/// So often is a run begun again.
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
            // It ended the worker that it shared with others, too.
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
                "the handler kept its worker busy when that ended, and is run once more, alone: {}", loss.text
            );
        }
        self.enter(is_suspect).await
    }
}
