//! The ways in which a client can ask.

use std::fmt;

use super::workflow::Workflow;
use super::{Cell, USUAL_MS, USUAL_SIZE};

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// REST, a call after the other.
    OneByOne,
    /// REST, everything at once that does not depend on something else.
    AtOnce,
    /// GraphQL as in the paper: a list, then one request that does something for each of its rows.
    Graphql,
    /// One GraphQL query, nested.
    Nested,
    /// REST, by the fewest calls and with the fewest fields that Strapi allows.
    Best,
    /// A program, which a host beside Strapi runs.
    Program(Host, Shape),
}

/// Who runs a program, and how it gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    /// workerd, the program in every request.
    WorkerdByProgram,
    /// workerd, which has the program already.
    WorkerdByToken,
    Orfa(Mode, Language),
}

/// What ORFA keeps of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Base,
    Code,
    Instance,
}

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Language {
    C,
    Javascript,
}

/// How a program asks Strapi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// Strapi does what it can.
    Bulk,
    /// A call for each row, as the paper's programs have it.
    Calls,
}

impl Way {
    /// Those of a cell. The programs of the paper's shape, and calls one by one, run where the paper's figures are.
    pub(super) fn of(cell: Cell) -> Vec<Self> {
        let is_theirs = cell.size == USUAL_SIZE || cell.round_trip_ms == USUAL_MS;
        let mut ways = if is_theirs { vec![Self::OneByOne] } else { Vec::new() };
        ways.extend([Self::AtOnce, Self::Graphql]);
        // What a write needs to know first can't be nested into it.
        if cell.workflow == Workflow::Read {
            ways.push(Self::Nested);
        }
        ways.push(Self::Best);
        ways.extend(Host::all().map(|host| Self::Program(host, Shape::Bulk)));
        if is_theirs {
            ways.extend(Host::all().map(|host| Self::Program(host, Shape::Calls)));
        }
        ways
    }
}

impl Host {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let orfa = [Mode::Base, Mode::Code, Mode::Instance].into_iter();
        let orfa = orfa
            .flat_map(|mode| [Language::C, Language::Javascript].map(|language| Self::Orfa(mode, language)));
        [Self::WorkerdByProgram, Self::WorkerdByToken].into_iter().chain(orfa)
    }

    pub(super) fn is_workerd(self) -> bool {
        matches!(self, Self::WorkerdByProgram | Self::WorkerdByToken)
    }

    pub(super) fn language(self) -> Language {
        match self {
            Self::WorkerdByProgram | Self::WorkerdByToken => Language::Javascript,
            Self::Orfa(_, language) => language,
        }
    }

    /// Whether the program is not in every request.
    pub(super) fn has_token(self) -> bool {
        !matches!(self, Self::WorkerdByProgram | Self::Orfa(Mode::Base, _))
    }
}

impl Mode {
    /// As `ORFA-Cache` says it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Code => "code",
            Self::Instance => "instance",
        }
    }
}

impl Language {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::C => "application/wasm",
            Self::Javascript => "text/javascript",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Javascript => "js",
        }
    }
}

/// The name in tables and results: `orfa.code.js.calls`.
impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::OneByOne => "rest.sequential",
            Self::AtOnce => "rest.parallel",
            Self::Graphql => "graphql.paper",
            Self::Nested => "graphql.nested",
            Self::Best => "rest.best",
            Self::Program(host, shape) => {
                let shape = if *shape == Shape::Calls { ".calls" } else { "" };
                return formatter.pad(&format!("{host}{shape}"));
            }
        };
        formatter.pad(name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerdByProgram => formatter.write_str("workerd.program"),
            Self::WorkerdByToken => formatter.write_str("workerd.token"),
            Self::Orfa(mode, language) => write!(formatter, "orfa.{}.{}", mode.name(), language.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_way_has_a_name_of_its_own() {
        let ways = Way::of(Cell { workflow: Workflow::Read, size: USUAL_SIZE, round_trip_ms: USUAL_MS });
        let names: BTreeSet<String> = ways.iter().map(Way::to_string).collect();
        assert_eq!(names.len(), ways.len());
        assert!(names.contains("orfa.code.js.calls"), "{names:?}");
    }

    #[test]
    fn the_papers_programs_run_where_the_papers_figures_are() {
        let shapes = |size, round_trip_ms| {
            let ways = Way::of(Cell { workflow: Workflow::Write, size, round_trip_ms });
            ways.iter().filter(|way| matches!(way, Way::Program(_, Shape::Calls))).count()
        };
        assert_eq!(shapes(16, USUAL_MS), Host::all().count());
        assert_eq!(shapes(USUAL_SIZE, 170), Host::all().count());
        assert_eq!(shapes(16, 170), 0);
    }
}
