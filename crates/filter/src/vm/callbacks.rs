//! The callbacks that are started from outside of an instance, each with its arguments.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use offload::QuotaKey;
use sandbox::GuestResult;
use services::RequestCall;

use super::entry::ModuleCallback;
use super::instance::FilterInstance;
use super::stream::StreamGuard;
use crate::abi::{FilterAction, MessageSide};
use crate::context::{CallResponse, GrpcEvent, PluginSpec, QueueReady, StreamContext};
use crate::exchange::FilterExchange;
use crate::telemetry::increment;

/// A new stream context together with the request's head, in one turn at the instance.
pub(crate) struct OpenStream {
    pub(crate) spec: Arc<PluginSpec>,
    pub(crate) exchange: Arc<FilterExchange>,
    pub(crate) count: u32,
    pub(crate) is_end: bool,
}

/// The head of a message.
pub(crate) struct HeadersCallback {
    pub(crate) stream: Arc<StreamContext>,
    pub(crate) side: MessageSide,
    pub(crate) count: u32,
    pub(crate) is_end: bool,
}

/// A piece of a body, with everything that is held back.
pub(crate) struct BodyCallback {
    pub(crate) stream: Arc<StreamContext>,
    pub(crate) side: MessageSide,
    pub(crate) size: u32,
    pub(crate) is_end: bool,
}

/// The trailers of a message.
pub(crate) struct TrailersCallback {
    pub(crate) stream: Arc<StreamContext>,
    pub(crate) side: MessageSide,
    pub(crate) count: u32,
}

/// The end of a stream context.
pub(crate) struct EndStream(pub(crate) Arc<StreamContext>);

/// A tick of a root context's timer.
pub(crate) struct TickCallback(pub(crate) u32);

/// No callback: makes sure that the instance exists and has the filter's root context.
pub(crate) struct PrepareRoot;

/// No callback: allows a root context's timer to start.
pub(crate) struct StartTimer(pub(crate) Arc<PluginSpec>);

/// The end of a root context.
pub(crate) struct EndRoot(pub(crate) Arc<PluginSpec>);

impl ModuleCallback for OpenStream {
    type Output = (StreamGuard, FilterAction);
    const IS_FIRST: bool = true;
    const IS_OPTIONAL: bool = true;

    fn new_request(&self) -> Option<&RequestCall> {
        Some(&self.exchange.call)
    }

    #[inline]
    async fn call(self, instance: &mut FilterInstance) -> GuestResult<Self::Output> {
        increment(&self.spec.stats.requests);
        let stream = instance.open_stream(&self.spec, &self.exchange).await?;
        let action = instance.on_headers(&stream, MessageSide::Request, self.count, self.is_end).await?;
        instance.mark_served();
        Ok((StreamGuard::new(stream), action))
    }
}

/// Implements further callbacks, each by an expression on the instance, and one for its payer if it has one.
macro_rules! callbacks {
    ($(
        $callback:ty => $output:ty $(, $flag:ident)*:
        |$self:ident, $instance:ident| $call:expr $(, payer: $payer:expr)?;
    )*) => {$(
        impl ModuleCallback for $callback {
            type Output = $output;
            $(const $flag: bool = true;)*

            $(fn payer(&$self) -> Option<QuotaKey> {
                Some($payer)
            })?

            #[inline]
            async fn call($self, $instance: &mut FilterInstance) -> GuestResult<$output> {
                $call
            }
        }
    )*};
}

callbacks! {
    HeadersCallback => FilterAction, IS_OPTIONAL: |self, instance| {
        instance.on_headers(&self.stream, self.side, self.count, self.is_end).await
    }, payer: self.stream.payer();
    BodyCallback => FilterAction, IS_OPTIONAL: |self, instance| {
        instance.on_body(&self.stream, self.side, self.size, self.is_end).await
    }, payer: self.stream.payer();
    TrailersCallback => FilterAction, IS_OPTIONAL: |self, instance| {
        instance.on_trailers(&self.stream, self.side, self.count).await
    }, payer: self.stream.payer();
    EndStream => (): |self, instance| instance.end_stream(&self.0).await, payer: self.0.payer();
    CallResponse => (): |self, instance| {
        instance.on_call_response(self.token, self.received).await
    }, payer: self.payer;
    GrpcEvent => (): |self, instance| {
        instance.on_grpc_event(self.token, self.event, self.is_last, self.received).await
    }, payer: self.payer;
    TickCallback => (): |self, instance| instance.on_tick(self.0).await;
    QueueReady => (): |self, instance| {
        if !instance.has_context(self.root) {
            return Ok(());
        }
        self.is_delivered.store(true, Relaxed);
        instance.on_queue_ready(self.root, self.queue).await
    };
    PrepareRoot => (): |self, _instance| Ok(());
    StartTimer => (): |self, instance| {
        instance.start_timer(&self.0);
        Ok(())
    };
    EndRoot => (): |self, instance| instance.end_root(&self.0).await;
}
