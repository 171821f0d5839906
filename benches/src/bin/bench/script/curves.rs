//! The paper's figures 2 to 4 from our own runs: the speed-up of the two case studies with more workers, next
//! to the speed-up of pure arithmetic with more threads on this machine; and the requests and responses
//! during a crawl. The load and the pages share the cores with the workers.

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::page::svg::{ChartLine, HorizontalAxis, LineChart, draw};
use benches::scoreboard;
use benches::stats::median;
use benches::upstream::tree_page;
use http::Request;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::body::Incoming;
use serde::Serialize;

use super::cases::{CaseStudy, crawl, mapreduce};
use super::servers::{ALL_CORES, ScriptGateway, example_path};
use crate::process::ServerProcess;
use crate::progress::BenchProgress;
use crate::service::{BenchService, BenchServiceResponse, text_response};
use crate::{BenchTools, open_loop};

const WORKERS: [u32; 4] = [1, 2, 4, 8];
const DEPTHS: &[u32] = &[10, 12, 14];
/// A depth of 16, for 65,535 pages.
const LONG_DEPTH: u32 = 16;
/// The depth of the crawl that is observed while it runs.
const WATCHED_DEPTH: u32 = 12;
/// The number of jobs, with five pages each.
const JOBS: usize = 400;
const WARM_UP_DEPTH: u32 = 9;
const TURNS: usize = 3;
const SAMPLE: Duration = Duration::from_millis(10);
const ARITHMETIC: Duration = Duration::from_millis(500);
const EXPECTED_DURATION: Duration = Duration::from_secs(90);

#[derive(Serialize)]
#[serde(untagged)]
enum CurvesRow {
    Ceiling { processes: u32, speed_up: f64 },
    Case { case: &'static str, workers: u32, depth: Option<u32>, pages: u64, per_second: f64 },
    Watched { workers: u32, seconds: f64, requests: u64, answers: u64 },
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let upstream = ServerProcess::start_upstream_on(ALL_CORES, &tools.upstream)?;
    let speed_up = WORKERS.map(speed_up);
    let mut rows: Vec<CurvesRow> = WORKERS
        .into_iter()
        .zip(speed_up)
        .map(|(processes, speed_up)| CurvesRow::Ceiling { processes, speed_up })
        .collect();
    let depths: Vec<u32> = DEPTHS.iter().copied().chain(tools.is_long.then_some(LONG_DEPTH)).collect();
    let depths = if tools.is_short { DEPTHS[..1].to_vec() } else { depths };
    for workers in WORKERS {
        let server = CaseStudy::MapReduce.start(tools, upstream.address, workers)?;
        let measured = || time_pages(mapreduce::count(server.address, upstream.address, JOBS));
        rows.push(measure_case(CaseStudy::MapReduce, workers, None, tools, &progress, measured)?);
        let server = CaseStudy::Crawler.start(tools, upstream.address, workers)?;
        time_pages(crawl::crawl(server.address, upstream.address, WARM_UP_DEPTH))?;
        for depth in &depths {
            let measured = || time_pages(crawl::crawl(server.address, upstream.address, *depth));
            rows.push(measure_case(CaseStudy::Crawler, workers, Some(*depth), tools, &progress, measured)?);
        }
        rows.extend(measure_watched(tools, workers)?);
    }
    if !tools.is_short {
        write_figures(&rows, &speed_up, &depths)?;
    }
    tools.write_results("curves", &rows, [])
}

/// The median of several runs after a first one that is not counted.
fn measure_case(
    case: CaseStudy,
    workers: u32,
    depth: Option<u32>,
    tools: &BenchTools,
    progress: &BenchProgress,
    measured: impl Fn() -> Result<(u64, f64)>,
) -> Result<CurvesRow> {
    let is_long = depth.is_some_and(|depth| depth > WATCHED_DEPTH);
    let turns = if is_long { 1 } else { tools.rounds(TURNS) };
    let _first = if is_long { None } else { Some(measured()?) };
    let (mut pages, mut per_second) = (0, Vec::new());
    for _ in 0..turns {
        let (count, seconds) = measured()?;
        pages = count;
        per_second.push(count as f64 / seconds);
    }
    let (case, per_second) = (case.name(), median(&per_second));
    let of_depth = depth.map_or_else(String::new, |depth| format!(", depth {depth}"));
    progress.report(&format!("{case:<9} {workers} workers{of_depth}: {per_second:>7.0} pages/s"));
    Ok(CurvesRow::Case { case, workers, depth, pages, per_second })
}

/// Runs some work. Returns the number of pages, and seconds.
fn time_pages(work: impl Future<Output = Result<u64>>) -> Result<(u64, f64)> {
    let began = Instant::now();
    let pages = open_loop::run_anywhere(work)??;
    Ok((pages, began.elapsed().as_secs_f64()))
}

/// The speed-up of arithmetic on this many threads over one.
fn speed_up(threads: u32) -> f64 {
    let work = |threads: u32| -> u64 {
        let threads: Vec<_> = (0..threads).map(|_| std::thread::spawn(arithmetic)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    };
    let turns: Vec<f64> = (0..TURNS).map(|_| work(threads) as f64 / work(1).max(1) as f64).collect();
    median(&turns)
}

/// The number of sums that are computed in a fixed time.
fn arithmetic() -> u64 {
    let (end, mut turns) = (Instant::now() + ARITHMETIC, 0);
    while Instant::now() < end {
        black_box((0..10_000_u64).fold(0, |sum: u64, n| black_box(sum.wrapping_mul(31).wrapping_add(n))));
        turns += 1;
    }
    turns
}

/// Counters of the pages: requests, and crawls that were about to respond.
#[derive(Default)]
struct PageCounters {
    requests: AtomicU64,
    answers: AtomicU64,
}

/// Runs a crawl whose requests and responses are counted by the page server: the script makes a call to it
/// before it responds.
fn measure_watched(tools: &BenchTools, workers: u32) -> Result<Vec<CurvesRow>> {
    let counters = Arc::<PageCounters>::default();
    open_loop::run_anywhere(async {
        let counted = Arc::clone(&counters);
        let pages = BenchService::start(SocketAddr::from(([127, 0, 0, 1], 0)), move |request| {
            serve_page(request, Arc::clone(&counted))
        })?;
        let folder = tempfile::tempdir()?;
        let script = folder.path().join("crawler.sjs");
        std::fs::write(&script, counting_script(pages.address)?)?;
        let scripted =
            ScriptGateway { cores: ALL_CORES, workers, ..ScriptGateway::new(script, pages.address) };
        let server = tokio::task::spawn_blocking({
            let tools = tools.clone();
            move || scripted.start(&tools)
        })
        .await??;
        crawl::crawl(server.address, pages.address, WARM_UP_DEPTH).await?;
        let [requests, answers] = [counters.requests.swap(0, Relaxed), counters.answers.swap(0, Relaxed)];
        ensure!(requests == answers, "{requests} pages were read, but {answers} crawls responded");
        record_counters(workers, &counters, crawl::crawl(server.address, pages.address, WATCHED_DEPTH)).await
    })?
}

/// Records the counters periodically until the crawl ends.
async fn record_counters(
    workers: u32,
    counters: &PageCounters,
    crawl: impl Future<Output = Result<u64>>,
) -> Result<Vec<CurvesRow>> {
    let (mut crawl, began, mut rows) = (std::pin::pin!(crawl), Instant::now(), Vec::new());
    loop {
        let (requests, answers) = (counters.requests.load(Relaxed), counters.answers.load(Relaxed));
        rows.push(CurvesRow::Watched { workers, seconds: began.elapsed().as_secs_f64(), requests, answers });
        if let Ok(done) = tokio::time::timeout(SAMPLE, crawl.as_mut()).await {
            let (seconds, pages) = (began.elapsed().as_secs_f64(), done?);
            rows.push(CurvesRow::Watched { workers, seconds, requests: pages, answers: pages });
            return Ok(rows);
        }
    }
}

/// The example with an additional call at its end.
fn counting_script(pages: SocketAddr) -> Result<String> {
    let text = std::fs::read_to_string(example_path("crawler/crawler.sjs"))?;
    let end = "    res '/urlsDiscovered' {";
    ensure!(text.contains(end), "the source of the crawler has changed");
    Ok(text.replacen(end, &format!("    res told = 'http://{pages}/told'\n    told.get()\n{end}"), 1))
}

async fn serve_page(request: Request<Incoming>, counters: Arc<PageCounters>) -> BenchServiceResponse {
    let number = request.uri().query().and_then(|query| query.strip_prefix("n=")?.parse().ok());
    let Some(number) = number else {
        counters.answers.fetch_add(1, Relaxed);
        return text_response("thank you");
    };
    counters.requests.fetch_add(1, Relaxed);
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut page = text_response(tree_page(host, number));
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    page
}

/// Draws the three figures.
fn write_figures(rows: &[CurvesRow], speed_up: &[f64], depths: &[u32]) -> Result<()> {
    let folder = scoreboard::results_folder();
    let curve = |study: CaseStudy, of: Option<u32>, name: String| {
        let points = rows.iter().filter_map(|row| match row {
            CurvesRow::Case { case, workers, depth, per_second, .. }
                if *case == study.name() && *depth == of =>
            {
                Some((f64::from(*workers), *per_second))
            }
            _ => None,
        });
        ChartLine { name, points: points.collect(), is_ceiling: false }
    };
    let chart = |title: &str, mut lines: Vec<ChartLine>| {
        let one = lines.last().and_then(|line| line.points.first()).map_or(0.0, |(_, first)| *first);
        let points =
            WORKERS.into_iter().zip(speed_up).map(|(workers, ratio)| (f64::from(workers), one * ratio));
        let name = "mere arithmetic, from one worker on".to_owned();
        lines.push(ChartLine { name, points: points.collect(), is_ceiling: true });
        let x = HorizontalAxis { name: "workers", marks: Some(WORKERS.map(f64::from).to_vec()) };
        LineChart { title: title.into(), x, y: "pages/s", lines }
    };
    let mapreduce = chart("Map-reduce", vec![curve(CaseStudy::MapReduce, None, "five pages a job".into())]);
    let crawls = depths.iter().map(|depth| curve(CaseStudy::Crawler, Some(*depth), format!("depth {depth}")));
    let crawler = chart("Crawler", crawls.collect());
    let time = WORKERS.map(|workers| progress_chart(rows, workers));
    for (name, charts) in
        [("script-mapreduce", &[mapreduce][..]), ("script-crawler", &[crawler]), ("script-crawl-time", &time)]
    {
        std::fs::write(folder.join(Path::new(name)).with_extension("svg"), draw(charts))?;
    }
    Ok(())
}

fn progress_chart(rows: &[CurvesRow], of: u32) -> LineChart {
    let line = |name: &str, count: fn(u64, u64) -> u64| {
        let points = rows.iter().filter_map(|row| match row {
            CurvesRow::Watched { workers, seconds, requests, answers } if *workers == of => {
                Some((*seconds, count(*requests, *answers) as f64))
            }
            _ => None,
        });
        ChartLine { name: name.into(), points: points.collect(), is_ceiling: false }
    };
    let lines = vec![line("requests", |requests, _| requests), line("answers", |_, answers| answers)];
    let title = format!("A crawl of depth {WATCHED_DEPTH}, {of} worker{}", if of == 1 { "" } else { "s" });
    LineChart { title, x: HorizontalAxis { name: "seconds", marks: None }, y: "in all", lines }
}
