//! An open load: requests are sent when they are due, answered or not, and the time of each counts from
//! there, so that a server which stands still can't hide it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::client::{Client, Error};

/// The priority before all other threads.
const FIRST: i32 = -20;

/// A server that leaves more requests than this without an answer is not asked more: clients give up too.
pub const MOST_UNDER_WAY: usize = 5_000;

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// `None` where no answer came.
    pub status: Option<StatusCode>,
    /// Milliseconds from when it was due.
    pub ms: f64,
}

/// Puts this thread before all others, as if it stood on a machine of its own (where the system allows it: as root).
pub fn go_first() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), FIRST);
}

/// Sends so many requests a second for a while; what became of each, in the order of their answers.
pub async fn offer(
    address: SocketAddr,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<Answered>> {
    offer_over(Client::new(address), per_second, time, request).await
}

/// The same by clients that may be connected already.
pub async fn offer_over(
    client: Client,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<Answered>> {
    let client = Arc::new(client);
    let mut due = clock(Duration::from_secs_f64(1.0 / per_second), time);
    let (mut under_way, mut answered) = (JoinSet::new(), Vec::new());
    while let Some(due) = due.recv().await {
        // Those that are over count as under way until they are asked for.
        while let Some(one) = under_way.try_join_next() {
            answered.push(one?);
        }
        if under_way.len() == MOST_UNDER_WAY {
            answered.push(Answered { status: None, ms: 0.0 });
            continue;
        }
        under_way.spawn(ask(Arc::clone(&client), request()?, due));
    }
    while let Some(one) = under_way.join_next().await {
        answered.push(one?);
    }
    Ok(answered)
}

/// Sends one request; the time counts from when it was due.
pub async fn ask(client: Arc<Client>, request: Request<Full<Bytes>>, due: Instant) -> Answered {
    let answer: Result<_, Error> = client.send(request).await;
    Answered { status: answer.ok().map(|answer| answer.status), ms: due.elapsed().as_secs_f64() * 1e3 }
}

/// Says when a request is due. A thread's sleep is exact to a tenth of a millisecond, where tokio's timer
/// rounds up to whole ones and would hide what is measured.
fn clock(every: Duration, time: Duration) -> UnboundedReceiver<Instant> {
    let (say, due) = unbounded_channel();
    std::thread::spawn(move || {
        go_first();
        let (mut next, end) = (Instant::now(), Instant::now() + time);
        while next < end && say.send(next).is_ok() {
            next += every;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    due
}
