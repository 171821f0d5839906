//! How callbacks get into an instance: at once where it is free, else in a waiting line; and by whom they are ended.
//!
//! A callback is polled where it was asked for, and usually over then. One that yields is a task from then on, which owns
//! the instance's lock: a client that goes away ends no callback half-way, and a request that is polled no more holds
//! nobody up. A callback that waits in line is a task as well, for the same reason; it leaves the line with the request
//! that asked for it, unless it has to be made in any case, as the end of a stream has.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use offload::polls::{PollSite, watched};
use sandbox::GuestResult;
use services::Call;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::instance::{Instance, NotReady};
use crate::plugin::Spec;
use crate::slot::{Slot, StateGuard};

/// The most requests that wait for one instance before they have a stream there.
pub(crate) const MAX_WAITING: usize = 1024;
/// How long a thread without a runtime sleeps at most before it looks again.
const NAP: Duration = Duration::from_millis(1);

/// A callback, with its arguments.
pub(crate) trait ModuleCallback: Send + Sized + 'static {
    /// The module's answer.
    type Output: Send + 'static;
    /// Whether a request begins with it. Such a callback is refused where the line is full.
    const IS_FIRST: bool = false;
    /// Whether it is left out where nobody waits for its answer any more before it has begun.
    const IS_OPTIONAL: bool = false;

    /// The request that it begins with, whose client must not have used up its quota for restarts.
    fn new_request(&self) -> Option<&Call> {
        None
    }

    /// Makes it.
    fn call(self, instance: &mut Instance) -> impl Future<Output = GuestResult<Self::Output>> + Send;
}

/// Which instance a callback is for.
pub(crate) enum Target {
    /// That of this generation.
    Generation(u64),
    /// The one that is there.
    Present,
    /// One in which this filter has its root context, made if there is none.
    With(Arc<Spec>),
}

/// Why a callback was not made, or not to its end.
pub(crate) enum EntryError {
    /// The instance is gone, or trapped in this callback.
    Gone,
    /// There can be none.
    NotReady(NotReady),
    /// Too many wait for it.
    Full,
    /// The client has used up its quota for restarts, and has some again after this time.
    OverQuota(Duration),
}

/// The answer to a callback. Dropping it ends no callback that has begun.
pub(crate) enum CallbackFuture<T> {
    Done(Option<Result<T, EntryError>>),
    Task(oneshot::Receiver<Result<T, EntryError>>),
}

impl Slot {
    /// Makes a callback in the instance, now or in turn.
    pub(crate) fn enter<C: ModuleCallback>(
        self: &Arc<Self>,
        target: Target,
        callback: C,
    ) -> CallbackFuture<C::Output> {
        let most = if C::IS_FIRST { MAX_WAITING } else { usize::MAX };
        match self.take(most) {
            Some(Ok(state)) => CallbackFuture::begin(state, target, callback),
            Some(Err(turn)) => CallbackFuture::wait(turn, target, callback),
            None => CallbackFuture::failed(EntryError::Full),
        }
    }
}

impl<T: Send + 'static> CallbackFuture<T> {
    /// Makes a callback.
    pub(crate) fn begin<C: ModuleCallback<Output = T>>(
        state: StateGuard,
        target: Target,
        callback: C,
    ) -> Self {
        let mut running = Box::pin(state.run(target, callback));
        if let Poll::Ready(result) = running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Self::Done(Some(result));
        }
        let Ok(runtime) = Handle::try_current() else { return Self::Done(Some(block_on(running))) };
        let (sender, receiver) = oneshot::channel();
        runtime.spawn(watched(PollSite::Filters, async move {
            // A new task goes before all that its thread has to do.
            tokio::task::yield_now().await;
            // Where nobody waits any more, the answer is dropped, and a stream in it ends.
            let _ = sender.send(running.await);
        }));
        Self::Task(receiver)
    }

    fn wait<C: ModuleCallback<Output = T>>(
        turn: oneshot::Receiver<StateGuard>,
        target: Target,
        callback: C,
    ) -> Self {
        // Only what is dropped has no runtime. Whoever has the instance drops it as well.
        let Ok(runtime) = Handle::try_current() else { return Self::failed(EntryError::Gone) };
        let (mut sender, receiver) = oneshot::channel();
        runtime.spawn(watched(PollSite::Filters, async move {
            let state = tokio::select! {
                biased;
                () = sender.closed(), if C::IS_OPTIONAL => return,
                state = turn => state,
            };
            let result = match state {
                Ok(state) => state.run(target, callback).await,
                Err(_) => Err(EntryError::Gone),
            };
            let _ = sender.send(result);
        }));
        Self::Task(receiver)
    }
}

impl<T> CallbackFuture<T> {
    pub(crate) fn failed(error: EntryError) -> Self {
        Self::Done(Some(Err(error)))
    }
}

impl<T: Unpin> Future for CallbackFuture<T> {
    type Output = Result<T, EntryError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.take().unwrap_or(Err(EntryError::Gone))),
            // A task that panicked has no answer.
            Self::Task(task) => {
                Pin::new(task).poll(context).map(|result| result.unwrap_or(Err(EntryError::Gone)))
            }
        }
    }
}

/// Waits on a thread that has nothing else to do, with a runtime around it or without.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // A runtime that this thread is in wakes nobody before it is polled itself.
        std::thread::park_timeout(NAP);
    }
}
