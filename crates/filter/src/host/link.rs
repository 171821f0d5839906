//! All host functions by name. All are available in every version of the ABI, since modules import every
//! function that their SDK has, even unused ones.

use sandbox::{Caller, Engine, GuestResult, Linker};

use super::shim::{self, GivingFunction};
use super::{
    FilterHost, GuestModule, buffers, calls, foreign, grpc, headers, memory, properties, share, system, wasi,
};
use crate::abi::HostStatus;

/// Links functions of the namespace `env`, each with the types of its parameters. Functions after `async` may
/// yield, and receive their parameters as a tuple.
macro_rules! link {
    (
        $linker:ident: $($name:literal ($($parameter:ident: $type:ty),*) => $function:path;)*
        async $($slow:literal => $slow_function:path;)*
    ) => {
        $($linker.func_wrap("env", $name, |caller: Caller<'_, FilterHost>, $($parameter: $type),*| -> u32 {
            let mut guest = GuestModule::new(caller);
            let done = $function(&mut guest, $($parameter),*);
            guest.finish($name, done)
        })?;)*
        $($linker.func_wrap_async("env", $slow, |caller: Caller<'_, FilterHost>, parameters| {
            Box::new(async move {
                let mut guest = GuestModule::new(caller);
                let done = $slow_function(&mut guest, parameters).await?;
                GuestResult::Ok(guest.finish($slow, done))
            })
        })?;)*
    };
}

/// Defines the functions that return bytes to the module: their names for the shim, their first halves, and
/// placeholders for linking a module that is inspected but not run. Functions after `async` may yield in
/// their first half.
macro_rules! giving {
    (
        $($name:literal ($($parameter:ident),*) => $function:path;)*
        async $($slow:literal ($($argument:ident),*) => $slow_function:path;)*
    ) => {
        /// The host functions that return bytes to the module.
        pub(crate) const GIVING: &[GivingFunction] = &[
            $(($name, [$(stringify!($parameter)),*].len() as u32),)*
            $(($slow, [$(stringify!($argument)),*].len() as u32),)*
        ];

        /// The halves of these functions, for the shim.
        pub(crate) fn halves(engine: &Engine) -> GuestResult<Linker<FilterHost>> {
            let mut linker = Linker::new(engine);
            linker.func_wrap(shim::FINISH.0, shim::FINISH.1, memory::finish)?;
            $(linker.func_wrap(shim::BEGIN, $name, |caller: Caller<'_, FilterHost>, $($parameter: u32),*| -> u64 {
                let mut guest = GuestModule::new(caller);
                let done = $function(&mut guest, $($parameter),*);
                guest.begin($name, done)
            })?;)*
            $(linker.func_wrap_async(shim::BEGIN, $slow, |caller: Caller<'_, FilterHost>, parameters| {
                Box::new(async move {
                    let mut guest = GuestModule::new(caller);
                    let done = $slow_function(&mut guest, parameters).await?;
                    GuestResult::Ok(guest.begin($slow, done))
                })
            })?;)*
            Ok(linker)
        }

        fn add_giving(linker: &mut Linker<FilterHost>) -> GuestResult<()> {
            $(linker.func_wrap("env", $name, |$($parameter: u32),*| -> u32 {
                let _ = ($($parameter,)*);
                HostStatus::InternalFailure as u32
            })?;)*
            $(linker.func_wrap("env", $slow, |$($argument: u32),*| -> u32 {
                let _ = ($($argument,)*);
                HostStatus::InternalFailure as u32
            })?;)*
            Ok(())
        }
    };
}

giving! {
    "proxy_get_status" (code, text, length) => grpc::get_status;
    "proxy_get_configuration" (address, length) => buffers::get_configuration;
    "proxy_get_buffer_bytes" (kind, start, most, address, length) => buffers::get;
    "proxy_get_header_map_pairs" (map, address, length) => headers::get_all;
    "proxy_get_header_map_value" (map, name, of, address, length) => headers::get;
    "proxy_get_property" (path, of, address, length) => properties::get;
    "proxy_get_shared_data" (key, of, address, length, cas) => share::get_data;
    "proxy_dequeue_shared_queue" (queue, address, length) => share::dequeue;
    async
    "proxy_call_foreign_function" (name, name_length, argument, argument_length, address, length) => foreign::call_foreign_function;
}

/// Adds all host functions to a linker.
pub(crate) fn add_host_functions(linker: &mut Linker<FilterHost>) -> GuestResult<()> {
    link! { linker:
        "proxy_log" (level: u32, text: u32, length: u32) => system::log;
        "proxy_get_log_level" (to: u32) => system::get_log_level;
        "proxy_get_current_time_nanoseconds" (to: u32) => system::get_current_time;
        "proxy_set_tick_period_milliseconds" (period: u32) => system::set_tick_period;
        "proxy_set_effective_context" (context: u32) => system::set_effective_context;
        "proxy_done" () => system::done;
        "proxy_set_buffer_bytes" (kind: u32, start: u32, size: u32, data: u32, length: u32) => buffers::set;
        "proxy_get_buffer_status" (kind: u32, length: u32, flags: u32) => buffers::get_status;
        "proxy_get_header_map_size" (map: u32, to: u32) => headers::size;
        "proxy_set_header_map_pairs" (map: u32, data: u32, length: u32) => headers::set_all;
        "proxy_add_header_map_value" (map: u32, name: u32, of: u32, value: u32, length: u32) => headers::add;
        "proxy_replace_header_map_value" (map: u32, name: u32, of: u32, value: u32, length: u32) => headers::replace;
        "proxy_remove_header_map_value" (map: u32, name: u32, of: u32) => headers::remove;
        "proxy_set_property" (path: u32, of: u32, value: u32, length: u32) => properties::set;
        "proxy_continue_stream" (stream: u32) => system::continue_stream;
        "proxy_close_stream" (stream: u32) => system::close_stream;
        "proxy_continue_request" () => system::continue_request;
        "proxy_continue_response" () => system::continue_response;
        "proxy_clear_route_cache" () => system::clear_route_cache;
        "proxy_grpc_stream" (
            upstream: u32, upstream_length: u32, service: u32, service_length: u32, method: u32,
            method_length: u32, metadata: u32, metadata_length: u32, to: u32
        ) => grpc::stream;
        "proxy_grpc_cancel" (token: u32) => grpc::cancel;
        "proxy_grpc_close" (token: u32) => grpc::close;
        "proxy_register_shared_queue" (name: u32, length: u32, to: u32) => share::register_queue;
        "proxy_resolve_shared_queue" (
            vm_id: u32, vm_id_length: u32, name: u32, length: u32, to: u32
        ) => share::resolve_queue;
        "proxy_define_metric" (kind: u32, name: u32, length: u32, to: u32) => share::define_metric;
        "proxy_increment_metric" (metric: u32, by: u64) => share::increment_metric;
        "proxy_record_metric" (metric: u32, value: u64) => share::record_metric;
        "proxy_get_metric" (metric: u32, to: u32) => share::get_metric;
        async
        "proxy_send_local_response" => system::send_local_response;
        "proxy_http_call" => calls::http_call;
        "proxy_grpc_call" => grpc::call;
        "proxy_grpc_send" => grpc::send;
        "proxy_set_shared_data" => share::set_data;
        "proxy_enqueue_shared_queue" => share::enqueue;
    }
    add_giving(linker)?;
    wasi::add_wasi(linker)
}
