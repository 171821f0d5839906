//! Diagnostics of the compiler, as text and as JSON for editors.

use diagnostics::{Diagnostic, DiagnosticLocation, DiagnosticSeverity, LineStarts};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde_json::{Value, json};

use crate::output::terminal;

/// Formats a diagnostic with the source lines that it refers to.
pub(super) fn format_diagnostic(diagnostic: &Diagnostic, name: &str, source: &str) -> String {
    let mut report = MietteDiagnostic::new(&diagnostic.message);
    report.severity = Some(match diagnostic.severity {
        DiagnosticSeverity::Error => miette::Severity::Error,
        DiagnosticSeverity::Warning => miette::Severity::Warning,
        DiagnosticSeverity::Note => miette::Severity::Advice,
    });
    report.code = diagnostic.code.map(str::to_owned);
    let rule = diagnostic.rule.map(|rule| format!(" (rule {rule} of the language)"));
    report.help = Some(format!("{}{}", hint(diagnostic), rule.unwrap_or_default()));
    let related =
        diagnostic.labels.iter().map(|label| LabeledSpan::at(label.location.span(), label.text.as_str()));
    let primary =
        LabeledSpan::new_primary_with_span(Some(diagnostic.label.clone()), diagnostic.location.span());
    let report = Report::new(report.with_labels([primary].into_iter().chain(related)))
        .with_source_code(NamedSource::new(name, source.to_owned()));
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(terminal::width());
    let mut text = String::new();
    match handler.render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        Err(_) => diagnostic.render(name, source),
    }
}

/// Returns a diagnostic with positions as editors use them: lines and columns from 1.
pub(super) fn diagnostic_json(diagnostic: &Diagnostic, source: &str) -> Value {
    let lines = LineStarts::new(source);
    let place = |location: &DiagnosticLocation, text: &str| {
        let span = location.span();
        let (from, to) = (lines.position(span.start), lines.position(span.end));
        json!({
            "line": from.line, "column": from.column, "endLine": to.line, "endColumn": to.column,
            "text": text,
        })
    };
    let related = diagnostic.labels.iter().map(|label| place(&label.location, &label.text));
    json!({
        "severity": diagnostic.severity.name(),
        "code": diagnostic.code,
        "rule": diagnostic.rule,
        "message": diagnostic.message,
        "help": hint(diagnostic),
        "at": place(&diagnostic.location, &diagnostic.label),
        "others": related.collect::<Vec<_>>(),
    })
}

fn hint(diagnostic: &Diagnostic) -> &str {
    diagnostic.hint.as_deref().unwrap_or_default()
}
