//! The exports of a module that the host calls, looked up once per instance, with their types.

use sandbox::{Instance as Guest, Store, TypedFunc, WasmParams, WasmResults};

use super::instance::NotReady;
use crate::error::FilterRefusalReason;
use crate::host::FilterHost;

/// A callback, if the module exports it.
pub(crate) type CallbackFunction<P, R> = Option<TypedFunc<P, R>>;

/// The exports of a module that the host uses.
pub(crate) struct ModuleExports {
    pub(crate) on_context_create: CallbackFunction<(u32, u32), ()>,
    pub(crate) on_vm_start: CallbackFunction<(u32, u32), u32>,
    pub(crate) validate_configuration: CallbackFunction<(u32, u32), u32>,
    pub(crate) on_configure: CallbackFunction<(u32, u32), u32>,
    pub(crate) on_request_headers: HeadersExport,
    pub(crate) on_response_headers: HeadersExport,
    pub(crate) on_request_body: CallbackFunction<(u32, u32, u32), u32>,
    pub(crate) on_response_body: CallbackFunction<(u32, u32, u32), u32>,
    pub(crate) on_request_trailers: CallbackFunction<(u32, u32), u32>,
    pub(crate) on_response_trailers: CallbackFunction<(u32, u32), u32>,
    pub(crate) on_http_call_response: CallbackFunction<(u32, u32, u32, u32, u32), ()>,
    pub(crate) on_grpc_receive_initial_metadata: CallbackFunction<(u32, u32, u32), ()>,
    pub(crate) on_grpc_receive: CallbackFunction<(u32, u32, u32), ()>,
    pub(crate) on_grpc_receive_trailing_metadata: CallbackFunction<(u32, u32, u32), ()>,
    pub(crate) on_grpc_close: CallbackFunction<(u32, u32, u32), ()>,
    pub(crate) on_tick: CallbackFunction<u32, ()>,
    pub(crate) on_queue_ready: CallbackFunction<(u32, u32), ()>,
    pub(crate) on_done: CallbackFunction<u32, u32>,
    pub(crate) on_log: CallbackFunction<u32, ()>,
    pub(crate) on_delete: CallbackFunction<u32, ()>,
}

/// A headers callback. Before 0.2.0 it has no parameter for the end of the stream.
pub(crate) enum HeadersExport {
    Missing,
    TwoParameters(TypedFunc<(u32, u32), u32>),
    ThreeParameters(TypedFunc<(u32, u32, u32), u32>),
}

impl ModuleExports {
    pub(crate) fn from_instance(store: &mut Store<FilterHost>, guest: &Guest) -> Result<Self, NotReady> {
        Ok(Self {
            on_context_create: find_export(store, guest, "proxy_on_context_create")?,
            on_vm_start: find_export(store, guest, "proxy_on_vm_start")?,
            validate_configuration: find_export(store, guest, "proxy_validate_configuration")?,
            on_configure: find_export(store, guest, "proxy_on_configure")?,
            on_request_headers: HeadersExport::from_instance(store, guest, "proxy_on_request_headers")?,
            on_response_headers: HeadersExport::from_instance(store, guest, "proxy_on_response_headers")?,
            on_request_body: find_export(store, guest, "proxy_on_request_body")?,
            on_response_body: find_export(store, guest, "proxy_on_response_body")?,
            on_request_trailers: find_export(store, guest, "proxy_on_request_trailers")?,
            on_response_trailers: find_export(store, guest, "proxy_on_response_trailers")?,
            on_http_call_response: find_export(store, guest, "proxy_on_http_call_response")?,
            on_grpc_receive_initial_metadata: find_export(
                store,
                guest,
                "proxy_on_grpc_receive_initial_metadata",
            )?,
            on_grpc_receive: find_export(store, guest, "proxy_on_grpc_receive")?,
            on_grpc_receive_trailing_metadata: find_export(
                store,
                guest,
                "proxy_on_grpc_receive_trailing_metadata",
            )?,
            on_grpc_close: find_export(store, guest, "proxy_on_grpc_close")?,
            on_tick: find_export(store, guest, "proxy_on_tick")?,
            on_queue_ready: find_export(store, guest, "proxy_on_queue_ready")?,
            on_done: find_export(store, guest, "proxy_on_done")?,
            on_log: find_export(store, guest, "proxy_on_log")?,
            on_delete: find_export(store, guest, "proxy_on_delete")?,
        })
    }
}

impl HeadersExport {
    fn from_instance(
        store: &mut Store<FilterHost>,
        guest: &Guest,
        name: &'static str,
    ) -> Result<Self, NotReady> {
        let Some(function) = guest.get_func(&mut *store, name) else { return Ok(Self::Missing) };
        if let Ok(three) = function.typed(&*store) {
            return Ok(Self::ThreeParameters(three));
        }
        let two =
            function.typed(&*store).map_err(|_| NotReady::Refused(FilterRefusalReason::Signature(name)))?;
        Ok(Self::TwoParameters(two))
    }
}

/// Looks up a callback, if it is exported. A callback of another type is refused.
pub(crate) fn find_export<P: WasmParams, R: WasmResults>(
    store: &mut Store<FilterHost>,
    guest: &Guest,
    name: &'static str,
) -> Result<CallbackFunction<P, R>, NotReady> {
    let Some(function) = guest.get_func(&mut *store, name) else { return Ok(None) };
    function.typed(&*store).map(Some).map_err(|_| NotReady::Refused(FilterRefusalReason::Signature(name)))
}

/// Runs the initialisation of the language runtime: `_initialize` and then `main`, or `_start`.
pub(crate) async fn initialise(store: &mut Store<FilterHost>, guest: &Guest) -> Result<(), NotReady> {
    if !run_nullary(store, guest, "_initialize").await? {
        return run_nullary(store, guest, "_start").await.map(drop);
    }
    for name in ["main", "__main_void"] {
        let Some(main) = guest.get_func(&mut *store, name) else { continue };
        let called = if let Ok(main) = main.typed::<(u32, u32), u32>(&*store) {
            main.call_async(&mut *store, (0, 0)).await.map(drop)
        } else if let Ok(main) = main.typed::<(), u32>(&*store) {
            main.call_async(&mut *store, ()).await.map(drop)
        } else if let Ok(main) = main.typed::<(), ()>(&*store) {
            main.call_async(&mut *store, ()).await
        } else {
            return Err(NotReady::Refused(FilterRefusalReason::Signature(name)));
        };
        return called.map_err(NotReady::Trapped);
    }
    Ok(())
}

/// Calls an export without arguments, if it exists.
async fn run_nullary(
    store: &mut Store<FilterHost>,
    guest: &Guest,
    name: &'static str,
) -> Result<bool, NotReady> {
    let Some(function) = find_export::<(), ()>(store, guest, name)? else { return Ok(false) };
    function.call_async(store, ()).await.map_err(NotReady::Trapped)?;
    Ok(true)
}
