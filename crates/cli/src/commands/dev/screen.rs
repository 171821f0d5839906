//! The output of `orfa dev`: instructions, and each request with its upstream calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::CompletedRequest;
use services::UpstreamCallRecord;
use services::call::UpstreamCallOutcome;
use tokio::sync::mpsc;

use crate::commands::call::DEFAULT_URL;
use crate::output::draw::{self, CallBar, CallBarOutcome};
use crate::output::terminal::{self, paint};
use crate::output::units;

/// A request to be drawn, and the CPU limit of its program.
pub(super) struct DisplayedRequest {
    pub(super) request: CompletedRequest,
    pub(super) cpu_limit: Option<Duration>,
}

/// Draws requests as they arrive.
pub(super) async fn draw_requests(mut shown: mpsc::UnboundedReceiver<DisplayedRequest>) {
    while let Some(shown) = shown.recv().await {
        terminal::write_stdout(&draw_request(&shown, terminal::width()));
    }
}

/// The first lines of the output.
pub(super) fn greeting(url: &str, services: &[&str], files: &[PathBuf], program: Option<&Path>) -> String {
    let program = program.map_or_else(|| "query.ts".to_owned(), |file| file.display().to_string());
    let elsewhere = if url == DEFAULT_URL { String::new() } else { format!(" --url {url}") };
    let watched: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let watched =
        if watched.is_empty() { String::new() } else { format!("watched  {}\n", watched.join(", ")) };
    format!(
        "{}  programs may call: {}\n\
         try      orfa call {program} --input '{{\"n\":8}}'{elsewhere}\n\
         or       curl -F program=@{program} -F input='{{\"n\":8}}' {url}\n\
         {watched}",
        paint(terminal::BOLD, &format!("POST {url}")),
        services.join(", "),
    )
}

/// Draws a line for the request, and one for each upstream call.
fn draw_request(
    DisplayedRequest { request: seen, cpu_limit: cap }: &DisplayedRequest,
    width: usize,
) -> String {
    let status = seen.status.as_u16();
    let report = seen.report.as_ref();
    let made = seen.upstream_calls.iter().chain(report.iter().flat_map(|report| &report.call_records));
    let calls: Vec<CallBar> = made.map(call_bar).collect();
    format!(
        "{} {} {}  {}{}{}  {}\n{}",
        seen.method,
        seen.path,
        paint(draw::status_style(status), &status.to_string()),
        seen.code.map_or_else(String::new, |code| format!("{}  ", paint(terminal::RED, code))),
        units::format_milliseconds(seen.duration),
        report.map_or_else(String::new, |report| format_cpu(report.cpu, *cap)),
        units::format_count(calls.len(), "call"),
        draw::draw_timeline(&calls, seen.duration, width),
    )
}

fn format_cpu(used: Duration, cap: Option<Duration>) -> String {
    let of = cap.map_or_else(String::new, |cap| format!(" of {}", units::format_milliseconds(cap)));
    format!("  cpu {}{of}", units::format_milliseconds(used))
}

fn call_bar(made: &UpstreamCallRecord) -> CallBar {
    CallBar {
        name: format!("{} {} {}", made.service, made.method, made.path),
        outcome: match made.outcome {
            UpstreamCallOutcome::Status(status) => CallBarOutcome::Status(status),
            UpstreamCallOutcome::NoAnswer => CallBarOutcome::NoStatus("no answer".to_owned()),
            UpstreamCallOutcome::NotSent => CallBarOutcome::NoStatus("not sent".to_owned()),
        },
        start: made.span.0,
        end: made.span.1,
    }
}

#[cfg(test)]
mod tests;
