//! Renders a problem document (RFC 9457) for people: the error, its position in the source, the hint, and the
//! program's calls and output until then.

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde::Deserialize;
use serde_json::Value;

use super::exchange::ProgramCallResponse;
use super::program::PreparedProgram;
use crate::output::draw::{self, CallBarOutcome};
use crate::output::terminal::{self, paint};

/// The members that the gateway writes. Problem documents of other servers have some of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PrintedProblem {
    title: Option<String>,
    detail: Option<String>,
    code: Option<String>,
    hint: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    calls: Vec<FailedCall>,
    console: Option<Value>,
    #[serde(skip)]
    status: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FailedCall {
    service: String,
    method: String,
    path: String,
    status: Value,
}

impl PrintedProblem {
    /// Returns the problem document in a response, if there is one.
    pub(super) fn from_response(answer: &ProgramCallResponse) -> Option<Self> {
        let media_type = answer.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
        if !media_type.starts_with("application/problem+json") {
            return None;
        }
        let problem = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Self {
            detail: Some(String::from_utf8_lossy(&answer.body).into_owned()),
            ..Self::default()
        });
        Some(Self { status: answer.status.as_u16(), ..problem })
    }

    /// The problem that a replayed run ended with.
    pub(crate) fn from_replay(
        code: String,
        detail: String,
        place: Option<(u32, u32)>,
        console: String,
    ) -> Self {
        let (line, column) = place.map(|(line, column)| (line as usize, column as usize)).unzip();
        let (code, detail, console) = (Some(code), Some(detail), Some(console.into()));
        Self { code, detail, line, column, console, status: 422, ..Self::default() }
    }

    /// Renders the problem as text.
    pub(crate) fn render(&self, program: &PreparedProgram, width: usize) -> String {
        let mut text = String::new();
        let report = self.build_report(program);
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(width);
        if handler.render_report(&mut text, report.as_ref()).is_err() {
            text = format!("{report}\n");
        }
        text + &self.format_calls() + &self.format_console()
    }

    fn build_report(&self, program: &PreparedProgram) -> Report {
        let mut diagnostic = MietteDiagnostic::new(self.headline());
        diagnostic.code.clone_from(&self.code);
        diagnostic.help.clone_from(&self.hint);
        let Some((source, place)) =
            program.source().and_then(|source| Some((source, self.byte_range(source)?)))
        else {
            return diagnostic.into();
        };
        let diagnostic = diagnostic.with_label(LabeledSpan::at(place, "here"));
        let name = program.file.display().to_string();
        Report::new(diagnostic).with_source_code(NamedSource::new(name, source.to_owned()))
    }

    fn headline(&self) -> String {
        let status = self.status;
        match (&self.title, &self.detail) {
            (Some(title), Some(detail)) => format!("{title} ({status}): {detail}"),
            (Some(text), None) | (None, Some(text)) => format!("{text} ({status})"),
            (None, None) => format!("the gateway answered with status {status}"),
        }
    }

    /// The byte range of the character at `line` and `column`, which both count from 1.
    fn byte_range(&self, source: &str) -> Option<std::ops::Range<usize>> {
        let line = source.split_inclusive('\n').nth(self.line?.checked_sub(1)?)?;
        let start = line.as_ptr() as usize - source.as_ptr() as usize;
        let signs = line.trim_end().char_indices();
        let skipped = self.column.unwrap_or(1).saturating_sub(1);
        let (offset, length) = signs.map(|(at, sign)| (at, sign.len_utf8())).nth(skipped).unwrap_or_default();
        Some(start + offset..start + offset + length)
    }

    fn format_calls(&self) -> String {
        if self.calls.is_empty() {
            return String::new();
        }
        let lines = self.calls.iter().map(FailedCall::format_line);
        format!("  {}\n{}", paint(terminal::BOLD, "calls"), lines.collect::<String>())
    }

    fn format_console(&self) -> String {
        let lines = match &self.console {
            Some(Value::String(text)) => text.lines().map(indent_line).collect(),
            Some(Value::Array(lines)) => lines.iter().map(|line| indent_line(&plain_text(line))).collect(),
            _ => String::new(),
        };
        if lines.is_empty() {
            return lines;
        }
        format!("  {}\n{lines}", paint(terminal::BOLD, "console"))
    }
}

impl FailedCall {
    fn format_line(&self) -> String {
        let Self { service, method, path, status } = self;
        let text = plain_text(status);
        let style = match CallBarOutcome::parse(&text) {
            CallBarOutcome::Status(status) => draw::status_style(status),
            CallBarOutcome::NoStatus(_) => terminal::RED,
        };
        format!("    {service} {method} {path}  {}\n", paint(style, &text))
    }
}

fn indent_line(line: &str) -> String {
    format!("    {line}\n")
}

/// A string without its quotes, or any other value as JSON.
fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
