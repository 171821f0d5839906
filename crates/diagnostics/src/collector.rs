//! The diagnostics found so far.

use crate::diagnostic::{Diagnostic, DiagnosticKind};
use crate::location::DiagnosticLocation;

/// The diagnostics found so far, in the order of their discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Adds an error.
    pub fn add(
        &mut self,
        kind: impl DiagnosticKind,
        location: impl Into<DiagnosticLocation>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.0.push(Diagnostic::new(location, message, hint).with_kind(kind));
    }

    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds those diagnostics that are not included yet.
    pub fn extend_unique(&mut self, more: impl IntoIterator<Item = Diagnostic>) {
        for diagnostic in more {
            if !self.0.contains(&diagnostic) {
                self.0.push(diagnostic);
            }
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the latest diagnostic.
    pub fn last_mut(&mut self) -> Option<&mut Diagnostic> {
        self.0.last_mut()
    }

    /// Returns the diagnostics.
    #[must_use]
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.0
    }

    /// Returns `value` if there are no diagnostics.
    ///
    /// # Errors
    /// The diagnostics.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, more: I) {
        self.0.extend(more);
    }
}
