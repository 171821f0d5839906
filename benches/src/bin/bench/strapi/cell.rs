//! The combinations of workflow, size and distance, and their variants.

use super::variant::{CallShape, ProgramHost, StrapiVariant};
use super::workflow::PaperWorkflow;
use super::{USUAL_MS, USUAL_SIZE};

/// A workflow with a size and a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkflowCell {
    pub(super) workflow: PaperWorkflow,
    pub(super) size: usize,
    pub(super) round_trip_ms: u64,
}

impl WorkflowCell {
    /// The variants of the cell. Programs with the paper's calls, and sequential calls, run only in the cells
    /// of the paper's figures.
    pub(super) fn variants(self) -> Vec<StrapiVariant> {
        let is_theirs = self.size == USUAL_SIZE || self.round_trip_ms == USUAL_MS;
        let mut ways = if is_theirs { vec![StrapiVariant::Sequential] } else { Vec::new() };
        ways.extend([StrapiVariant::Parallel, StrapiVariant::Graphql]);
        // A write that depends on a previous read can't be nested.
        if self.workflow == PaperWorkflow::Read {
            ways.push(StrapiVariant::Nested);
        }
        ways.push(StrapiVariant::FewestCalls);
        ways.extend(ProgramHost::all().map(|host| StrapiVariant::Program(host, CallShape::Bulk)));
        if is_theirs {
            ways.extend(ProgramHost::all().map(|host| StrapiVariant::Program(host, CallShape::Calls)));
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn variants_have_unique_names() {
        let cell = WorkflowCell { workflow: PaperWorkflow::Read, size: USUAL_SIZE, round_trip_ms: USUAL_MS };
        let names: BTreeSet<String> = cell.variants().iter().map(StrapiVariant::to_string).collect();
        assert_eq!(names.len(), cell.variants().len());
        assert!(names.contains("orfa.code.js.calls"), "{names:?}");
    }

    #[test]
    fn runs_the_papers_programs_in_the_cells_of_its_figures() {
        let shapes = |size, round_trip_ms| {
            let ways = WorkflowCell { workflow: PaperWorkflow::Write, size, round_trip_ms }.variants();
            ways.iter()
                .filter(|variant| matches!(variant, StrapiVariant::Program(_, CallShape::Calls)))
                .count()
        };
        assert_eq!(shapes(16, USUAL_MS), ProgramHost::all().count());
        assert_eq!(shapes(USUAL_SIZE, 170), ProgramHost::all().count());
        assert_eq!(shapes(16, 170), 0);
    }
}
