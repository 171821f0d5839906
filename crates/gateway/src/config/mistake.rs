//! A mistake in a config, with everything its writer needs: where, what, and what to do.

use std::fmt;

/// Something in a config that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1; 0 where the mistake is not in a file.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The field: `routes[0].query.limits.cpu`; empty for the document as a whole.
    pub field: String,
    /// What is wrong, as a sentence without its subject's place.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Mistake {
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

impl std::error::Error for Mistake {}

/// Words in a row, for a hint: `GET, POST or PUT`.
pub(crate) fn any_of(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
