//! Plugins and the contexts that modules have for them: a root context per plugin and instance, a stream
//! context per exchange.

mod events;
mod plugin;
mod root;
mod stream;

use std::sync::Arc;

pub(crate) use events::{
    CallResponse, ContextEvent, EventReceiver, GrpcEvent, InstanceHandle, QueueReady, ReceivedData,
    RootGrpcEvent,
};
pub(crate) use plugin::PluginSpec;
pub(crate) use root::RootContext;
pub(crate) use stream::{FilterVerdict, LocalResponse, StreamContext, StreamWaiter};

/// A context of the module.
#[derive(Clone)]
pub(crate) enum ModuleContext {
    Root(Arc<RootContext>),
    Stream(Arc<StreamContext>),
}

impl ModuleContext {
    pub(crate) fn spec(&self) -> &Arc<PluginSpec> {
        match self {
            Self::Root(root) => &root.spec,
            Self::Stream(stream) => &stream.spec,
        }
    }
}
