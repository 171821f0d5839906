//! A fresh instance for every request: what it costs above a bare server that answers a constant, in C
//! and in JavaScript, program sent every time, limits and access log on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use benches::scoreboard::{self, Better, Score};
use benches::stats::{median, spread};
use serde::Serialize;

use crate::load::{Round, Sent, round};
use crate::process::{NOBODY, Server};
use crate::{Tools, say};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct Row {
    server: &'static str,
    round: usize,
    #[serde(flatten)]
    measured: Round,
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let c = build(&tools.orfa, "constant.c", folder.path())?;
    let javascript = program("constant.js");
    let (floor, orfa) = (Server::floor(&tools.floor)?, Server::orfa(&tools.orfa, "0", NOBODY)?);
    let c = Sent { content_type: "application/wasm", program: &c };
    let javascript = Sent { content_type: "text/javascript", program: &javascript };
    let rivals = [("floor", &floor, c), ("query.c", &orfa, c), ("query.js", &orfa, javascript)];
    for (_, server, sent) in rivals {
        round(server, sent, Duration::from_secs(1))?;
    }
    let mut rows = Vec::new();
    for number in 0..ROUNDS {
        for (name, server, sent) in rivals {
            let measured = round(server, sent, ROUND)?;
            say(&format!(
                "  {name:<9} {:>9.0} requests/s  {:>6.1} us CPU",
                measured.per_second, measured.cpu_us
            ));
            rows.push(Row { server: name, round: number, measured });
        }
    }
    scoreboard::rows("query", &rows)?;
    scoreboard::record([
        over_floor(&rows, "query.c", "query.fresh.cpu_us_over_floor", 18.0),
        over_floor(&rows, "query.js", "query.js.cpu_us_over_floor", 80.0),
    ])
}

/// CPU per request above the floor's, round by round.
fn over_floor(rows: &[Row], server: &str, name: &str, target: f64) -> (String, Score) {
    let cpu = |server: &str| -> Vec<f64> {
        rows.iter().filter(|row| row.server == server).map(|row| row.measured.cpu_us).collect()
    };
    let over: Vec<f64> = cpu(server).iter().zip(cpu("floor")).map(|(ours, floor)| ours - floor).collect();
    say(&format!("  {name}: {:.1} us (target {target})", median(&over)));
    let against = "a bare hyper server of the same build that answers a constant".to_owned();
    let score = Score {
        value: median(&over),
        unit: "us".into(),
        better: Better::Lower,
        target: Some(target),
        against,
        spread: spread(&over),
    };
    (name.to_owned(), score)
}

/// A program of `benches/programs/`.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Builds a C program as its author would.
pub(crate) fn build(orfa: &Path, name: &str, folder: &Path) -> Result<PathBuf> {
    build_file(orfa, &program(name), folder)
}

pub(crate) fn build_file(orfa: &Path, source: &Path, folder: &Path) -> Result<PathBuf> {
    let out = folder.join(source.with_extension("wasm").file_name().context("a program has a name")?);
    let built = Command::new(orfa).args(["query", "build"]).arg(source).arg("-o").arg(&out).output()?;
    if !built.status.success() {
        bail!("`orfa query build` failed:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(out)
}
