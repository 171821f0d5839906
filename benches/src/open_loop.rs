//! An open load: requests are sent when they are due, whether earlier ones are answered or not. The time of
//! each counts from then, so that a server that stalls can't hide it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::client::{BenchClient, ClientError};

/// The highest priority of a thread.
const HIGHEST_PRIORITY: i32 = -20;

/// The maximum number of unanswered requests. Beyond that no more are sent, as clients give up too.
pub const MAX_IN_FLIGHT: usize = 5_000;

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoopOutcome {
    /// `None` without a response.
    pub status: Option<StatusCode>,
    /// The time since it was due, in milliseconds.
    pub ms: f64,
}

/// Gives this thread the highest priority, as if it had a machine of its own (only as root), and a time slice
/// as short as that of the gateway's threads.
pub fn raise_priority() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), HIGHEST_PRIORITY);
    offload::shorten_slice();
}

/// Sends requests at a constant rate. Returns their outcomes in the order of the responses.
pub async fn offer(
    address: SocketAddr,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<OpenLoopOutcome>> {
    offer_over(BenchClient::new(address), per_second, time, request).await
}

/// Like `offer`, with a client that may be connected already.
pub async fn offer_over(
    client: BenchClient,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<OpenLoopOutcome>> {
    let client = Arc::new(client);
    let mut due = due_times(Duration::from_secs_f64(1.0 / per_second), time);
    let (mut under_way, mut outcomes) = (JoinSet::new(), Vec::new());
    while let Some(due) = due.recv().await {
        // Finished requests count as in flight until they are joined.
        while let Some(outcome) = under_way.try_join_next() {
            outcomes.push(outcome?);
        }
        if under_way.len() == MAX_IN_FLIGHT {
            outcomes.push(OpenLoopOutcome { status: None, ms: 0.0 });
            continue;
        }
        under_way.spawn(send_request(Arc::clone(&client), request()?, due));
    }
    while let Some(loop_outcome) = under_way.join_next().await {
        outcomes.push(loop_outcome?);
    }
    Ok(outcomes)
}

/// Sends one request. The time counts from when it was due.
pub async fn send_request(
    client: Arc<BenchClient>,
    request: Request<Full<Bytes>>,
    due: Instant,
) -> OpenLoopOutcome {
    let answer: Result<_, ClientError> = client.send(request).await;
    OpenLoopOutcome { status: answer.ok().map(|answer| answer.status), ms: due.elapsed().as_secs_f64() * 1e3 }
}

/// Sends the times at which requests are due. A thread's sleep has a resolution of a tenth of a millisecond,
/// whereas tokio's timer rounds up to whole ones, which would distort the measurement.
fn due_times(every: Duration, time: Duration) -> UnboundedReceiver<Instant> {
    let (say, due) = unbounded_channel();
    std::thread::spawn(move || {
        raise_priority();
        let (mut next, end) = (Instant::now(), Instant::now() + time);
        while next < end && say.send(next).is_ok() {
            next += every;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    due
}
