//! Diagnostics of the compiler, as text and as JSON for editors.

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use script::{DiagnosticLabel, DiagnosticSeverity, LineStarts, ScriptDiagnostic};
use serde_json::{Value, json};

use crate::output::terminal;

/// Formats a diagnostic with the source lines that it refers to.
pub(super) fn format_diagnostic(found: &ScriptDiagnostic, name: &str, source: &str) -> String {
    let mut report = MietteDiagnostic::new(&found.message);
    report.severity = Some(match found.severity {
        DiagnosticSeverity::Error => miette::Severity::Error,
        DiagnosticSeverity::Warning => miette::Severity::Warning,
        DiagnosticSeverity::Note => miette::Severity::Advice,
    });
    report.code = Some(found.code.as_str().to_owned());
    let rule = found.code.rule().map(|rule| format!(" (rule {rule} of the language)"));
    report.help = Some(format!("{}{}", found.help, rule.unwrap_or_default()));
    let label = |label: &DiagnosticLabel| LabeledSpan::at(label.span.clone(), &label.text);
    let others = found.secondary_labels.iter().map(label);
    let primary =
        LabeledSpan::new_primary_with_span(Some(found.primary.text.clone()), found.primary.span.clone());
    let report = Report::new(report.with_labels([primary].into_iter().chain(others)))
        .with_source_code(NamedSource::new(name, source.to_owned()));
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(terminal::width());
    let mut text = String::new();
    match handler.render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        Err(_) => found.render(name, source),
    }
}

/// Returns a diagnostic with positions as editors use them: lines and columns from 1.
pub(super) fn diagnostic_json(found: &ScriptDiagnostic, source: &str) -> Value {
    let lines = LineStarts::new(source);
    let place = |label: &DiagnosticLabel| {
        let (from, to) = (lines.position(label.span.start), lines.position(label.span.end));
        json!({
            "line": from.line, "column": from.column, "endLine": to.line, "endColumn": to.column,
            "text": label.text,
        })
    };
    json!({
        "severity": found.severity.name(),
        "code": found.code.as_str(),
        "rule": found.code.rule(),
        "message": found.message,
        "help": found.help,
        "at": place(&found.primary),
        "others": found.secondary_labels.iter().map(place).collect::<Vec<_>>(),
    })
}
