//! `/metrics`: what the gateway and everything in it counts, put together when it is asked for.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use filter::{FilterStats, Metric, Value};
use offload::OffloadStats;
use offload::polls::long_polls;
use script_runtime::PoolStats;
use services::stats::Reading;
use services::{EndpointStats, ServiceStats};

use crate::gateway::Gateway;
use crate::life::Life;
use crate::metrics::{Page, Process};
use crate::reload::ReloadState;

/// The media type of the OpenMetrics text format, version 1.0.0.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole text.
pub(super) fn text(gateway: &Gateway, process: &Arc<Process>) -> Result<String, fmt::Error> {
    let (life, is_ready) = (gateway.current.life(), gateway.unready().is_none());
    let (reloads, process) = (gateway.reloads().state(), Arc::clone(process));
    Page::of(move |page| {
        build(page)?;
        process.write(page)?;
        life.audience.metrics.write(page)?;
        let help = "Requests that were refused because the gateway has more to do than it can";
        page.counter("orfa_requests_shed", help, [([], life.shed.refused())])?;
        config(page, &reloads)?;
        page.gauge("orfa_ready", "Whether /readyz says yes", [([], u64::from(is_ready))])?;
        upstream(page, &life.services.stats())?;
        offload(page, &life.offload.stats())?;
        programs(page, &life)?;
        filters(page, &life)?;
        scripts(page, &life)
    })
}

fn build(page: &mut Page<'_>) -> fmt::Result {
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    page.gauge("orfa_build_info", "The gateway's version", [(labels, 1_u64)])
}

/// The config in force, and what became of others.
fn config(page: &mut Page<'_>, reloads: &ReloadState) -> fmt::Result {
    let results = [([("result", "ok")], reloads.succeeded), ([("result", "failed")], reloads.failed)];
    page.counter("orfa_config_reloads", "Configs that were read after the first", results)?;
    let stale = u64::from(reloads.is_stale);
    page.gauge("orfa_config_stale", "Whether the newest config was refused", [([], stale)])?;
    let since = reloads.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let help = "When the config came into force, since the epoch";
    page.gauge("orfa_config_since_timestamp_seconds", help, [([], since)])?;
    let labels = [("sha256", &*reloads.digest)];
    page.gauge("orfa_config_info", "The config in force", [(labels, 1_u64)])
}

/// The services behind the gateway, and each of their endpoints.
fn upstream(page: &mut Page<'_>, services: &[ServiceStats]) -> fmt::Result {
    let outcomes = services.iter().flat_map(|stats| {
        let answered = stats.requests.saturating_sub(stats.failures);
        let outcomes = [("answered", answered), ("failed", stats.failures)];
        outcomes.map(|(outcome, count)| ([("service", &*stats.service), ("outcome", outcome)], count))
    });
    let help = "Calls, retries not counted; one has failed that ends with 500 or more, or without an answer";
    page.counter("orfa_upstream_requests", help, outcomes)?;
    let each = |count: fn(&ServiceStats) -> u64| {
        services.iter().map(move |stats| ([("service", &*stats.service)], count(stats)))
    };
    let help = "Calls that were sent to another endpoint";
    page.counter("orfa_upstream_retries", help, each(|stats| stats.retries))?;
    let help = "Calls that were not sent again because the budget for retries was used up";
    page.counter("orfa_upstream_retries_refused", help, each(|stats| stats.retries_refused))?;
    let took = services.iter().map(|stats| ([("service", &*stats.service)], stats.took.clone()));
    let help = "From sending a call to the head of its answer, of calls that were answered";
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
    let help = "Requests that an endpoint was given, retries counted";
    page.counter("orfa_upstream_endpoint_requests", help, each(|end| end.requests))?;
    let help = "Those of them that failed";
    page.counter("orfa_upstream_endpoint_failures", help, each(|end| end.failures))?;
    let help = "How often an endpoint was left out for failing";
    page.counter("orfa_upstream_endpoint_ejections", help, each(|end| end.ejections))?;
    let help = "Requests that are under way at an endpoint";
    page.gauge("orfa_upstream_endpoint_under_way", help, each(|end| u64::from(end.outstanding)))?;
    let help = "Whether an endpoint gets requests";
    page.gauge("orfa_upstream_endpoint_healthy", help, each(|end| u64::from(end.healthy)))
}

/// The threads for work that clients cause.
fn offload(page: &mut Page<'_>, stats: &OffloadStats) -> fmt::Result {
    let help = "Jobs that wait for a thread of low priority";
    page.gauge("orfa_offload_queued", help, [([], stats.queued as u64)])?;
    page.gauge("orfa_offload_running", "Jobs that such a thread has", [([], stats.running as u64)])?;
    let jobs = stats.kinds.iter().map(|(kind, stats)| ([("kind", *kind)], stats.jobs));
    page.counter("orfa_offload_jobs", "Jobs that were given to such a thread, by kind", jobs)?;
    let cpu = stats.kinds.iter().map(|(kind, stats)| ([("kind", *kind)], stats.cpu.as_secs_f64()));
    page.counter("orfa_offload_cpu_seconds", "CPU time of those jobs", cpu)?;
    let rejected = stats.rejected.iter().map(|(reason, count)| ([("reason", *reason)], *count));
    page.counter("orfa_offload_rejected", "Jobs without a result, by reason", rejected)?;
    let long = long_polls().into_iter().map(|(site, count)| ([("where", site)], count));
    page.counter("orfa_long_polls", "Polls that took more than 2 ms of their thread's CPU time", long)
}

/// The query runtime: its cache of compiled programs, and its instances.
fn programs(page: &mut Page<'_>, life: &Life) -> fmt::Result {
    let Some(runtime) = &life.runtime else { return Ok(()) };
    let cache = runtime.cache();
    let mut gauge = |name: &str, help: &str, value: usize| page.gauge(name, help, [([], value as u64)]);
    gauge("orfa_program_cache_bytes", "Bytes of compiled programs that are kept", cache.bytes)?;
    gauge("orfa_program_cache_items", "Compiled programs that are kept", cache.items)?;
    let mut counter = |name: &str, help: &str, value: u64| page.counter(name, help, [([], value)]);
    counter("orfa_program_cache_hits", "Requests whose program was compiled already", cache.hits)?;
    counter("orfa_program_cache_misses", "Requests whose program had to be compiled", cache.misses)?;
    counter("orfa_program_cache_evictions", "Compiled programs that were pushed out", cache.evictions)?;
    let compiling = runtime.compiling_time().as_secs_f64();
    page.counter("orfa_program_compile_seconds", "Time that compiling took", [([], compiling)])?;
    let pools = runtime.used();
    let used = pools.iter().map(|pool| ([("class", pool.class)], pool.used as u64));
    page.gauge("orfa_program_instances_used", "Instances that run a program", used)?;
    let all = pools.iter().map(|pool| ([("class", pool.class)], pool.all as u64));
    page.gauge("orfa_program_instances", "Instances that there may be at once", all)
}

/// The filters, and what their modules count themselves.
fn filters(page: &mut Page<'_>, life: &Life) -> fmt::Result {
    let Some(filters) = &life.filters else { return Ok(()) };
    let stats = filters.stats();
    let each = |count: fn(&FilterStats) -> u64| {
        stats.iter().map(move |stats| ([("filter", &*stats.filter)], count(stats)))
    };
    page.counter("orfa_filter_requests", "Requests that a filter has seen", each(|stats| stats.requests))?;
    let help = "Requests that a filter answered itself";
    page.counter("orfa_filter_local_responses", help, each(|stats| stats.local_responses))?;
    let help = "Traps, with callbacks that ran out of time or memory";
    page.counter("orfa_filter_traps", help, each(|stats| stats.traps))?;
    let help = "How often a filter was started and configured";
    page.counter("orfa_filter_starts", help, each(|stats| stats.starts))?;
    page.counter("orfa_filter_calls", "HTTP and gRPC calls of a filter", each(|stats| stats.calls))?;
    let help = "Requests that ended with a problem of a filter's making";
    page.counter("orfa_filter_failed", help, each(|stats| stats.failed))?;
    let help = "Requests that went on without a filter after a trap";
    page.counter("orfa_filter_bypassed", help, each(|stats| stats.bypassed))?;
    let help = "HTTP and gRPC calls of a filter that could not be made";
    page.counter("orfa_filter_refused_calls", help, each(|stats| stats.refused_calls))?;
    let help = "Other host functions that did not do what a filter asked";
    page.counter("orfa_filter_refused_functions", help, each(|stats| stats.refused_functions))?;
    modules(page, filters.metrics())
}

/// The services in S: their workers, and what those do.
fn scripts(page: &mut Page<'_>, life: &Life) -> fmt::Result {
    if life.scripts.is_none() {
        return Ok(());
    }
    let stats: Vec<_> = life.routes.scripts().map(|(_, script)| (script.name(), script.stats())).collect();
    let each = |count: fn(&PoolStats) -> usize| {
        stats.iter().map(move |(name, stats)| ([("service", *name)], count(stats) as u64))
    };
    page.gauge("orfa_script_workers", "Worker processes of a script", each(|stats| stats.workers))?;
    page.gauge("orfa_script_runs_under_way", "Runs that workers have", each(|stats| stats.runs))?;
    page.gauge("orfa_script_runs_busy", "Those of them that want a processor", each(|stats| stats.busy))?;
    let help = "Runs that began, those that other runs asked for included";
    page.counter("orfa_script_runs", help, each(|stats| stats.begun))?;
    let help = "Those of them that were answered without a worker";
    page.counter("orfa_script_composed", help, each(|stats| stats.composed))?;
    page.counter("orfa_script_commits", "Writes that were committed", each(|stats| stats.commits))?;
    let help = "Writers that wait for their turn";
    page.gauge("orfa_script_writers_waiting", help, each(|stats| stats.waiting))?;
    let help = "Workers that were started in the place of lost ones";
    page.counter("orfa_script_worker_restarts", help, each(|stats| stats.restarts))?;
    let ready =
        life.routes.scripts().map(|(_, script)| ([("service", script.name())], u64::from(script.is_ready())));
    page.gauge("orfa_script_ready", "Whether a worker has the script that is in force", ready)
}

/// What modules count, each metric under its own name as a label: a name of the page has rules that modules do
/// not know.
fn modules(page: &mut Page<'_>, metrics: Vec<Metric>) -> fmt::Result {
    let (mut counters, mut gauges, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    for Metric { name, value } in &metrics {
        match value {
            Value::Counter(count) => counters.push(([("name", &**name)], *count)),
            Value::Gauge(now) => gauges.push(([("name", &**name)], *now)),
            Value::Histogram { buckets, sum, count } => {
                histograms.push(([("name", &**name)], reading(buckets, *sum, *count)));
            }
        }
    }
    page.counter("orfa_wasm", "Counters that the modules of filters have defined", counters)?;
    page.gauge("orfa_wasm_gauge", "Gauges that the modules of filters have defined", gauges)?;
    page.histogram("orfa_wasm_histogram", "Histograms that the modules of filters have defined", histograms)
}

/// A histogram whose buckets hold those before them too, as one whose buckets don't.
fn reading(upto: &[(f64, u64)], sum: f64, count: u64) -> Reading {
    let mut before = 0;
    let own = |(bound, upto)| (bound, upto - std::mem::replace(&mut before, upto));
    let buckets = upto.iter().copied().chain([(f64::INFINITY, count)]).map(own).collect();
    Reading { buckets, sum, count }
}
