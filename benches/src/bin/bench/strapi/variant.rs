//! The variants of a client.

use std::fmt;

/// A variant of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StrapiVariant {
    /// REST with sequential calls.
    Sequential,
    /// REST with all independent calls at once.
    Parallel,
    /// GraphQL as in the paper: a list, then one request with an action for each row.
    Graphql,
    /// A single nested GraphQL query.
    Nested,
    /// REST with the fewest calls and fields that Strapi allows.
    FewestCalls,
    /// A program that a host next to Strapi runs.
    Program(ProgramHost, CallShape),
}

/// The host that runs a program, and how the program gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProgramHost {
    /// workerd, with the program in every request.
    WorkerdByProgram,
    /// workerd, with the program cached.
    WorkerdByToken,
    Orfa(OrfaCaching, StrapiLanguage),
}

/// The caching of a program by ORFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OrfaCaching {
    Base,
    Code,
    Instance,
}

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StrapiLanguage {
    C,
    Javascript,
}

/// The way that a program calls Strapi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallShape {
    /// Uses Strapi's bulk queries.
    Bulk,
    /// Makes a call for each row, like the paper's programs.
    Calls,
}

impl ProgramHost {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let orfa = [OrfaCaching::Base, OrfaCaching::Code, OrfaCaching::Instance].into_iter();
        let orfa = orfa.flat_map(|mode| {
            [StrapiLanguage::C, StrapiLanguage::Javascript].map(|language| Self::Orfa(mode, language))
        });
        [Self::WorkerdByProgram, Self::WorkerdByToken].into_iter().chain(orfa)
    }

    pub(super) fn is_workerd(self) -> bool {
        matches!(self, Self::WorkerdByProgram | Self::WorkerdByToken)
    }

    pub(super) fn language(self) -> StrapiLanguage {
        match self {
            Self::WorkerdByProgram | Self::WorkerdByToken => StrapiLanguage::Javascript,
            Self::Orfa(_, language) => language,
        }
    }

    /// Whether requests carry a token instead of the program.
    pub(super) fn has_token(self) -> bool {
        !matches!(self, Self::WorkerdByProgram | Self::Orfa(OrfaCaching::Base, _))
    }
}

impl OrfaCaching {
    /// The name in `ORFA-Cache`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Code => "code",
            Self::Instance => "instance",
        }
    }
}

impl StrapiLanguage {
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

/// The name in tables and results, such as `orfa.code.js.calls`.
impl fmt::Display for StrapiVariant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Sequential => "rest.sequential",
            Self::Parallel => "rest.parallel",
            Self::Graphql => "graphql.paper",
            Self::Nested => "graphql.nested",
            Self::FewestCalls => "rest.best",
            Self::Program(host, shape) => {
                let shape = if *shape == CallShape::Calls { ".calls" } else { "" };
                return formatter.pad(&format!("{host}{shape}"));
            }
        };
        formatter.pad(name)
    }
}

impl fmt::Display for ProgramHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerdByProgram => formatter.write_str("workerd.program"),
            Self::WorkerdByToken => formatter.write_str("workerd.token"),
            Self::Orfa(mode, language) => write!(formatter, "orfa.{}.{}", mode.name(), language.name()),
        }
    }
}
