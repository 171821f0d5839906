//! `proxy-wasm-conformance`: runs the rows of `rows/` against a Proxy-Wasm host, and keeps the score.
//!
//! A row is a script, an exchange and the expected results (`rows.rs` defines its fields, README.md describes
//! them for authors). For each module that can run it, it becomes a case with its own filter and its own
//! service (`service.rs`). A host (`host.rs`) starts one process for all cases that load, and one process for
//! each case that it has to refuse. Each case is then played (`client.rs`) and judged (`verdict.rs`). Nothing
//! sleeps: a chunk that has to come later waits for a line of the module's log.

mod case;
mod client;
mod host;
mod host_kind;
mod log;
mod rows;
mod score;
mod service;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use case::ConformanceCase;
use host::DynHost;
use host_kind::HostKind;
use score::ConformanceScore;
use verdict::CaseVerdict;

/// Run the Proxy-Wasm conformance rows against a host.
#[derive(Debug, Parser)]
struct ConformanceArguments {
    /// The host to test
    #[arg(long)]
    host: HostKind,
    /// The host's binary
    #[arg(long)]
    binary: PathBuf,
    /// The folder of the built modules
    #[arg(long)]
    modules: PathBuf,
    /// Run only cases whose name contains this text; the score is then neither compared nor written
    #[arg(long)]
    only: Option<String>,
    /// Write the score instead of comparing it
    #[arg(long)]
    update: bool,
    /// Print every line that the host logs
    #[arg(long)]
    verbose: bool,
}

/// The folder of the table and of the scores.
const CONFORMANCE_FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = ConformanceArguments::parse();
    let rows =
        rows::read_rows(&PathBuf::from(CONFORMANCE_FOLDER).join("rows")).context("the table of rows")?;
    let mut cases = Vec::new();
    for row in &rows {
        for module in &row.modules {
            let wanted = |only: &String| format!("{module}/{}", row.id).contains(only);
            if arguments.only.as_ref().is_none_or(wanted) {
                cases.push(ConformanceCase::prepare(row.clone(), *module, &arguments.modules).await?);
            }
        }
    }
    let cases: Vec<Arc<ConformanceCase>> = cases.into_iter().map(Arc::new).collect();
    let host = host::create_host(arguments.host, &arguments.binary, arguments.verbose)?;
    let verdicts = play_all(&*host, &cases).await?;
    report(&cases, &verdicts);
    let score = ConformanceScore::from_verdicts(&cases, &verdicts);
    let path = PathBuf::from(CONFORMANCE_FOLDER).join(format!("score-{}.json", host.kind().name()));
    Ok(score.compare_or_write(&path, arguments.only.is_some(), arguments.update)?.into())
}

/// The number of cases played at once. Most of their time is spent waiting for absent events.
const CONCURRENCY: usize = 16;

/// Plays every case: those that load in one process, and at the same time the others in one process each.
async fn play_all(host: &dyn DynHost, cases: &[Arc<ConformanceCase>]) -> anyhow::Result<Vec<CaseVerdict>> {
    let kind = host.kind();
    let (load, refused): (Vec<_>, Vec<_>) =
        cases.iter().cloned().enumerate().partition(|(_, it)| it.expects_acceptance(kind));
    let together: Vec<Arc<ConformanceCase>> = load.iter().map(|(_, case)| Arc::clone(case)).collect();
    let running = host.start(&together).await?;
    let running = Arc::new(running.map_err(|said| anyhow::anyhow!("it did not start:\n{said}"))?);
    let turns = Arc::new(Semaphore::new(CONCURRENCY));
    let mut played = JoinSet::new();
    for (number, case) in load {
        let (running, turns) = (Arc::clone(&running), Arc::clone(&turns));
        played.spawn(async move {
            let _turn = turns.acquire().await;
            (number, verdict::play_case(kind, &running, &case).await)
        });
    }
    let starts = join_all(refused.iter().map(|(_, case)| host.start(std::slice::from_ref(case))));
    let (mut verdicts, starts) = tokio::join!(played.join_all(), starts);
    for ((number, case), started) in refused.iter().zip(starts) {
        verdicts.push((*number, verdict::judge_refusal(kind, started?.err(), case)));
    }
    verdicts.sort_by_key(|(number, _)| *number);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

/// Prints a line for every case that did not pass, with the reason.
fn report(cases: &[Arc<ConformanceCase>], verdicts: &[CaseVerdict]) {
    for (case, verdict) in cases.iter().zip(verdicts) {
        match verdict {
            CaseVerdict::AsExpected => {}
            CaseVerdict::KnownDifference(why) => anstream::println!("differs  {}: {why}", case.name()),
            CaseVerdict::Failed(problems) => {
                anstream::println!("FAILS    {}", case.name());
                for problem in problems {
                    anstream::println!("         {problem}");
                }
            }
        }
    }
}
