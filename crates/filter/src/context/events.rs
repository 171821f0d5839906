//! Events from outside of an instance for its root contexts: responses to calls, ticks of timers, items in
//! queues.
//!
//! Host functions start the work that leads to an event. That work outlives the callback and does not own the
//! instance, so it holds an [`InstanceHandle`]. The slots of a virtual machine are the receivers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use offload::QuotaKey;

/// A receiver of events.
pub(crate) trait EventReceiver: Send + Sync {
    /// Delivers an event to the instance of this generation when its turn comes. Returns `false` if the
    /// instance is gone by then, or traps.
    fn deliver(self: Arc<Self>, generation: u64, event: ContextEvent) -> BoxFuture<'static, bool>;
}

/// An instance to which events are delivered as long as it exists.
#[derive(Clone)]
pub(crate) struct InstanceHandle {
    receiver: Weak<dyn EventReceiver>,
    /// The generation of the receiver's instance.
    generation: u64,
}

/// An event for a root context.
pub(crate) enum ContextEvent {
    CallResponse(CallResponse),
    Grpc(GrpcEvent),
    /// A tick of this root context's timer.
    TimerTick(u32),
    QueueReady(QueueReady),
}

/// The response to an HTTP call.
pub(crate) struct CallResponse {
    pub(crate) token: u32,
    pub(crate) payer: QuotaKey,
    pub(crate) received: ReceivedData,
}

/// An event of a gRPC call.
pub(crate) struct GrpcEvent {
    pub(crate) token: u32,
    pub(crate) payer: QuotaKey,
    pub(crate) event: RootGrpcEvent,
    pub(crate) is_last: bool,
    pub(crate) received: ReceivedData,
}

/// A notification of an item in a queue that a root context has registered.
pub(crate) struct QueueReady {
    pub(crate) root: u32,
    pub(crate) queue: u32,
    /// Set when the callback begins, unless the root context is gone.
    pub(crate) is_delivered: Arc<AtomicBool>,
}

/// An event of a gRPC call, for its root context.
pub(crate) enum RootGrpcEvent {
    InitialMetadata(u32),
    Message(u32),
    TrailingMetadata(u32),
    Close(u32),
}

/// Received data that the callback in flight reads.
#[derive(Default)]
pub(crate) struct ReceivedData {
    /// The head of a call's response, including `:status`; or initial metadata.
    pub(crate) head: Option<http::response::Parts>,
    /// Whether the head is that of a call that failed.
    pub(crate) has_failed: bool,
    pub(crate) metadata: HeaderMap,
    pub(crate) trailers: HeaderMap,
    pub(crate) body: Bytes,
    /// The status of a gRPC call, and its message.
    pub(crate) status: (u32, Bytes),
    /// The arguments of a foreign function.
    pub(crate) arguments: Bytes,
}

impl InstanceHandle {
    pub(crate) fn new(receiver: Weak<dyn EventReceiver>, generation: u64) -> Self {
        Self { receiver, generation }
    }

    /// Delivers an event when its turn comes. Returns `false` if the instance is gone by then, or traps.
    pub(crate) async fn deliver(&self, event: ContextEvent) -> bool {
        match self.receiver.upgrade() {
            Some(receiver) => receiver.deliver(self.generation, event).await,
            None => false,
        }
    }

    /// Whether the receiver still exists, with this instance or a later one.
    pub(crate) fn has_receiver(&self) -> bool {
        self.receiver.strong_count() > 0
    }

    /// Whether both are the same instance.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.has_same_receiver(other) && self.generation == other.generation
    }

    /// Whether both are instances of the same receiver, one earlier than the other.
    pub(crate) fn is_other_generation(&self, other: &Self) -> bool {
        self.has_same_receiver(other) && self.generation != other.generation
    }

    fn has_same_receiver(&self, other: &Self) -> bool {
        self.receiver.ptr_eq(&other.receiver)
    }
}

impl ReceivedData {
    /// The result of a call that failed. The specification has 0 headers for it, and Envoy a response of its
    /// own. Modules rely on either, so the number of headers is 0, and Envoy's status can still be read.
    pub(crate) fn failure(status: StatusCode) -> Self {
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        let (head, ()) = response.into_parts();
        Self { head: Some(head), has_failed: true, ..Self::default() }
    }

    /// The number of headers, the size of the body, and the number of trailers.
    pub(crate) fn sizes(&self) -> (u32, u32, u32) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let head = self.head.as_ref().filter(|_| !self.has_failed);
        let headers = head.map_or(0, |head| count(head.headers.len() + 1));
        (headers, count(self.body.len()), count(self.trailers.len()))
    }
}
