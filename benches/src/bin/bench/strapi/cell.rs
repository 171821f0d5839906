//! The combinations of workflow, size and distance, and their variants.

use super::way::{Host, Shape, Way};
use super::workflow::Workflow;
use super::{USUAL_MS, USUAL_SIZE};

/// A workflow with a size and a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) workflow: Workflow,
    pub(super) size: usize,
    pub(super) round_trip_ms: u64,
}

impl Cell {
    /// The variants of the cell. Programs with the paper's calls, and sequential calls, run only in the cells
    /// of the paper's figures.
    pub(super) fn ways(self) -> Vec<Way> {
        let is_theirs = self.size == USUAL_SIZE || self.round_trip_ms == USUAL_MS;
        let mut ways = if is_theirs { vec![Way::OneByOne] } else { Vec::new() };
        ways.extend([Way::AtOnce, Way::Graphql]);
        // A write that depends on a previous read can't be nested.
        if self.workflow == Workflow::Read {
            ways.push(Way::Nested);
        }
        ways.push(Way::Best);
        ways.extend(Host::all().map(|host| Way::Program(host, Shape::Bulk)));
        if is_theirs {
            ways.extend(Host::all().map(|host| Way::Program(host, Shape::Calls)));
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
        let cell = Cell { workflow: Workflow::Read, size: USUAL_SIZE, round_trip_ms: USUAL_MS };
        let names: BTreeSet<String> = cell.ways().iter().map(Way::to_string).collect();
        assert_eq!(names.len(), cell.ways().len());
        assert!(names.contains("orfa.code.js.calls"), "{names:?}");
    }

    #[test]
    fn runs_the_papers_programs_in_the_cells_of_its_figures() {
        let shapes = |size, round_trip_ms| {
            let ways = Cell { workflow: Workflow::Write, size, round_trip_ms }.ways();
            ways.iter().filter(|way| matches!(way, Way::Program(_, Shape::Calls))).count()
        };
        assert_eq!(shapes(16, USUAL_MS), Host::all().count());
        assert_eq!(shapes(USUAL_SIZE, 170), Host::all().count());
        assert_eq!(shapes(16, 170), 0);
    }
}
