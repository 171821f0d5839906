//! The time that the compiler takes for a thousand lines: the paper's two case studies and the handlers of
//! these benches, repeated under distinct names.

use std::fmt::Write;
use std::time::Instant;

use anyhow::{Result, bail};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use script::{CompileOptions, compile};

use crate::progress::BenchProgress;
use crate::ratios::NamedScore;

const LINES: usize = 1_000;
const TURNS: usize = 20;
const SOURCES: [&str; 3] = [
    include_str!("../../../../../examples/crawler/crawler.sjs"),
    include_str!("../../../../../examples/mapreduce/mapreduce.sjs"),
    include_str!("../../../../programs/handlers.sjs"),
];

pub(super) fn run(progress: &BenchProgress) -> Result<NamedScore> {
    let source = generate_source();
    let mut took = Vec::new();
    for _ in 0..TURNS {
        let began = Instant::now();
        let program = compile(&source, "bench.sjs", &CompileOptions::default());
        took.push(began.elapsed().as_secs_f64() * 1e3);
        if let Err(diagnostics) = program {
            bail!("the bench's script does not compile: {diagnostics:?}");
        }
    }
    let value = median(&took);
    progress.report(&format!("a compile of {LINES} lines: {value:.1} ms"));
    let score = HeadlineScore {
        value,
        unit: "ms".into(),
        better: BetterDirection::Lower,
        target: Some(20.0),
        against: format!("{TURNS} compiles of the same {LINES} lines"),
        spread: spread(&took),
    };
    Ok(("script.compile_1000_lines_ms".into(), score))
}

/// Generates services up to the number of lines, padded with comments.
fn generate_source() -> String {
    let (mut text, mut lines) = (String::new(), 0);
    for number in 0.. {
        let source = SOURCES[number % SOURCES.len()];
        let service = source.replacen("service ", &format!("service s{number}_"), 1);
        if lines + service.lines().count() > LINES {
            break;
        }
        lines += service.lines().count();
        text += &service;
    }
    (lines..LINES).for_each(|_| _ = writeln!(text, "// the end"));
    text
}
