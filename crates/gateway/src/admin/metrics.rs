//! `/metrics`: what the gateway and everything in it counts, put together when it is asked for.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use services::{EndpointStats, ServiceStats};

use crate::gateway::Gateway;
use crate::life::Life;
use crate::metrics::{Page, Process};
use crate::reload::ReloadState;

/// The media type of the OpenMetrics text format, version 1.0.0.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole text.
pub(super) fn text(gateway: &Gateway, process: &Arc<Process>) -> Result<String, fmt::Error> {
    let (life, is_ready) = (gateway.current.life(), gateway.readiness().is_ready());
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
        programs(page, &life)
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
