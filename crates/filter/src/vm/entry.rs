//! Entry of callbacks into an instance: immediately if the instance is free, or else through a queue.
//!
//! A callback is first polled by its caller and has usually ended after that. One that yields continues as a
//! task that owns the instance's lock: a client that disconnects never interrupts a callback, and a request
//! that is no longer polled does not block others. For the same reason a queued callback is a task as well. A
//! queued callback is removed when the request that started it is dropped, unless it has to run in any case,
//! like the end of a stream.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use offload::QuotaKey;
use offload::polls::{PollSite, watch_polls};
use sandbox::GuestResult;
use services::RequestCall;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::callbacks::TickCallback;
use super::instance::{FilterInstance, NotReady};
use super::slot::{InstanceSlot, StateGuard};
use crate::context::{ContextEvent, EventReceiver, PluginSpec};

/// The longest sleep of a thread without a runtime before it polls again.
const PARK_TIMEOUT: Duration = Duration::from_millis(1);

/// A callback with its arguments.
pub(crate) trait ModuleCallback: Send + Sized + 'static {
    /// The module's result.
    type Output: Send + 'static;
    /// Whether this callback begins a request. Such a callback is refused if the queue is full.
    const IS_FIRST: bool = false;
    /// Whether to skip the callback if its result is no longer awaited when its turn comes.
    const IS_OPTIONAL: bool = false;

    /// The call of the request that this callback begins. Its client must not have used up its quota for
    /// restarts.
    fn new_request(&self) -> Option<&RequestCall> {
        None
    }

    /// The client in whose share of the queue the callback waits; `None` for callbacks of root contexts.
    fn payer(&self) -> Option<QuotaKey> {
        self.new_request().map(RequestCall::quota_key)
    }

    /// Runs the callback in an instance.
    fn call(self, instance: &mut FilterInstance) -> impl Future<Output = GuestResult<Self::Output>> + Send;
}

/// The instance that a callback is for.
pub(crate) enum CallbackTarget {
    /// The instance of this generation.
    Generation(u64),
    /// The current instance, if there is one.
    Current,
    /// An instance in which this filter has its root context, created if there is none.
    WithRoot(Arc<PluginSpec>),
}

/// The reason for which a callback was not run, or not completed.
pub(crate) enum EntryError {
    /// The instance is gone, or trapped in this callback.
    InstanceLost,
    /// The instance or the root context can't be created.
    NotReady(NotReady),
    /// Too many callbacks wait for the instance.
    QueueFull,
    /// The client has used up its quota for restarts until this time has passed.
    OverQuota(Duration),
}

/// The result of a callback. Dropping it does not interrupt a callback that has begun.
pub(crate) enum CallbackFuture<T> {
    Done(Option<Result<T, EntryError>>),
    Task(oneshot::Receiver<Result<T, EntryError>>),
}

impl InstanceSlot {
    /// Runs a callback in the instance, now or when its turn comes.
    pub(crate) fn enter<C: ModuleCallback>(
        self: &Arc<Self>,
        target: CallbackTarget,
        callback: C,
    ) -> CallbackFuture<C::Output> {
        match self.lock_or_queue(|| callback.payer(), C::IS_FIRST) {
            Some(Ok(state)) => CallbackFuture::begin(state, target, callback),
            Some(Err(turn)) => CallbackFuture::begin_queued(turn, target, callback),
            None => CallbackFuture::from_error(EntryError::QueueFull),
        }
    }
}

impl EventReceiver for InstanceSlot {
    fn deliver(self: Arc<Self>, generation: u64, event: ContextEvent) -> BoxFuture<'static, bool> {
        let target = CallbackTarget::Generation(generation);
        // Each kind of event has a future of its own size.
        let entered = match event {
            ContextEvent::CallResponse(response) => self.enter(target, response),
            ContextEvent::Grpc(event) => self.enter(target, event),
            ContextEvent::TimerTick(root) => self.enter(target, TickCallback(root)),
            ContextEvent::QueueReady(ready) => self.enter(target, ready),
        };
        Box::pin(async move { entered.await.is_ok() })
    }
}

impl<T: Send + 'static> CallbackFuture<T> {
    /// Runs a callback in an instance that is already locked.
    pub(crate) fn begin<C: ModuleCallback<Output = T>>(
        state: StateGuard,
        target: CallbackTarget,
        callback: C,
    ) -> Self {
        let mut running = Box::pin(state.run(target, callback));
        if let Poll::Ready(result) = running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Self::Done(Some(result));
        }
        let Ok(runtime) = Handle::try_current() else { return Self::Done(Some(block_on(running))) };
        let (sender, receiver) = oneshot::channel();
        runtime.spawn(watch_polls(PollSite::Filters, async move {
            // A new task goes before everything else that its thread has to do.
            tokio::task::yield_now().await;
            // If the result is no longer awaited, it is dropped, and the stream in it ends.
            let _ = sender.send(running.await);
        }));
        Self::Task(receiver)
    }

    fn begin_queued<C: ModuleCallback<Output = T>>(
        turn: oneshot::Receiver<StateGuard>,
        target: CallbackTarget,
        callback: C,
    ) -> Self {
        // Only drops happen without a runtime. The thread that owns the instance drops the instance as well.
        let Ok(runtime) = Handle::try_current() else { return Self::from_error(EntryError::InstanceLost) };
        let (mut sender, receiver) = oneshot::channel();
        runtime.spawn(watch_polls(PollSite::Filters, async move {
            let state = tokio::select! {
                biased;
                () = sender.closed(), if C::IS_OPTIONAL => return,
                state = turn => state,
            };
            let result = match state {
                Ok(state) => state.run(target, callback).await,
                // Its place in the queue is another request's now.
                Err(_) if C::IS_FIRST => Err(EntryError::QueueFull),
                Err(_) => Err(EntryError::InstanceLost),
            };
            let _ = sender.send(result);
        }));
        Self::Task(receiver)
    }
}

impl<T> CallbackFuture<T> {
    pub(crate) fn from_error(error: EntryError) -> Self {
        Self::Done(Some(Err(error)))
    }
}

impl<T: Unpin> Future for CallbackFuture<T> {
    type Output = Result<T, EntryError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.take().unwrap_or(Err(EntryError::InstanceLost))),
            // A task that panicked has no result.
            Self::Task(task) => {
                Pin::new(task).poll(context).map(|result| result.unwrap_or(Err(EntryError::InstanceLost)))
            }
        }
    }
}

/// Blocks a thread that has no other work until the future is ready, inside or outside a runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct UnparkGuard(Thread);

    impl Wake for UnparkGuard {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(UnparkGuard(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // A runtime on this thread delivers no wake-ups until it is polled itself.
        std::thread::park_timeout(PARK_TIMEOUT);
    }
}
