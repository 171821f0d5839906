//! A diagnostic for a config: the position, the problem and the remedy.

use std::fmt;

/// A mistake in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// The file, as given by the operator.
    pub file: String,
    /// The line, from 1; 0 if the mistake is not in a file.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The field: `routes[0].query.limits.cpu`; empty for the document as a whole.
    pub field: String,
    /// The problem, as a sentence without the position.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigMistake {}

/// Joins words for a hint: `GET, POST or PUT`.
pub(crate) fn join_alternatives(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
