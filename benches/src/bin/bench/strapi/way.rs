//! The ways in which a client can ask.

use std::fmt;

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
