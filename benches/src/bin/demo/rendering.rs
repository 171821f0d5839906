//! The output of the demo.

use std::fmt::Write;

use anstyle::Style;
use anyhow::Result;
use benches::jobs::{BenchJob, CPU_LIMIT_MS};
use http::header::HeaderValue;

use crate::abusive_client::{SPINNING_PROGRAM, StrangerResults};
use crate::measure::{self, BodySizes, DemoVariant, VariantFigures};
use crate::servers::{DemoLanguage, DemoServers, ROUND_TRIP};
use crate::terminal::{BOLD, CYAN, GREEN, RED, YELLOW, apply_style};
use crate::timing::{QueryTimings, TimedCall};

/// The width of the bars in columns.
const BARS: usize = 30;
/// The width of the names in columns.
const NAMES: usize = 19;
/// The total width in columns.
const WIDTH: usize = 98;
/// The maximum width of the time axis of the gateway's calls in columns.
const AXIS: usize = 40;

/// The heading, with the setup of client, gateway and services.
pub(crate) fn heading() -> String {
    let title = apply_style(BOLD, "ORFA: one request for all");
    let distance = ROUND_TRIP.as_millis();
    format!("{title}          client --{distance} ms--> gateway --loopback--> 3 services\n")
}

/// The section of a job: a bar for each variant, and the figures that only queries have.
pub(crate) fn job_section(job: BenchJob, ways: &[VariantFigures]) -> String {
    let scale = TimeAxis::fit(ways.iter().map(|figures| figures.row.ms).fold(0.0, f64::max));
    let checked = match ways.iter().all(|variant_figures| variant_figures.row.equal) {
        true => apply_style(GREEN, "every row: same answer, checked"),
        false => apply_style(RED, "THE ANSWERS DIFFER"),
    };
    let title = apply_style(BOLD, &format!("{:<58}", job.title()));
    let columns = "  ms  requests  trips  kB up   down (gzip)";
    let mut text =
        format!("\n{title}{checked}\n{:NAMES$}{:<width$}{columns}\n", "", scale.labels(), width = BARS + 5);
    ways.iter().for_each(|way| text.push_str(&variant_row(way, &scale)));
    text.push_str(&upstream_calls(ways));
    text.push_str(&query_lines(ways));
    text.push_str(&sizes_section(ways));
    if job.graphql().is_none() {
        text.push_str(" No GraphQL: a write that depends on a read takes more than one request.\n");
    }
    text
}

/// The number of calls to services for one request, by variant.
fn upstream_calls(ways: &[VariantFigures]) -> String {
    let calls = |figures: &VariantFigures| {
        Some(format!("{} {}", variant_label(figures.way).0, figures.row.upstream_calls?))
    };
    let calls: Vec<String> = ways.iter().filter_map(calls).collect();
    format!(" Calls to services: {}\n", calls.join(", ").replace("ORFA ", ""))
}

/// The sizes of an aggregate's response for clients that accept deduplication and compression.
fn sizes_section(ways: &[VariantFigures]) -> String {
    let mut text = String::new();
    for VariantFigures { way, row, .. } in ways {
        let Some(BodySizes { plain, deduplicated, compressed, both, encoding }) = &row.sizes else {
            continue;
        };
        let [plain, deduplicated, compressed, both] =
            [plain, deduplicated, compressed, both].map(|bytes| kilobytes(*bytes as u64));
        let (name, _) = variant_label(*way);
        let _ = writeln!(
            text,
            " {name:<18}body {plain} kB, {deduplicated} deduplicated, {compressed} with {encoding}, {both} with both",
        );
    }
    text
}

fn variant_row(measured: &VariantFigures, scale: &TimeAxis) -> String {
    let row = &measured.row;
    let (name, style) = variant_label(measured.way);
    let bar = apply_style(style, &scale.bar(row.ms));
    let mark = if row.equal { "" } else { " DIFFERS" };
    let [up, down, gzip] = [row.bytes_up, row.bytes_down, measured.gzip_down].map(kilobytes);
    let gzip = format!("({gzip})");
    format!(
        " {name:<18}{bar}{:>9.0}{:>10}{:>7}{up:>7}{down:>7} {gzip:>6}{mark}\n",
        row.ms, row.requests, row.round_trips
    )
}

fn variant_label(variant: DemoVariant) -> (&'static str, Style) {
    match variant {
        DemoVariant::Sequential => ("REST, one by one", YELLOW),
        DemoVariant::Parallel => ("REST, all at once", YELLOW),
        DemoVariant::Bulk => ("REST, bulk calls", YELLOW),
        DemoVariant::Query(DemoLanguage::Javascript) => ("ORFA query, JS", GREEN),
        DemoVariant::Query(DemoLanguage::C) => ("ORFA query, C", GREEN),
        DemoVariant::Script => ("ORFA script", GREEN),
        DemoVariant::Aggregate => ("ORFA aggregate", GREEN),
        DemoVariant::Graphql => ("ORFA GraphQL", GREEN),
        DemoVariant::Stitched => ("ORFA stitched", GREEN),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand bytes")]
fn kilobytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1000.0)
}

/// The difference to the ideal latency, and the time of the first run.
fn query_lines(ways: &[VariantFigures]) -> String {
    let mut text = String::new();
    for measured in ways {
        let (Some(query), Some(over)) = (&measured.query, measured.over_ideal_ms()) else { continue };
        let (name, _) = variant_label(measured.way);
        let compile = query.compile_ms.map_or_else(String::new, |ms| format!(", {ms:.1} to compile"));
        let (near, first) = (query.near_ms, query.first_ms);
        let _ = writeln!(
            text,
            " {name:<18}{near:.1} ms without the distance, over_ideal_ms {over:.1} (the first time {first:.0} ms{compile})",
        );
    }
    text
}

/// The source of the program, and the timing of its calls at the gateway.
pub(crate) async fn program_section(world: &DemoServers, job: BenchJob) -> Result<String> {
    let program = job.typescript();
    let mut request = measure::program_request(world, job, DemoLanguage::Javascript)?;
    request.headers_mut().insert("prefer", HeaderValue::from_static("calls"));
    let timing = QueryTimings::from_headers(&world.local_client.send(request).await?.headers);
    let (bytes, lines) = (program.len(), program.lines().count());
    let mut text = apply_style(
        BOLD,
        &format!("\nThe whole program that the client sent ({bytes} bytes, {lines} lines):\n"),
    );
    for line in program.lines() {
        let _ = writeln!(text, "  {}", apply_style(CYAN, line));
    }
    let cpu = format!("{:.1} of {CPU_LIMIT_MS} ms CPU, {:.1} ms in all", timing.cpu, timing.total);
    let _ = writeln!(text, "{}", apply_style(BOLD, &format!("What the gateway did ({cpu}):")));
    text.push_str(&call_lines(&timing));
    Ok(text)
}

/// A line for each call, on a common axis that ends with the response.
fn call_lines(timing: &QueryTimings) -> String {
    let name = timing.calls.iter().map(|call| call.name.len()).max().unwrap_or(0);
    let axis = WIDTH.saturating_sub(name + 15).clamp(10, AXIS);
    timing.calls.iter().map(|call| call_line(call, timing.total, name, axis)).collect()
}

fn call_line(call: &TimedCall, total: f64, name: usize, axis: usize) -> String {
    let from = column(call.start, total, axis).min(axis - 1);
    let to = column(call.start + call.duration, total, axis).clamp(from + 1, axis);
    let (before, after) = (" ".repeat(from), " ".repeat(axis - to));
    let bar = apply_style(CYAN, &"=".repeat(to - from));
    format!("  {:<name$} |{before}{bar}{after}| {:>5.1} ms\n", call.name, call.duration)
}

/// The response to the abusive client, and the effect on other clients.
pub(crate) fn abuse_section(met: &StrangerResults) -> String {
    let StrangerResults { status, code, after_ms, spun, alone_ms, meanwhile_ms, neighbours } = met;
    let title = apply_style(BOLD, "\nAn abusive client sends");
    let answer = apply_style(RED, &format!("{status} {code}"));
    let p99 = apply_style(BOLD, &format!("{alone_ms:.1} -> {meanwhile_ms:.1} ms"));
    format!(
        "{title}  {SPINNING_PROGRAM}  ->  {answer} after {after_ms:.0} ms\n\
         The p99 of other clients meanwhile: {p99} ({spun} such programs next to {neighbours} queries in C)\n"
    )
}

/// Suggestions for the reader.
pub(crate) fn suggestions() -> String {
    let lines = [
        "cargo run --release -p marketplace -- all",
        "target/release/orfa dev profile=http://localhost:3001 catalog=http://localhost:3002",
        "target/release/orfa call examples/marketplace/queries/second.ts --input '{\"n\":8}' -v",
    ];
    format!("{}\n  {}\n", apply_style(BOLD, "\nNow you, a terminal each:"), lines.join("\n  "))
}

/// A time axis that ends with a round number.
struct TimeAxis {
    step: f64,
    steps: usize,
}

impl TimeAxis {
    fn fit(longest: f64) -> Self {
        let steps = [20.0, 50.0, 100.0, 200.0, 250.0, 500.0, 1000.0, 2000.0, 2500.0, 5000.0];
        let step = steps.into_iter().find(|step| step * 5.0 >= longest).unwrap_or(10_000.0);
        let needed = (1..=5).find(|count| step * f64::from(*count) >= longest).unwrap_or(5);
        Self { step, steps: usize::try_from(needed).unwrap_or(5) }
    }

    fn end(&self) -> f64 {
        self.step_value(self.steps)
    }

    #[expect(clippy::cast_precision_loss, reason = "5 at most")]
    fn step_value(&self, step: usize) -> f64 {
        self.step * step as f64
    }

    fn labels(&self) -> String {
        let mut text = String::new();
        for step in 0..=self.steps {
            let place = column(self.step_value(step), self.end(), BARS);
            let _ = write!(
                text,
                "{:place$}{:.0}",
                "",
                self.step_value(step),
                place = place.saturating_sub(text.len())
            );
        }
        text
    }

    fn bar(&self, ms: f64) -> String {
        let length = column(ms, self.end(), BARS).max(1);
        format!("{:<BARS$}", "#".repeat(length))
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a column of a terminal, between 0 and its width"
)]
fn column(value: f64, of: f64, columns: usize) -> usize {
    (value / of.max(f64::MIN_POSITIVE) * columns as f64).round().clamp(0.0, columns as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_at_most_five_round_steps() {
        for (longest, end) in [(97.0, 100.0), (858.0, 1000.0), (412.0, 500.0), (8900.0, 10_000.0)] {
            assert_eq!(TimeAxis::fit(longest).end(), end, "{longest}");
        }
        assert_eq!(TimeAxis::fit(300.0).labels(), "0         100       200       300");
    }

    #[test]
    fn bars_are_never_empty_or_too_long() {
        let scale = TimeAxis::fit(10_000.0);
        assert_eq!(scale.bar(0.0).trim_end(), "#");
        assert_eq!(scale.bar(20_000.0).len(), BARS);
    }
}
