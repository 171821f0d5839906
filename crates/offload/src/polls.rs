//! Detection of polls that block a serving thread for too long.
//!
//! While a thread polls one of its connections, it serves none of the others. A poll that takes more than
//! [`LONG_POLL`] of its thread's CPU time is therefore counted, by its [`PollSite`]. Wall-clock time would
//! include time of other threads and processes, but reading the CPU clock takes a system call. So the CPU
//! clock is read at the start of a poll only if the last reading is older than [`STALE_NANOS`], and at the
//! end only if the wall clock shows that the poll may have been long. The measured time is a lower bound, at
//! most [`STALE_NANOS`] below the actual time.
//!
//! In debug builds, a poll longer than the milliseconds in the environment variable `ORFA_POLL_LIMIT_MS`
//! aborts the process, so that no test can miss it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::clock::{CpuClock, wall_nanos};

/// The CPU time above which a poll is long.
pub const LONG_POLL: Duration = Duration::from_millis(2);
/// [`LONG_POLL`] in nanoseconds.
const LONG_POLL_NANOS: u64 = LONG_POLL.as_nanos() as u64;
/// The age in nanoseconds from which a reading of the CPU clock is stale.
const STALE_NANOS: u64 = 500_000;

/// The part of the gateway that a thread is polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSite {
    /// A TLS handshake, which may take longer: the number of concurrent handshakes is limited.
    Handshake,
    /// An HTTP/1.1 connection.
    Http1,
    /// The frames of an HTTP/2 connection.
    Http2,
    /// A request, before and after its handler.
    Request,
    /// A request's filters.
    Filters,
    /// A query.
    Query,
    /// A request to a script.
    Script,
    /// An aggregate.
    Aggregate,
    /// A GraphQL request.
    Graphql,
    /// A proxied request.
    Proxy,
    /// The tasks of connections to services and to other servers.
    Upstream,
    /// The encoding of a response.
    Encode,
    /// The body of a response while it is sent.
    Body,
    /// The admin listener.
    Admin,
}

/// All sites with their names in metrics.
const SITES: [(PollSite, &str); 14] = [
    (PollSite::Handshake, "handshake"),
    (PollSite::Http1, "http1"),
    (PollSite::Http2, "http2"),
    (PollSite::Request, "request"),
    (PollSite::Filters, "filters"),
    (PollSite::Query, "query"),
    (PollSite::Script, "script"),
    (PollSite::Aggregate, "aggregate"),
    (PollSite::Graphql, "graphql"),
    (PollSite::Proxy, "proxy"),
    (PollSite::Upstream, "upstream"),
    (PollSite::Encode, "encode"),
    (PollSite::Body, "body"),
    (PollSite::Admin, "admin"),
];

/// The number of long polls of the process, by site.
static LONG_POLLS: [AtomicU64; SITES.len()] = [const { AtomicU64::new(0) }; SITES.len()];

/// A reading of both clocks.
#[derive(Clone, Copy)]
struct PollClocks {
    wall_nanos: u64,
    cpu: CpuClock,
}

thread_local! {
    static CURRENT_SITE: Cell<PollSite> = const { Cell::new(PollSite::Request) };
    /// The last reading of this thread's CPU clock.
    static LAST_READING: Cell<Option<PollClocks>> = const { Cell::new(None) };
}

pin_project! {
    /// A task with measured polls: see [`watched`].
    pub struct WatchedTask<F> {
        site: PollSite,
        #[pin]
        future: F,
    }
}

pin_project! {
    /// A future that sets a site: see [`entered`].
    pub struct SiteFuture<F> {
        site: PollSite,
        #[pin]
        future: F,
    }
}

/// Measures the polls of a task. A long poll counts for the site that was [`attribute_polls`] last during it,
/// or for this one.
pub fn watch_polls<F: Future>(site: PollSite, future: F) -> WatchedTask<F> {
    WatchedTask { site, future }
}

/// Attributes the rest of each poll to a site, if the task is [`watch_polls`].
pub fn attribute_polls<F: Future>(site: PollSite, future: F) -> SiteFuture<F> {
    SiteFuture { site, future }
}

/// Attributes the rest of the current poll to a site.
pub fn enter_site(site: PollSite) {
    CURRENT_SITE.set(site);
}

impl<F: Future> Future for WatchedTask<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        CURRENT_SITE.set(*this.site);
        let began = wall_nanos();
        let read = fresh_reading(began);
        let polled = this.future.poll(context);
        let ended = wall_nanos();
        if ended.saturating_sub(began) >= LONG_POLL_NANOS {
            count_if_long(began, ended, read);
        }
        polled
    }
}

impl<F: Future> Future for SiteFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        CURRENT_SITE.set(*this.site);
        this.future.poll(context)
    }
}

/// Returns the numbers of long polls of this process, by the names of their sites.
#[must_use]
pub fn long_polls() -> Vec<(&'static str, u64)> {
    SITES.iter().zip(&LONG_POLLS).map(|((_, name), count)| (*name, count.load(Relaxed))).collect()
}

/// Returns a reading of the CPU clock that is not stale.
fn fresh_reading(now: u64) -> PollClocks {
    match LAST_READING.get() {
        Some(last) if now.saturating_sub(last.wall_nanos) < STALE_NANOS => last,
        _ => {
            let reading = PollClocks { wall_nanos: now, cpu: CpuClock::now() };
            LAST_READING.set(Some(reading));
            reading
        }
    }
}

/// Counts a poll that may have been long.
#[cold]
fn count_if_long(began: u64, ended: u64, read: PollClocks) {
    let cpu = CpuClock::now();
    LAST_READING.set(Some(PollClocks { wall_nanos: ended, cpu }));
    // The time between the reading and the poll belongs to other polls.
    let others = Duration::from_nanos(began.saturating_sub(read.wall_nanos));
    let took = cpu.since(read.cpu).saturating_sub(others);
    if took < LONG_POLL {
        return;
    }
    let site = CURRENT_SITE.get();
    if let Some(count) = LONG_POLLS.get(site as usize) {
        count.fetch_add(1, Relaxed);
    }
    if abort_limit().is_some_and(|limit| took >= limit) && site != PollSite::Handshake {
        abort_long_poll(site, took);
    }
}

/// The CPU time beyond which a poll aborts the process, if any.
fn abort_limit() -> Option<Duration> {
    static LIMIT: OnceLock<Option<Duration>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = cfg!(debug_assertions).then(|| std::env::var("ORFA_POLL_LIMIT_MS").ok()).flatten()?;
        text.parse().ok().map(Duration::from_millis)
    })
}

#[expect(clippy::print_stderr, reason = "the process aborts here and prints the reason")]
fn abort_long_poll(site: PollSite, took: Duration) {
    eprintln!("a poll took {took:?} of CPU time at {site:?}, beyond ORFA_POLL_LIMIT_MS");
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    fn long_poll_count(site: PollSite) -> u64 {
        let name = SITES.iter().find(|(known, _)| *known == site).unwrap().1;
        long_polls().iter().find(|(other, _)| *other == name).unwrap().1
    }

    fn spin(span: Duration) {
        let clock = CpuClock::now();
        while clock.elapsed() < span {
            black_box(0);
        }
    }

    #[tokio::test]
    async fn counts_a_poll_that_uses_cpu_time() {
        let before = long_poll_count(PollSite::Encode);
        watch_polls(PollSite::Request, attribute_polls(PollSite::Encode, async { spin(2 * LONG_POLL) }))
            .await;
        assert_eq!(long_poll_count(PollSite::Encode), before + 1);
    }

    #[tokio::test]
    async fn does_not_count_a_poll_that_sleeps() {
        let before = long_poll_count(PollSite::Admin);
        watch_polls(PollSite::Admin, async { std::thread::sleep(5 * LONG_POLL) }).await;
        assert_eq!(long_poll_count(PollSite::Admin), before);
    }

    #[tokio::test]
    async fn does_not_count_the_time_of_other_polls() {
        let before = long_poll_count(PollSite::Body);
        for _ in 0..20 {
            watch_polls(PollSite::Body, async { spin(LONG_POLL / 4) }).await;
        }
        assert_eq!(long_poll_count(PollSite::Body), before);
    }

    #[test]
    fn names_each_site_once() {
        let names: std::collections::HashSet<&str> = SITES.iter().map(|(_, name)| *name).collect();
        assert_eq!(names.len(), SITES.len());
        assert!(SITES.iter().enumerate().all(|(index, (site, _))| *site as usize == index));
    }
}
