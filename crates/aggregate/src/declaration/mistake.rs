//! Mistakes in declarations, with their positions.

use std::fmt;

/// A mistake in a declaration that the JSON schema can't express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateMistake {
    /// The position in the file, as a JSON Pointer: `/parts/catalogs/join/on`.
    pub place: String,
    /// The mistake.
    pub message: String,
    /// A suggested correction.
    pub hint: String,
    /// The stable code.
    pub code: &'static str,
}

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateMistakeKind {
    Input,
    Call,
    Placeholder,
    Cycle,
    Each,
    Join,
    Fields,
    Unsafe,
    Answer,
}

impl AggregateMistakeKind {
    fn code(self) -> &'static str {
        match self {
            Self::Input => "declared-input",
            Self::Call => "declared-call",
            Self::Placeholder => "declared-placeholder",
            Self::Cycle => "declared-cycle",
            Self::Each => "declared-each",
            Self::Join => "declared-join",
            Self::Fields => "declared-fields",
            Self::Unsafe => "declared-unsafe",
            Self::Answer => "declared-answer",
        }
    }
}

impl fmt::Display for AggregateMistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} ({})", self.place, self.message, self.hint)
    }
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct AggregateMistakes(Vec<AggregateMistake>);

impl AggregateMistakes {
    pub(crate) fn add(
        &mut self,
        kind: AggregateMistakeKind,
        place: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.0.push(AggregateMistake {
            place: place.into(),
            message: message.into(),
            hint: hint.into(),
            code: kind.code(),
        });
    }

    pub(crate) fn push(&mut self, mistake: AggregateMistake) {
        self.0.push(mistake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<AggregateMistake> {
        self.0
    }
}
