//! What oxc finds wrong, in terms of the S text.

use oxc_diagnostics::OxcDiagnostic;
use oxc_span::Span;

use crate::diagnostic::{Code, Diagnostic};
use crate::prepass::OffsetMap;

/// What to do where oxc says nothing about it.
const HELP: &str = "this is JavaScript's grammar; look at what stands before, too";

/// Adds what oxc found to what was found before. What stands where there is an error already follows from it.
pub(super) fn explain(errors: &[OxcDiagnostic], map: &OffsetMap, found: &mut Vec<Diagnostic>) {
    for error in errors {
        let translated = translate(error, map);
        let overlaps = |it: &Diagnostic| {
            let (a, b) = (&it.primary.span, &translated.primary.span);
            a.start.max(b.start) < a.end.min(b.end) || a.start == b.start
        };
        if !found.iter().any(overlaps) {
            found.push(translated);
        }
    }
}

fn translate(error: &OxcDiagnostic, map: &OffsetMap) -> Diagnostic {
    let place = |span: Span| map.span_to_source(span);
    let mut labels = error.labels.iter();
    let first = labels.next();
    let label = first.and_then(|label| label.label()).unwrap_or("here");
    let help = error.help.as_deref().unwrap_or(HELP);
    let span = first.map_or(0..0, |label| place(label.span()));
    let mut told = Diagnostic::error(Code::Syntax, span, error.message.as_ref(), label, help);
    for label in labels {
        told = told.and(place(label.span()), label.label().unwrap_or("and here"));
    }
    told
}
