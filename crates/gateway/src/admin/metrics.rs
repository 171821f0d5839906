//! `/metrics`: the metrics of the gateway and its components, collected on request.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use filter::{FilterMetric, FilterStats, MetricValue};
use offload::OffloadStats;
use offload::polls::long_polls;
use script_runtime::PoolStats;
use services::stats::HistogramSnapshot;
use services::{EndpointStats, ServiceStats};

use crate::gateway::Gateway;
use crate::gateway::reload::ReloadState;
use crate::pipeline::RequestPipeline;
use crate::telemetry::metrics::{MetricsPage, ProcessStats};

/// The media type of the OpenMetrics text format, version 1.0.0.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the whole page.
pub(super) fn render_metrics(gateway: &Gateway, process: &Arc<ProcessStats>) -> Result<String, fmt::Error> {
    let (pipeline, is_ready) = (gateway.active_config.pipeline(), gateway.unready_reason().is_none());
    let (reloads, process) = (gateway.reloads().state(), Arc::clone(process));
    MetricsPage::render(move |page| {
        write_build_info(page)?;
        process.write(page)?;
        pipeline.telemetry.metrics.write(page)?;
        let help = "Requests that were refused because the gateway is overloaded";
        page.counter("orfa_requests_shed", help, [([], pipeline.load_shedder.refused())])?;
        write_config(page, &reloads)?;
        page.gauge("orfa_ready", "Whether /readyz reports ready", [([], u64::from(is_ready))])?;
        write_upstream(page, &pipeline.services.stats())?;
        write_offload(page, &pipeline.offload.stats())?;
        write_programs(page, &pipeline)?;
        write_filters(page, &pipeline)?;
        write_scripts(page, &pipeline)
    })
}

fn write_build_info(page: &mut MetricsPage<'_>) -> fmt::Result {
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    page.gauge("orfa_build_info", "The gateway's version", [(labels, 1_u64)])
}

/// The active config, and the results of reloads.
fn write_config(page: &mut MetricsPage<'_>, reloads: &ReloadState) -> fmt::Result {
    let results = [([("result", "ok")], reloads.succeeded), ([("result", "failed")], reloads.failed)];
    page.counter("orfa_config_reloads", "Config reloads, by result", results)?;
    let stale = u64::from(reloads.is_stale);
    page.gauge("orfa_config_stale", "Whether the newest config was refused", [([], stale)])?;
    let since = reloads.active_since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let help = "Activation time of the config, in seconds since the epoch";
    page.gauge("orfa_config_last_reload_success_timestamp_seconds", help, [([], since)])?;
    let labels = [("sha256", &*reloads.digest)];
    page.gauge("orfa_config_info", "The active config", [(labels, 1_u64)])
}

/// The upstream services and their endpoints.
fn write_upstream(page: &mut MetricsPage<'_>, services: &[ServiceStats]) -> fmt::Result {
    let results = services.iter().flat_map(|stats| {
        let succeeded = stats.requests.saturating_sub(stats.failures);
        let results = [("ok", succeeded), ("failed", stats.failures)];
        results.map(|(result, count)| ([("service", &*stats.service), ("result", result)], count))
    });
    let help =
        "Calls without retries; a call has failed if its status is 500 or above, or without a response";
    page.counter("orfa_upstream_requests", help, results)?;
    let each = |count: fn(&ServiceStats) -> u64| {
        services.iter().map(move |stats| ([("service", &*stats.service)], count(stats)))
    };
    let help = "Retries of calls, each to another endpoint";
    page.counter("orfa_upstream_retries", help, each(|stats| stats.retries))?;
    let help = "Retries that were not made because the retry budget was exhausted";
    page.counter("orfa_upstream_retries_refused", help, each(|stats| stats.retries_refused))?;
    let took = services.iter().map(|stats| ([("service", &*stats.service)], stats.response_time.clone()));
    let help = "Time from sending a call to the head of its response, for calls with a response";
    page.histogram("orfa_upstream_request_duration_seconds", help, took)?;
    let mut ends = Vec::new();
    for stats in services {
        for end in &stats.endpoints {
            let address = end.address.map(|address| address.to_string()).unwrap_or_default();
            ends.push((&*stats.service, address, end));
        }
    }
    let each = |count: fn(&EndpointStats) -> u64| {
        ends.iter().map(move |(service, address, end)| {
            ([("service", *service), ("target", &*end.target), ("address", &**address)], count(end))
        })
    };
    let help = "Requests to an endpoint, including retries";
    page.counter("orfa_upstream_endpoint_requests", help, each(|end| end.requests))?;
    let help = "Failed requests to an endpoint, including retries";
    page.counter("orfa_upstream_endpoint_failures", help, each(|end| end.failures))?;
    let help = "Outlier ejections of an endpoint";
    page.counter("orfa_upstream_endpoint_ejections", help, each(|end| end.ejections))?;
    let help = "Requests in flight at an endpoint";
    page.gauge("orfa_upstream_endpoint_requests_in_flight", help, each(|end| u64::from(end.outstanding)))?;
    let help = "Whether an endpoint receives requests";
    page.gauge("orfa_upstream_endpoint_healthy", help, each(|end| u64::from(end.healthy)))
}

/// The offload pool: threads for work that clients cause.
fn write_offload(page: &mut MetricsPage<'_>, stats: &OffloadStats) -> fmt::Result {
    let help = "Jobs queued for the offload pool";
    page.gauge("orfa_offload_jobs_queued", help, [([], stats.queued as u64)])?;
    let help = "Jobs that run in the offload pool";
    page.gauge("orfa_offload_jobs_in_flight", help, [([], stats.running as u64)])?;
    let jobs = stats.kinds.iter().map(|(kind, stats)| ([("kind", *kind)], stats.jobs));
    page.counter("orfa_offload_jobs", "Jobs submitted to the offload pool, by kind", jobs)?;
    let cpu = stats.kinds.iter().map(|(kind, stats)| ([("kind", *kind)], stats.cpu.as_secs_f64()));
    page.counter("orfa_offload_cpu_seconds", "CPU time of jobs in the offload pool", cpu)?;
    let failed = stats.rejected.iter().map(|(reason, count)| ([("reason", *reason)], *count));
    page.counter("orfa_offload_jobs_failed", "Jobs of the offload pool without a result, by reason", failed)?;
    let long = long_polls().into_iter().map(|(site, count)| ([("where", site)], count));
    page.counter("orfa_long_polls", "Polls that took more than 2 ms of their thread's CPU time", long)
}

/// The query runtime: its compile cache and its instance pools.
fn write_programs(page: &mut MetricsPage<'_>, pipeline: &RequestPipeline) -> fmt::Result {
    let Some(runtime) = &pipeline.runtime else { return Ok(()) };
    let cache = runtime.cache_stats();
    let mut gauge = |name: &str, help: &str, value: usize| page.gauge(name, help, [([], value as u64)]);
    gauge("orfa_program_cache_bytes", "Bytes of compiled programs in the cache", cache.bytes)?;
    gauge("orfa_program_cache_items", "Compiled programs in the cache", cache.items)?;
    let mut counter = |name: &str, help: &str, value: u64| page.counter(name, help, [([], value)]);
    counter("orfa_program_cache_hits", "Requests for a program in the compile cache", cache.hits)?;
    counter("orfa_program_cache_misses", "Requests whose program had to be compiled", cache.misses)?;
    counter("orfa_program_cache_evictions", "Compiled programs evicted from the cache", cache.evictions)?;
    let compiling = runtime.compile_time().as_secs_f64();
    page.counter("orfa_program_compile_seconds", "Time spent compiling", [([], compiling)])?;
    let pools = runtime.pool_usage();
    let used = pools.iter().map(|pool| ([("class", pool.class)], pool.in_use as u64));
    page.gauge("orfa_program_instances_used", "Instances that run a program", used)?;
    let all = pools.iter().map(|pool| ([("class", pool.class)], pool.capacity as u64));
    page.gauge("orfa_program_instances_max", "Maximum number of instances", all)
}

/// The filters, and the metrics that their modules define.
fn write_filters(page: &mut MetricsPage<'_>, pipeline: &RequestPipeline) -> fmt::Result {
    let Some(filters) = &pipeline.filters else { return Ok(()) };
    let stats = filters.stats();
    let each = |count: fn(&FilterStats) -> u64| {
        stats.iter().map(move |stats| ([("filter", &*stats.filter)], count(stats)))
    };
    page.counter(
        "orfa_filter_requests",
        "Requests that passed through a filter",
        each(|stats| stats.requests),
    )?;
    let help = "Requests that a filter answered itself";
    page.counter("orfa_filter_local_responses", help, each(|stats| stats.local_responses))?;
    let help = "Traps, including callbacks that exceeded their CPU time or memory limit";
    page.counter("orfa_filter_traps", help, each(|stats| stats.traps))?;
    let help = "Starts of a filter, including its configuration";
    page.counter("orfa_filter_starts", help, each(|stats| stats.starts))?;
    page.counter("orfa_filter_calls", "HTTP and gRPC calls of a filter", each(|stats| stats.calls))?;
    let help = "Requests that ended with a problem because of a filter";
    page.counter("orfa_filter_failed", help, each(|stats| stats.failed_requests))?;
    let help = "Requests that bypassed a filter after a trap";
    page.counter("orfa_filter_bypassed", help, each(|stats| stats.bypassed_requests))?;
    let help = "HTTP and gRPC calls of a filter that could not be made";
    page.counter("orfa_filter_refused_calls", help, each(|stats| stats.refused_calls))?;
    let help = "Other host calls that returned an error to a filter";
    page.counter("orfa_filter_hostcall_errors", help, each(|stats| stats.hostcall_errors))?;
    write_module_metrics(page, filters.metrics())
}

/// The services in S and their workers.
fn write_scripts(page: &mut MetricsPage<'_>, pipeline: &RequestPipeline) -> fmt::Result {
    if pipeline.scripts.is_none() {
        return Ok(());
    }
    let stats: Vec<_> =
        pipeline.routes.scripts().map(|(_, script)| (script.name(), script.stats())).collect();
    let each = |count: fn(&PoolStats) -> usize| {
        stats.iter().map(move |(name, stats)| ([("service", *name)], count(stats) as u64))
    };
    page.gauge("orfa_script_workers", "Worker processes of a script", each(|stats| stats.workers))?;
    page.gauge("orfa_script_runs_in_flight", "Runs in flight in workers", each(|stats| stats.runs))?;
    page.gauge("orfa_script_runs_busy", "Runs in flight that use CPU", each(|stats| stats.busy))?;
    let help = "Runs that began, including those called by other runs";
    page.counter("orfa_script_runs", help, each(|stats| stats.runs_started))?;
    let help = "Runs that were answered without a worker";
    page.counter("orfa_script_runs_composed", help, each(|stats| stats.inline_runs))?;
    page.counter("orfa_script_commits", "Committed writes", each(|stats| stats.commits))?;
    let help = "Writers queued for a state group";
    page.gauge("orfa_script_writers_waiting", help, each(|stats| stats.waiting_writers))?;
    let help = "Workers that were started to replace lost ones";
    page.counter("orfa_script_worker_restarts", help, each(|stats| stats.restarts))?;
    let ready = pipeline
        .routes
        .scripts()
        .map(|(_, script)| ([("service", script.name())], u64::from(script.is_ready())));
    page.gauge("orfa_script_ready", "Whether a worker has the active script", ready)
}

/// The metrics that filter modules define. Their names become labels, because they may not be valid metric
/// names.
fn write_module_metrics(page: &mut MetricsPage<'_>, metrics: Vec<FilterMetric>) -> fmt::Result {
    let (mut counters, mut gauges, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    for FilterMetric { name, value } in &metrics {
        match value {
            MetricValue::Counter(count) => counters.push(([("name", &**name)], *count)),
            MetricValue::Gauge(now) => gauges.push(([("name", &**name)], *now)),
            MetricValue::Histogram { buckets, sum, count } => {
                histograms.push(([("name", &**name)], from_cumulative(buckets, *sum, *count)));
            }
        }
    }
    page.counter("orfa_wasm", "Counters defined by filter modules", counters)?;
    page.gauge("orfa_wasm_gauge", "Gauges defined by filter modules", gauges)?;
    page.histogram("orfa_wasm_histogram", "Histograms defined by filter modules", histograms)
}

/// Converts a histogram with cumulative buckets to one without.
fn from_cumulative(upto: &[(f64, u64)], sum: f64, count: u64) -> HistogramSnapshot {
    let mut before = 0;
    let own = |(bound, upto)| (bound, upto - std::mem::replace(&mut before, upto));
    let buckets = upto.iter().copied().chain([(f64::INFINITY, count)]).map(own).collect();
    HistogramSnapshot { buckets, sum, count }
}
