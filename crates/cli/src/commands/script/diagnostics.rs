//! Diagnostics of the compiler, as text and as JSON for editors.

use diagnostics::{Diagnostic, DiagnosticLocation, DiagnosticSeverity, LineStarts};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde_json::{Value, json};

use crate::output::terminal;

/// Formats a diagnostic with the source lines that it refers to.
pub(super) fn format_diagnostic(found: &Diagnostic, name: &str, source: &str) -> String {
    let mut report = MietteDiagnostic::new(&found.message);
    report.severity = Some(match found.severity {
        DiagnosticSeverity::Error => miette::Severity::Error,
        DiagnosticSeverity::Warning => miette::Severity::Warning,
        DiagnosticSeverity::Note => miette::Severity::Advice,
    });
    report.code = found.code.map(str::to_owned);
    let rule = found.rule.map(|rule| format!(" (rule {rule} of the language)"));
    report.help = Some(format!("{}{}", hint(found), rule.unwrap_or_default()));
    let related =
        found.labels.iter().map(|label| LabeledSpan::at(label.location.span(), label.text.as_str()));
    let primary = LabeledSpan::new_primary_with_span(Some(found.label.clone()), found.location.span());
    let report = Report::new(report.with_labels([primary].into_iter().chain(related)))
        .with_source_code(NamedSource::new(name, source.to_owned()));
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(terminal::width());
    let mut text = String::new();
    match handler.render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        Err(_) => found.render(name, source),
    }
}

/// Returns a diagnostic with positions as editors use them: lines and columns from 1.
pub(super) fn diagnostic_json(found: &Diagnostic, source: &str) -> Value {
    let lines = LineStarts::new(source);
    let place = |location: &DiagnosticLocation, text: &str| {
        let span = location.span();
        let (from, to) = (lines.position(span.start), lines.position(span.end));
        json!({
            "line": from.line, "column": from.column, "endLine": to.line, "endColumn": to.column,
            "text": text,
        })
    };
    let related = found.labels.iter().map(|label| place(&label.location, &label.text));
    json!({
        "severity": found.severity.name(),
        "code": found.code,
        "rule": found.rule,
        "message": found.message,
        "help": hint(found),
        "at": place(&found.location, &found.label),
        "others": related.collect::<Vec<_>>(),
    })
}

fn hint(found: &Diagnostic) -> &str {
    found.hint.as_deref().unwrap_or_default()
}
