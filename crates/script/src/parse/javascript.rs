//! Conversion of oxc's errors to diagnostics of the S text.

use std::ops::Range;

use diagnostics::Diagnostic;
use oxc_diagnostics::OxcDiagnostic;

use super::prepass::OffsetMap;
use crate::diagnostic::DiagnosticCode;

/// Adds oxc's errors to the diagnostics, except at places with an earlier error, which probably caused them.
pub(super) fn add_syntax_errors(
    source: &str,
    errors: &[OxcDiagnostic],
    map: &OffsetMap,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for error in errors {
        let translated = translate_error(source, error, map);
        let overlaps = |it: &Diagnostic| {
            let (a, b) = (it.location.span(), translated.location.span());
            a.start.max(b.start) < a.end.min(b.end) || a.start == b.start
        };
        if !diagnostics.iter().any(overlaps) {
            diagnostics.push(translated);
        }
    }
}

fn translate_error(source: &str, error: &OxcDiagnostic, map: &OffsetMap) -> Diagnostic {
    let labels: Vec<(Range<usize>, &str)> = error
        .labels
        .iter()
        .map(|label| (map.span_to_source(label.span()), label.label().unwrap_or("here")))
        .collect();
    let said = error.message.as_ref();
    let place = labels.first().map_or(0..0, |(span, _)| span.clone());
    if said == "Unexpected token" && !place.is_empty() {
        return unexpected_token_error(source, place);
    }
    if said.starts_with("Expected a semicolon") {
        return missing_separator_error(source, place.start);
    }
    if let ([first, again, ..], true) = (labels.as_slice(), said.ends_with("has already been declared")) {
        let is_theirs = error.labels.first().is_some_and(|label| map.is_copied(label.span().start as usize));
        return redeclaration_error(said, first.0.clone(), again.0.clone(), is_theirs);
    }
    let help = match error.help.as_deref() {
        _ if said.starts_with("`await` is only allowed") => {
            "`await` is allowed in handlers and in `async` functions"
        }
        Some(help) => help,
        None => "this is JavaScript's own rule; check the code before it, too",
    };
    let mut labels = labels.into_iter();
    let (span, label) = labels.next().unwrap_or((0..0, "here"));
    let diagnostic = Diagnostic::in_text(DiagnosticCode::Syntax, span, said, label, help);
    labels.fold(diagnostic, |told, (span, label)| told.with_label(span, label))
}

fn unexpected_token_error(source: &str, place: Range<usize>) -> Diagnostic {
    let token = &source[place.clone()];
    let help = match token {
        "..." => "replace these dots by code; between brackets they would spread a list",
        ":" => {
            "leave the type out: S has none. A colon is only valid in objects, in `case`, and after a label"
        }
        _ => "check the code before it: something may be missing or superfluous",
    };
    let label = "this is not valid JavaScript here";
    Diagnostic::in_text(DiagnosticCode::Syntax, place, format!("unexpected `{token}`"), label, help)
}

/// Reports two statements on one line, or an unexpected token in place of the end of a statement.
fn missing_separator_error(source: &str, end: usize) -> Diagnostic {
    let rest = source[end..].trim_start();
    let start = source.len() - rest.len();
    match rest.chars().next() {
        Some(c) if !c.is_alphanumeric() && !"_$'\"`{".contains(c) => {
            unexpected_token_error(source, start..start + c.len_utf8())
        }
        _ => {
            let help = "write `;`, or begin a new line";
            Diagnostic::in_text(
                DiagnosticCode::Syntax,
                end..end,
                "there are two statements on one line",
                "`;` is missing here",
                help,
            )
        }
    }
}

fn redeclaration_error(said: &str, first: Range<usize>, again: Range<usize>, is_theirs: bool) -> Diagnostic {
    if !is_theirs {
        let help = "choose another name";
        return Diagnostic::in_text(
            DiagnosticCode::Syntax,
            again,
            said,
            "each handler has a `query` and a `response`",
            help,
        );
    }
    let help = "give one of them another name, or only set it the second time";
    Diagnostic::in_text(DiagnosticCode::Syntax, again, said, "it is declared again here", help)
        .with_label(first, "it is first declared here")
}
