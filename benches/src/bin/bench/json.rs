//! A large JSON response of which a query needs one part in a hundred. Measures the query's CPU time as the
//! gateway reports it in `Server-Timing` (instance, index, reading and the result; not receiving), next to
//! native programs with the fastest parsers that do the same with the text in memory, and next to Node's
//! `JSON.parse` of the text alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use benches::programs::{build_program, program_path};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use crate::process::{SERVER_CORE, ServerProcess, pinned_command};
use crate::{BenchTools, print_line};

/// Many short rounds: other processes slow a shared machine down for a second or two at a time, which affects
/// one of two that are compared.
const ROUNDS: usize = 15;
/// The runs of a query in a round; their median counts.
const RUNS: usize = 41;
/// The number of issues, which gives one megabyte.
const ISSUES: usize = 3000;

#[derive(Serialize)]
struct JsonRow {
    name: String,
    /// The part that is read: `rows`, `column`, `open`, or `parse` for parsing alone.
    reads: &'static str,
    round: usize,
    cpu_us: f64,
}

/// A query. The native programs that it is compared with read the same part.
struct JsonQuery {
    name: &'static str,
    reads: &'static str,
    content_type: &'static str,
    program: PathBuf,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = generate_issues();
    let file = folder.path().join("issues.json");
    std::fs::write(&file, &text)?;
    let service = serve(text)?;
    let yaml = format!(
        "services: {{ git: {{ url: 'http://{service}' }} }}\n\
         routes:\n  - {{ path: /query, query: {{ services: [git], limits: {{ cpu: 1s }} }} }}\n"
    );
    let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
    let c = |name, reads, file| -> Result<JsonQuery> {
        let program = build_program(&tools.orfa, file, folder.path())?;
        Ok(JsonQuery { name, reads, content_type: "application/wasm", program })
    };
    let javascript = |reads, file| JsonQuery {
        name: "query.js",
        reads,
        content_type: "text/javascript",
        program: program_path(file),
    };
    let queries = [
        c("query.c", "rows", "issues-rows.c")?,
        c("query.c", "column", "issues-column.c")?,
        javascript("rows", "issues-rows.js"),
        javascript("open", "issues-open.js"),
    ];
    let mut rows = Vec::new();
    for round in 0..tools.rounds(ROUNDS) {
        let mut add = |name: &str, reads, cpu_us| {
            print_line(&format!("  {name:<14} {reads:<7} {cpu_us:>8.0} us CPU"));
            rows.push(JsonRow { name: name.to_owned(), reads, round, cpu_us });
        };
        for query in &queries {
            add(query.name, query.reads, measure(&orfa, query)?);
        }
        measure_natives(tools, &file, &mut add)?;
        add("node", "parse", measure_node(&file)?);
    }
    let scores = scores(&rows)?;
    tools.write_results("json", &rows, scores)
}

/// The headlines: each query compared with the fastest alternative, with the best round of each, since other
/// processes only ever add to the time of a computation. The query with the worst ratio is the score.
fn scores(rows: &[JsonRow]) -> Result<Vec<(String, HeadlineScore)>> {
    let is_native =
        |query: &JsonRow, other: &JsonRow| !other.name.starts_with("query") && other.reads == query.reads;
    let is_node = |_: &JsonRow, other: &JsonRow| other.name == "node";
    let c = worst_ratio(rows, "query.c", is_native)
        .context("no native program: run `scripts/rivals` for the reason")?;
    let javascript = worst_ratio(rows, "query.js", is_node).context("no node")?;
    let score = |(value, spread), target, against: &str| HeadlineScore {
        value,
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(target),
        against: format!("{against}; the best of {ROUNDS} rounds of each"),
        spread,
    };
    Ok(vec![
        (
            "query.json.c_time_vs_native".into(),
            score(
                c,
                1.3,
                "a native program over the faster of sonic-rs and simd-json, the text in its memory",
            ),
        ),
        ("query.json.js_time_vs_node".into(), score(javascript, 1.0, "JSON.parse of the same text in Node")),
    ])
}

/// The ratio of the query with the worst ratio, and the spread of its ratios by round.
fn worst_ratio(
    rows: &[JsonRow],
    name: &str,
    is_rival: impl Fn(&JsonRow, &JsonRow) -> bool,
) -> Option<(f64, f64)> {
    let mut queries: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for query in rows.iter().filter(|row| row.name == name) {
        let rivals = rows.iter().filter(|other| other.round == query.round && is_rival(query, other));
        let fastest = rivals.map(|rival| rival.cpu_us).min_by(f64::total_cmp)?;
        queries.entry(query.reads).or_default().push((query.cpu_us, fastest));
    }
    let ratios = queries.values().map(|rounds| {
        let best =
            |of: fn(&(f64, f64)) -> f64| rounds.iter().map(of).min_by(f64::total_cmp).unwrap_or_default();
        let each: Vec<f64> = rounds.iter().map(|(query, rival)| query / rival).collect();
        (best(|round| round.0) / best(|round| round.1), spread(&each))
    });
    ratios.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The median CPU time of a query, in microseconds.
fn measure(orfa: &ServerProcess, query: &JsonQuery) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = Bytes::from(std::fs::read(&query.program)?);
    runtime.block_on(async {
        let client = BenchClient::new(orfa.address);
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let request = Request::post("/query").header("content-type", query.content_type);
            let answer = client.send(request.body(Full::new(body.clone()))?).await?;
            let told =
                answer.headers.get("server-timing").and_then(|value| value.to_str().ok()).unwrap_or_default();
            ensure!(
                answer.status.is_success(),
                "{}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
            let cpu = told.split(',').find_map(|entry| entry.trim().strip_prefix("cpu;dur="));
            times.push(cpu.context("the response reports no CPU time")?.parse::<f64>()? * 1000.0);
        }
        Ok(median(&times))
    })
}

/// Runs `json-rivals` on the file, on the gateway's core.
fn measure_natives(
    tools: &BenchTools,
    file: &Path,
    add: &mut impl FnMut(&str, &'static str, f64),
) -> Result<()> {
    let told = command_output(pinned_command(SERVER_CORE, &tools.rivals.join("json-rivals")).arg(file))?;
    for line in told.lines() {
        let [name, reads, cpu, _] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
        let reads = if reads == "rows" { "rows" } else { "column" };
        add(name, reads, cpu.parse()?);
    }
    Ok(())
}

/// The median CPU time of `JSON.parse` in Node, warm, in microseconds.
fn measure_node(file: &Path) -> Result<f64> {
    const SCRIPT: &str = "
        const text = require('fs').readFileSync(process.argv[1], 'utf8');
        const times = [];
        for (let i = 0; i < 41; i++) {
          const before = process.cpuUsage();
          JSON.parse(text);
          const { user, system } = process.cpuUsage(before);
          times.push(user + system);
        }
        console.log(times.sort((a, b) => a - b)[20]);";
    let told =
        command_output(pinned_command(SERVER_CORE, Path::new("node")).arg("-e").arg(SCRIPT).arg(file))?;
    Ok(told.trim().parse()?)
}

fn command_output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Issues as a code hosting service lists them.
fn generate_issues() -> String {
    let issue = |number: usize| {
        let state = if number % 100 == 7 { "open" } else { "closed" };
        serde_json::json!({
            "id": 10_000 + number, "number": number, "title": format!("Login page times out on slow networks ({number})"),
            "state": state, "comments": number % 13,
            "user": { "id": number % 50, "login": format!("user{}", number % 50), "full_name": "Us Er" },
            "labels": [{ "id": 3, "name": "bug", "color": "ee0701" }],
            "html_url": format!("https://git.example.org/org/repo/issues/{number}"),
            "created_at": "2024-03-01T10:11:12Z", "body": "Steps:\n1. open\n2. wait",
        })
    };
    serde_json::Value::from_iter((0..ISSUES).map(issue)).to_string()
}

/// Serves a text forever, on a thread of this process.
fn serve(text: String) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let text = text.clone();
            // An error means that the gateway closed the connection.
            std::thread::spawn(move || drop(serve_connection(stream, &text)));
        }
    });
    Ok(address)
}

fn serve_connection(stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut to = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        if line?.is_empty() {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            to.write_all(format!("{head} {}\r\n\r\n{text}", text.len()).as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_ignores_slow_rounds_of_other_programs() {
        let row = |name: &str, reads, round, cpu_us| JsonRow { name: name.into(), reads, round, cpu_us };
        let rows = [
            row("query.c", "rows", 0, 10.0),
            row("native", "rows", 0, 16.0),
            row("slower", "rows", 0, 40.0),
            row("query.c", "rows", 1, 18.0),
            row("native", "rows", 1, 8.0),
            row("slower", "rows", 1, 20.0),
        ];
        let is_native =
            |query: &JsonRow, other: &JsonRow| !other.name.starts_with("query") && other.reads == query.reads;
        assert_eq!(worst_ratio(&rows, "query.c", is_native), Some((10.0 / 8.0, 18.0 / 8.0 - 10.0 / 16.0)));
        assert_eq!(worst_ratio(&rows[..1], "query.c", is_native), None);
    }
}
