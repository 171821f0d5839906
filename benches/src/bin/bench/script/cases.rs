//! The paper's case studies, in turns with the same programs on a cluster of Node: a crawl of a binary tree,
//! and word counts of five pages for each client. The results are checked.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use super::servers::{ALL_CORES, ScriptGateway, example_path, start_cluster};
use crate::process::ServerProcess;
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_least, at_most, ratio};
use crate::{BenchTools, open_loop};

pub(super) mod crawl;
pub(super) mod mapreduce;

const ROUNDS: usize = 5;
/// A depth of 10, for 1023 pages.
const DEPTH: u32 = 10;
/// The number of jobs, with five pages each.
const JOBS: usize = 200;
/// The number of warm-up rounds. Each worker, ours and the cluster's, compiles the program for itself, which
/// takes about this many rounds, whereas a server runs for days.
const WARM_UPS: usize = 15;

/// A case study.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseStudy {
    Crawler,
    MapReduce,
}

#[derive(Serialize)]
pub(super) struct CaseStudyRow {
    case: &'static str,
    server: &'static str,
    workers: u32,
    round: usize,
    pages: u64,
    per_second: f64,
    cpu_us: f64,
}

/// A server of a case.
struct CaseServer {
    name: &'static str,
    workers: u32,
    server: ServerProcess,
}

impl CaseStudy {
    const ALL: [Self; 2] = [Self::Crawler, Self::MapReduce];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crawler => "crawler",
            Self::MapReduce => "mapreduce",
        }
    }

    /// Starts a gateway with the example on all cores.
    pub(super) fn start(
        self,
        tools: &BenchTools,
        service: SocketAddr,
        workers: u32,
    ) -> Result<ServerProcess> {
        let name = self.name();
        let script = example_path(&format!("{name}/{name}.sjs"));
        // In a long crawl most of the 65,535 pages, and the writes for them, are awaited at the same time.
        let more = if tools.is_long { ", memory: 4GiB, internal_calls: 200000" } else { "" };
        ScriptGateway { cores: ALL_CORES, workers, more, ..ScriptGateway::new(script, service) }.start(tools)
    }

    /// Runs the case once. Returns the number of pages.
    fn run_once(self, server: &ServerProcess, service: SocketAddr) -> Result<u64> {
        match self {
            Self::Crawler => open_loop::run_anywhere(crawl::crawl(server.address, service, DEPTH))?,
            Self::MapReduce => open_loop::run_anywhere(mapreduce::count(server.address, service, JOBS))?,
        }
    }

    /// Checks the state after the runs.
    fn check(self, server: &ServerProcess, plays: usize) -> Result<()> {
        match self {
            Self::Crawler => open_loop::run_anywhere(crawl::check(server.address, DEPTH, plays))?,
            // Each sum is checked while it is polled.
            Self::MapReduce => Ok(()),
        }
    }
}

pub(super) fn run(
    tools: &BenchTools,
    service: SocketAddr,
    progress: &BenchProgress,
) -> Result<(Vec<CaseStudyRow>, Vec<NamedScore>)> {
    let (mut rows, rounds) = (Vec::new(), tools.rounds(ROUNDS));
    for case in CaseStudy::ALL {
        let orfa = |name, workers| {
            anyhow::Ok(CaseServer { name, workers, server: case.start(tools, service, workers)? })
        };
        let rival = start_cluster(&format!("{}.mjs", case.name()), 2)?;
        let players =
            [orfa("orfa", 1)?, orfa("orfa", 2)?, CaseServer { name: "cluster", workers: 2, server: rival }];
        for round in 0..WARM_UPS + rounds {
            for player in &players {
                let row = player.measure_run(case, service, round).with_context(|| player.name)?;
                if round >= WARM_UPS {
                    let CaseStudyRow { case, server, workers, per_second, cpu_us, .. } = &row;
                    progress.report(&format!(
                        "{case:<9} {server:<7} {workers} workers {per_second:>7.0} pages/s  {cpu_us:>6.0} us CPU a page"
                    ));
                    rows.push(row);
                }
            }
        }
        for player in &players {
            case.check(&player.server, WARM_UPS + rounds).with_context(|| player.name)?;
        }
    }
    let headlines = headlines(&rows);
    Ok((rows, headlines))
}

impl CaseServer {
    fn measure_run(&self, case: CaseStudy, service: SocketAddr, round: usize) -> Result<CaseStudyRow> {
        let (before, began) = (self.server.usage()?, Instant::now());
        let pages = case.run_once(&self.server, service)?;
        let (took, after) = (began.elapsed(), self.server.usage()?);
        Ok(CaseStudyRow {
            case: case.name(),
            server: self.name,
            workers: self.workers,
            round,
            pages,
            per_second: pages as f64 / took.as_secs_f64(),
            cpu_us: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / pages as f64,
        })
    }
}

fn headlines(rows: &[CaseStudyRow]) -> Vec<NamedScore> {
    let of = |case: CaseStudy, server, workers| -> Vec<f64> {
        let those = rows.iter().filter(|row| row.case == case.name() && row.server == server);
        those.filter(|row| row.workers == workers).map(|row| row.cpu_us).collect()
    };
    let each = CaseStudy::ALL.into_iter().flat_map(|case| {
        let (one, two, theirs) = (of(case, "orfa", 1), of(case, "orfa", 2), of(case, "cluster", 2));
        let median = |values: &[f64]| benches::stats::median(values);
        let name = case.name();
        let against =
            format!("the same on a cluster of Node with fetch: {:.0} us CPU a page", median(&theirs));
        let rival = ratio(&format!("script.{name}.vs_cluster"), &theirs, &two, at_least(2.0), against);
        let against = format!("one worker: {:.0} us CPU a page", median(&one));
        [rival, ratio(&format!("script.{name}.cpu_2_vs_1"), &two, &one, at_most(1.15), against)]
    });
    each.flatten().collect()
}
