//! The gateway's own metrics of work in progress.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::http;

/// The time within which the gateway must release everything that an attack left behind.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counters that must return to zero after every attack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturningCounters {
    /// The number of requests in flight.
    pub requests_in_flight: u64,
    /// The number of jobs that wait for a background thread.
    pub jobs_queued: u64,
    /// The number of jobs that run on background threads.
    pub jobs_in_flight: u64,
}

impl ReturningCounters {
    /// Reads the counters from the admin listener.
    ///
    /// # Errors
    /// When the listener does not answer with metrics.
    pub async fn read(admin: &str) -> Result<Self> {
        let page = http::request("GET", &format!("{admin}/metrics"), &[], "").await;
        let page = page.map_err(anyhow::Error::from_boxed).context("the admin listener")?;
        ensure!(page.status == 200, "the admin listener answers {}", page.status);
        let page = page.text();
        Ok(Self {
            requests_in_flight: sum_family(&page, "orfa_requests_in_flight"),
            jobs_queued: sum_family(&page, "orfa_offload_jobs_queued"),
            jobs_in_flight: sum_family(&page, "orfa_offload_jobs_in_flight"),
        })
    }

    /// Waits until no request or job remains, and returns the counters.
    ///
    /// # Errors
    /// When some work remains after a minute.
    pub async fn wait_until_idle(admin: &str) -> Result<Self> {
        let until = Instant::now() + PATIENCE;
        loop {
            let counters = Self::read(admin).await?;
            if counters.requests_in_flight == 0 && counters.jobs_queued == 0 && counters.jobs_in_flight == 0 {
                return Ok(counters);
            }
            ensure!(Instant::now() < until, "not settled after {PATIENCE:?}: {counters:?}");
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the sum of all samples of a metric family.
pub(crate) fn sum_family(page: &str, family: &str) -> u64 {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(family)?;
        let is_sample = rest.starts_with(' ') || rest.starts_with('{');
        is_sample.then(|| rest.rsplit_once(' ')?.1.parse::<f64>().ok())?
    });
    samples.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_samples_of_one_family_only() {
        let page =
            "# TYPE orfa_a counter\norfa_a{route=\"/x\"} 2\norfa_a{route=\"/y\"} 3\norfa_ab 7\norfa_b 1\n";
        assert_eq!(sum_family(page, "orfa_a"), 5);
        assert_eq!(sum_family(page, "orfa_c"), 0);
    }
}
