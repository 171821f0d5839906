//! What oxc finds wrong, in terms of the S text.

use std::ops::Range;

use oxc_diagnostics::OxcDiagnostic;

use crate::diagnostic::{Code, Diagnostic};
use crate::prepass::OffsetMap;

/// Adds what oxc found to what was found before. What stands where there is an error already follows from it.
pub(super) fn explain(source: &str, errors: &[OxcDiagnostic], map: &OffsetMap, found: &mut Vec<Diagnostic>) {
    for error in errors {
        let translated = translate(source, error, map);
        let overlaps = |it: &Diagnostic| {
            let (a, b) = (&it.primary.span, &translated.primary.span);
            a.start.max(b.start) < a.end.min(b.end) || a.start == b.start
        };
        if !found.iter().any(overlaps) {
            found.push(translated);
        }
    }
}

fn translate(source: &str, error: &OxcDiagnostic, map: &OffsetMap) -> Diagnostic {
    let mut labels: Vec<(Range<usize>, Option<&str>)> =
        error.labels.iter().map(|label| (map.span_to_source(label.span()), label.label())).collect();
    let words = Words::of(source, error, labels.first().map(|(span, _)| span.clone()));
    if words.last_first {
        labels.reverse();
    }
    let mut labels = labels.into_iter().zip(words.labels.iter().copied().chain(std::iter::repeat("here")));
    let ((span, label), own) = labels.next().unwrap_or(((0..0, None), "here"));
    let text = |label: Option<&str>, own: &str| {
        if words.labels.is_empty() { label.unwrap_or(own).to_owned() } else { own.to_owned() }
    };
    let mut told = Diagnostic::error(Code::Syntax, span, words.message, text(label, own), words.help);
    for ((span, label), own) in labels {
        told = told.and(span, text(label, own));
    }
    told
}

/// What is said of a mistake of JavaScript: for the most frequent ones more than oxc does.
struct Words {
    message: String,
    /// None: oxc's own.
    labels: &'static [&'static str],
    help: String,
    /// The last label is the place that is meant.
    last_first: bool,
}

impl Words {
    fn of(source: &str, error: &OxcDiagnostic, span: Option<Range<usize>>) -> Self {
        let said = error.message.as_ref();
        let token = span.and_then(|span| source.get(span)).unwrap_or("").trim();
        if said == "Unexpected token" && !token.is_empty() {
            let help = "look at what stands before: something is missing there, or too much";
            return Self::new(
                format!("unexpected `{token}`"),
                &["JavaScript has no place for this here"],
                help,
            );
        }
        if said.starts_with("Expected a semicolon") {
            let help = "write `;`, or begin a new line";
            return Self::new("two statements stand on one line".into(), &["`;` is missing here"], help);
        }
        if said.ends_with("has already been declared") {
            let help = "give one of them another name, or only set it the second time";
            let labels = &["it is declared again here", "it is first declared here"];
            return Self { last_first: true, ..Self::new(said.into(), labels, help) };
        }
        let help =
            error.help.as_deref().unwrap_or("this is JavaScript's own rule; look at what stands before, too");
        Self::new(said.into(), &[], help)
    }

    fn new(message: String, labels: &'static [&'static str], help: &str) -> Self {
        Self { message, labels, help: help.into(), last_first: false }
    }
}
