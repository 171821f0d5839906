//! Proxy-Wasm filters next to Envoy's: the cost of one header, the cost of a local response (the case of the
//! document "APISIX and Wasm": 32,405 requests per second native, 17,903 with Wasm), and the memory of routes
//! with filters.
//!
//! Both servers run the same modules. `header` and `fault` are written in WebAssembly text, so that the host
//! is measured; the example `fault-injection` is written in Go, as the document's plugin was. The fault
//! injected by an external program is a service that responds with it, behind the plain proxy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use serde::Serialize;

use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::rivals::{ClientProtocol, RivalProxy, RivalTreatment};
use crate::{BenchTools, print_line, reload};

/// Many short rounds: the added cost is the difference of two large figures, which other processes on the
/// machine affect.
const ROUNDS: usize = 8;
const ROUND: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(1);
/// The number of routes with the same filter.
const ROUTES: usize = 100;

/// Headlines with their names.
type NamedHeadlines = Vec<(String, HeadlineScore)>;

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterTreatment {
    /// Proxied.
    Plain,
    /// Proxied, with one header added by a module.
    Header,
    /// Answered by the server itself.
    Native,
    /// Answered by a module.
    Fault,
    /// Answered by the example in Go.
    FaultInGo,
}

impl FilterTreatment {
    fn load(self) -> RepeatedRequests<'static> {
        match self {
            Self::Plain | Self::Header => RepeatedRequests::Get("/small"),
            Self::Native | Self::Fault | Self::FaultInGo => RepeatedRequests::GetErrors("/small"),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum FilterRow {
    Busy {
        server: &'static str,
        case: String,
        round: usize,
        cpu_us: f64,
        per_second: f64,
        per_cpu_second: f64,
    },
    Routes {
        routes: usize,
        rss_mb: f64,
    },
    Reloads {
        times: usize,
        requests: u64,
        failed_or_mixed: u64,
        growth_mb: f64,
    },
}

/// The paths of the modules.
struct ModulePaths {
    header: PathBuf,
    fault: PathBuf,
    name: PathBuf,
    /// `None` if Go is not installed.
    fault_in_go: Option<PathBuf>,
    _folder: tempfile::TempDir,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let modules = ModulePaths::build()?;
    let proxies: Vec<RivalProxy> =
        RivalProxy::installed(tools).into_iter().filter(|proxy| *proxy != RivalProxy::Nginx).collect();
    let cases = [
        FilterTreatment::Plain,
        FilterTreatment::Header,
        FilterTreatment::Native,
        FilterTreatment::Fault,
        FilterTreatment::FaultInGo,
    ];
    let all = (proxies.len() * cases.len()) as u32;
    let progress =
        BenchProgress::new(tools, (tools.round_time(ROUND) * tools.rounds(ROUNDS) as u32 + WARM_UP) * all);
    let upstream = ServerProcess::start_upstream(&tools.upstream)?;
    let mut servers = Vec::new();
    for proxy in &proxies {
        for case in cases {
            let Some(filter) = modules.filter_for(case) else { continue };
            let server = proxy.start_with(tools, upstream.address, ClientProtocol::Http1, filter)?;
            load(&server, case.load(), WARM_UP).with_context(|| format!("{} ({case:?})", proxy.name()))?;
            servers.push((proxy.name(), case, server));
        }
    }
    let mut rows = Vec::new();
    for round in 0..tools.rounds(ROUNDS) {
        for (server, case, running) in &servers {
            let LoadRound { per_second, cpu_us, .. } = load(running, case.load(), tools.round_time(ROUND))?;
            let case = format!("{case:?}").to_lowercase();
            progress.report(&format!("{case:<10} {server:<5} {cpu_us:>6.2} us, {per_second:>6.0} a s"));
            rows.push(FilterRow::Busy {
                server,
                case,
                round,
                cpu_us,
                per_second,
                per_cpu_second: 1e6 / cpu_us,
            });
        }
    }
    drop(servers);
    let memory = measure_memory(tools, &modules, &upstream)?;
    let mut scores = scores(&rows, &proxies);
    scores.extend(memory.1);
    rows.extend(memory.0);
    let reloads = reload::measure_filter_reloads(tools, &modules.name)?;
    let reload::FilterReloads { times, requests, failed_or_mixed, growth_mb } = reloads;
    scores.push(lower_is_better(
        "reload.failed",
        failed_or_mixed as f64,
        "requests",
        0.0,
        format!("{requests} requests over {times} reloads; the second half of them added {growth_mb:.1} MB"),
    ));
    rows.push(FilterRow::Reloads { times, requests, failed_or_mixed, growth_mb });
    tools.write_results("filter", &rows, scores)
}

impl ModulePaths {
    fn build() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let text = |name: &str| -> Result<PathBuf> {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(format!("{name}.wat"));
            let module = folder.path().join(format!("{name}.wasm"));
            std::fs::write(&module, wat::parse_file(source)?)?;
            Ok(module)
        };
        let fault_in_go = folder.path().join("fault-injection.wasm");
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fault-injection");
        let built = Command::new("go")
            .args(["build", "-buildmode=c-shared", "-o"])
            .arg(&fault_in_go)
            .arg(".")
            .envs([("GOOS", "wasip1"), ("GOARCH", "wasm")])
            .current_dir(example)
            .status();
        let is_built = built.is_ok_and(|status| status.success());
        if !is_built {
            print_line("  examples/fault-injection can't be built with Go: its row is left out");
        }
        let (header, fault, name) = (text("header")?, text("fault")?, text("name")?);
        Ok(Self { header, fault, name, fault_in_go: is_built.then_some(fault_in_go), _folder: folder })
    }

    /// The filter for a case; `None` if it is not available.
    fn filter_for(&self, case: FilterTreatment) -> Option<RivalTreatment<'_>> {
        /// The configuration of the example, as in APISIX.
        const CONF: &str = r#"{"http_status":503,"body":"fault injection","percentage":100}"#;
        match case {
            FilterTreatment::Plain => Some(RivalTreatment::None),
            FilterTreatment::Native => Some(RivalTreatment::Answer),
            FilterTreatment::Header => Some(RivalTreatment::Module(&self.header, "")),
            FilterTreatment::Fault => Some(RivalTreatment::Module(&self.fault, "")),
            FilterTreatment::FaultInGo => {
                self.fault_in_go.as_deref().map(|module| RivalTreatment::Module(module, CONF))
            }
        }
    }
}

/// CPU microseconds per request, by round.
fn cpu_cost(rows: &[FilterRow], wanted: &str, of: FilterTreatment) -> Vec<f64> {
    let of = format!("{of:?}").to_lowercase();
    let figure = |row: &FilterRow| match row {
        FilterRow::Busy { server, case, cpu_us, .. } if *server == wanted && *case == of => Some(*cpu_us),
        _ => None,
    };
    rows.iter().filter_map(figure).collect()
}

/// The additional cost of one case over another, by round.
fn added_cost(rows: &[FilterRow], server: &str, more: FilterTreatment, less: FilterTreatment) -> Vec<f64> {
    cpu_cost(rows, server, more)
        .iter()
        .zip(cpu_cost(rows, server, less))
        .map(|(more, less)| more - less)
        .collect()
}

fn scores(rows: &[FilterRow], proxies: &[RivalProxy]) -> NamedHeadlines {
    let (orfa, envoy) = (RivalProxy::Orfa.name(), RivalProxy::Envoy.name());
    let score = |name: &str, values: &[f64], unit: &str, better, target, against: String| {
        let score = HeadlineScore {
            value: median(values),
            unit: unit.into(),
            better,
            target: Some(target),
            against,
            spread: spread(values),
        };
        (format!("filter.{name}"), score)
    };
    let header = added_cost(rows, orfa, FilterTreatment::Header, FilterTreatment::Plain);
    let local = added_cost(rows, orfa, FilterTreatment::Fault, FilterTreatment::Native);
    let plain = format!("a plain proxy at {:.1} us", median(&cpu_cost(rows, orfa, FilterTreatment::Plain)));
    let native =
        format!("a response of its own at {:.1} us", median(&cpu_cost(rows, orfa, FilterTreatment::Native)));
    let mut scores = vec![
        score("header.added_us", &header, "us", BetterDirection::Lower, 4.0, plain),
        score("local.added_us", &local, "us", BetterDirection::Lower, 3.0, native),
    ];
    if proxies.contains(&RivalProxy::Envoy) {
        let theirs = added_cost(rows, envoy, FilterTreatment::Header, FilterTreatment::Plain);
        // Uses the median, since the difference of a single round may be close to zero.
        let usual = median(&theirs);
        let ratios: Vec<f64> = header.iter().map(|ours| ours / usual).collect();
        let against = format!("{usual:.1} us that Envoy adds with the same module");
        scores.push(score(
            "header.added_cpu_vs_envoy",
            &ratios,
            "ratio",
            BetterDirection::Lower,
            1.0,
            against,
        ));
        let (ours, theirs) =
            (cpu_cost(rows, orfa, FilterTreatment::Fault), cpu_cost(rows, envoy, FilterTreatment::Fault));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
        let against = format!("{:.0} a CPU second of Envoy with the same module", 1e6 / median(&theirs));
        scores.push(score(
            "local.per_cpu_s_vs_envoy",
            &ratios,
            "ratio",
            BetterDirection::Higher,
            1.0,
            against,
        ));
    }
    scores
}

/// A headline of a single measurement, where less is better.
fn lower_is_better(
    name: &str,
    value: f64,
    unit: &str,
    target: f64,
    against: String,
) -> (String, HeadlineScore) {
    let (unit, target) = (unit.into(), Some(target));
    (
        format!("filter.{name}"),
        HeadlineScore { value, unit, better: BetterDirection::Lower, target, against, spread: 0.0 },
    )
}

/// The memory of routes with filters of the same module, in Go if available, each with its own configuration.
fn measure_memory(
    tools: &BenchTools,
    modules: &ModulePaths,
    upstream: &ServerProcess,
) -> Result<(Vec<FilterRow>, NamedHeadlines)> {
    let (module, name) = match &modules.fault_in_go {
        Some(module) => (module, "the example in Go"),
        None => (&modules.fault, "a module of one page"),
    };
    let mut rss = Vec::new();
    for routes in [1, ROUTES] {
        let mut yaml =
            format!("services: {{ service: {{ url: 'http://{}' }} }}\nroutes:\n", upstream.address);
        for route in 0..routes {
            yaml += &format!(
                "  - path: /{route}/*\n    proxy: service\n    filters: [{{ wasm: '{}', \
                 config: {{ http_status: 503, body: 'route {route}', percentage: 100 }} }}]\n",
                module.display()
            );
        }
        let server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
        let last = format!("/{}/x", routes - 1);
        load(&server, RepeatedRequests::GetErrors(&last), WARM_UP)?;
        rss.push(server.usage()?.rss as f64 / 1e6);
        print_line(&format!("  {routes} routes with {name}: {:.1} MB", rss[rss.len() - 1]));
    }
    ensure!(rss.len() == 2, "two gateways are measured");
    let each = (rss[1] - rss[0]) / (ROUTES - 1) as f64;
    let scores = vec![
        lower_is_better("mb_per_route", each, "MB", 4.0, format!("{:.1} MB with one route, {name}", rss[0])),
        lower_is_better("hundred_routes_rss_mb", rss[1], "MB", 480.0, format!("{ROUTES} routes with {name}")),
    ];
    let rows = [1, ROUTES]
        .into_iter()
        .zip(rss)
        .map(|(routes, rss_mb)| FilterRow::Routes { routes, rss_mb })
        .collect();
    Ok((rows, scores))
}
