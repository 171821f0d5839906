//! `par` and `pfor`.

use super::Emitter;

impl Emitter<'_, '_, '_> {
    pub(super) fn parallel(&mut self) {
    }
}
