//! The asynchronous runtimes of verbs.

/// The number of tasks after which a thread looks for events of sockets, if it has further tasks. Each takes
/// up to 0.1 ms while many clients send long bodies, and the requests of others wait meanwhile. tokio's
/// default is 61.
const EVENT_INTERVAL: u32 = 16;

/// Runs a server, on all cores.
pub(crate) fn run_multi_thread<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .on_thread_start(offload::shorten_slice)
        .build()?
        .block_on(work)
}

/// Runs a client, on the current thread.
pub(crate) fn run_current_thread<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
