//! The body of an answer on its way to a client: it counts as under way until its end, and may not stand
//! still for too long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::message::{End, Upload};
use crate::body::{Body, Error};
use crate::config;
use crate::targets::{Lease, Verdict};

/// Why a body ends that stood still.
#[derive(Debug, thiserror::Error)]
#[error("the answer stood still for {0} (the service's `idle_timeout`)")]
pub(super) struct StoodStill(pub(super) config::Duration);

/// How long a body stood still, if that is what ended it.
pub(super) fn stood_still(error: &(dyn std::error::Error + 'static)) -> Option<Duration> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(StoodStill(time)) = error.downcast_ref() {
            return Some(time.0);
        }
        // An `io::Error` passes over what it holds when asked for its source.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = held.map(|held| held as _).or_else(|| error.source());
    }
    None
}

/// A body with a lease and a clock.
pub(super) struct Watched {
    body: Body,
    lease: Option<Lease>,
    /// Whether a good end is still to be told.
    untold: bool,
    idle: Duration,
    /// Runs only while somebody waits. Made when somebody first does: most answers come at once.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// The request's own body, which may still be moving.
    upload: Option<Arc<Upload>>,
}

impl Watched {
    pub(super) fn new(
        body: Body,
        lease: Lease,
        untold: bool,
        idle: Duration,
        upload: Option<Arc<Upload>>,
    ) -> Self {
        Self { body, lease: Some(lease), untold, idle, timer: None, waiting: false, upload }
    }

    /// It is over, this way.
    fn end(&mut self, verdict: Verdict) {
        if let Some(lease) = self.lease.take()
            && (self.untold || verdict != Verdict::Good)
        {
            lease.note(verdict);
        }
    }

    /// Whether it has stood still for too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.waiting {
            self.waiting = true;
            self.set(Instant::now() + self.idle);
        }
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(context));
            }
            match self.upload.as_ref().map(|upload| upload.glance()) {
                Some(glance) if glance.end.is_none() && glance.moved.elapsed() < self.idle => {
                    self.set(glance.moved + self.idle);
                }
                _ => return Poll::Ready(()),
            }
        }
    }

    fn set(&mut self, end: Instant) {
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(end),
            None => self.timer = Some(Box::pin(sleep_until(end))),
        }
    }

    /// Whether the client broke its own request off, so that what follows is not the service's fault.
    fn is_clients_fault(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| matches!(upload.glance().end, Some(End::Broken)))
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending => {
                ready!(this.poll_idle(context));
                this.end(Verdict::Failed);
                this.body = crate::body::empty(); // Ends the exchange behind it.
                Poll::Ready(Some(Err(StoodStill(config::Duration(this.idle)).into())))
            }
            Poll::Ready(frame) => {
                this.waiting = false;
                match &frame {
                    Some(Ok(_)) => {}
                    Some(Err(_)) if this.is_clients_fault() => drop(this.lease.take()),
                    Some(Err(_)) => this.end(Verdict::Failed),
                    None => this.end(Verdict::Good),
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Whoever knows that nothing follows need not ask for it.
        if self.body.is_end_stream() {
            self.end(Verdict::Good);
        }
    }
}
