//! Host functions for logging, time, contexts and the control of an exchange.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sandbox::GuestResult;
use tracing::Level;

use super::{FilterHost, GuestModule, HostResult};
use crate::abi::{HostStatus, MessageSide};
use crate::context::LocalResponse;
use crate::exchange::grpc_headers;
use crate::exchange::message::{self, MessageHead};
use crate::telemetry::FilterEvent;

/// The maximum length of a logged message in bytes.
const LONGEST_MESSAGE: usize = 16 << 10;
/// The maximum length of the details of a local response, and of the message of one for a gRPC client, in
/// bytes.
const LONGEST_DETAILS: usize = 4 << 10;
/// The shortest time between ticks, in milliseconds.
const SHORTEST_PERIOD: u64 = 1;

/// `proxy_log`
pub(super) fn log(guest: &mut GuestModule<'_>, level: u32, text: u32, length: u32) -> HostResult {
    let host = guest.host();
    if level > 5 {
        return Err(HostStatus::BadArgument);
    }
    let bytes = guest.memory_bytes((text, length))?;
    if host.has_observer() || level >= min_log_level() {
        let shown = bytes.get(..LONGEST_MESSAGE).unwrap_or(bytes);
        write_log(host, level, &String::from_utf8_lossy(shown));
    }
    Ok(())
}

/// Writes a message of a module to the log.
pub(super) fn write_log(host: &FilterHost, level: u32, message: &str) {
    let filter = host.spec().map_or("", |spec| &*spec.name);
    let name = match level {
        0 => "trace",
        1 => "debug",
        2 => "info",
        3 => "warn",
        4 => "error",
        _ => "critical",
    };
    if host.has_observer() {
        host.notify_observer(&FilterEvent::Log { filter, level: name, message });
    }
    match level {
        0 => tracing::trace!(target: "filter", filter, "{message}"),
        1 => tracing::debug!(target: "filter", filter, "{message}"),
        2 => tracing::info!(target: "filter", filter, "{message}"),
        3 => tracing::warn!(target: "filter", filter, "{message}"),
        4 => tracing::error!(target: "filter", filter, "{message}"),
        // The log has no higher level.
        _ => tracing::error!(target: "filter", filter, severity = name, "{message}"),
    }
}

/// The lowest level that is enabled.
fn min_log_level() -> u32 {
    let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
    let max = tracing::level_filters::LevelFilter::current();
    levels.iter().take_while(|level| **level > max).count() as u32
}

/// `proxy_get_log_level`
pub(super) fn get_log_level(guest: &mut GuestModule<'_>, to: u32) -> HostResult {
    guest.write_u32(to, min_log_level())
}

/// `proxy_get_current_time_nanoseconds`
pub(super) fn get_current_time(guest: &mut GuestModule<'_>, to: u32) -> HostResult {
    guest.write_u64(to, unix_nanoseconds(SystemTime::now()))
}

/// Converts a time to nanoseconds since 1970.
pub(super) fn unix_nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// `proxy_set_tick_period_milliseconds`
pub(super) fn set_tick_period(guest: &mut GuestModule<'_>, period: u32) -> HostResult {
    guest.describe_call(|| format!("{period} ms"));
    let host = guest.host();
    let root = host.effective_root().ok_or(HostStatus::BadArgument)?;
    let period = if period == 0 { 0 } else { u64::from(period).max(SHORTEST_PERIOD) };
    root.period.store(period, Relaxed);
    root.start_timer(&host.instance);
    Ok(())
}

/// `proxy_set_effective_context`
pub(super) fn set_effective_context(guest: &mut GuestModule<'_>, id: u32) -> HostResult {
    guest.describe_call(|| id.to_string());
    let host = guest.host_mut();
    if host.effective_context.as_ref().is_some_and(|(current, _)| *current == id) {
        return Ok(());
    }
    let context = host.contexts.get(&id).ok_or(HostStatus::BadArgument)?.clone();
    host.effective_context = Some((id, context));
    Ok(())
}

/// `proxy_done`
pub(super) fn done(guest: &mut GuestModule<'_>) -> HostResult {
    guest.host_mut().mark_done()
}

/// `proxy_continue_stream`
pub(super) fn continue_stream(guest: &mut GuestModule<'_>, stream: u32) -> HostResult {
    match stream {
        0 => continue_request(guest),
        1 => continue_response(guest),
        // Downstream and upstream of a TCP connection.
        2 | 3 => Err(HostStatus::Unimplemented),
        _ => Err(HostStatus::BadArgument),
    }
}

/// `proxy_continue_request`, of 0.1.0
pub(super) fn continue_request(guest: &mut GuestModule<'_>) -> HostResult {
    resume_stream(guest, MessageSide::Request)
}

/// `proxy_continue_response`, of 0.1.0
pub(super) fn continue_response(guest: &mut GuestModule<'_>) -> HostResult {
    resume_stream(guest, MessageSide::Response)
}

fn resume_stream(guest: &mut GuestModule<'_>, side: MessageSide) -> HostResult {
    // Only sets a flag and wakes: the waiting future must not call the module while it is running.
    guest.host().effective_stream().ok_or(HostStatus::BadArgument)?.resume(side);
    Ok(())
}

/// `proxy_close_stream`
pub(super) fn close_stream(guest: &mut GuestModule<'_>, stream: u32) -> HostResult {
    if stream > 3 {
        return Err(HostStatus::BadArgument);
    }
    let stream = guest.host().effective_stream().ok_or(HostStatus::BadArgument)?;
    stream.state().is_closed = true;
    stream.wake();
    Ok(())
}

/// `proxy_clear_route_cache`, of 0.1.0: the route is chosen before filters run, and stays.
pub(super) fn clear_route_cache(_: &mut GuestModule<'_>) -> HostResult {
    Ok(())
}

/// The parameters of `proxy_send_local_response`: the status, pointer and length of the details, the body and
/// the headers, and the gRPC status.
type LocalResponseParameters = (u32, u32, u32, u32, u32, u32, u32, u32);

/// `proxy_send_local_response`: the first response counts, and is sent after the callback has returned. It
/// has no effect after the response head has left. Outside of every exchange it returns `BAD_ARGUMENT`.
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn send_local_response(
    guest: &mut GuestModule<'_>,
    (status, details, details_length, body, body_length, headers, headers_length, grpc): LocalResponseParameters,
) -> GuestResult<HostResult> {
    guest.describe_call(|| status.to_string());
    let body = guest.copy_bytes((body, body_length)).await?;
    let parts = [(details, details_length), (headers, headers_length)];
    let done = body.and_then(|body| store_local_response(guest, status, parts, body, grpc));
    if done.is_err() {
        guest.host().mark_stream_refused();
    }
    Ok(done)
}

fn store_local_response(
    guest: &GuestModule<'_>,
    status: u32,
    [details, headers]: [(u32, u32); 2],
    body: Bytes,
    grpc: u32,
) -> HostResult {
    let code = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let code =
        code.filter(|code| code.as_u16() >= 200 && code.as_u16() < 600).ok_or(HostStatus::BadArgument)?;
    let details = truncated_text(guest.memory_bytes(details)?);
    let mut fields = HeaderMap::new();
    for (name, value) in message::decode_pairs(guest.memory_bytes(headers)?)? {
        MessageHead::Plain(&mut fields).add(name, value)?;
    }
    let stream = guest.host().answerable_stream().ok_or(HostStatus::BadArgument)?;
    let mut local = LocalResponse { status: code, headers: fields, body, details };
    if stream.exchange.is_grpc() {
        convert_to_grpc(&mut local, grpc);
    }
    let has_left = stream.exchange.messages().response_has_left;
    let mut state = stream.state();
    if !has_left && !state.has_responded {
        state.has_responded = true;
        state.local_response = Some(local);
        drop(state);
        stream.wake();
    }
    Ok(())
}

/// Converts a local response for a gRPC client into a trailers-only response.
fn convert_to_grpc(local: &mut LocalResponse, grpc: u32) {
    let status = if grpc == u32::MAX { grpc_status(local.status) } else { grpc };
    let message = truncated_text(&local.body);
    grpc_headers(&mut local.headers, status, &message);
    local.status = StatusCode::OK;
    local.body = Bytes::new();
}

/// The first [`LONGEST_DETAILS`] bytes of a text, with invalid UTF-8 replaced.
fn truncated_text(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..LONGEST_DETAILS).unwrap_or(text)).into_owned()
}

/// Maps an HTTP status to a gRPC status, as in the gRPC documentation.
pub(super) fn grpc_status(status: StatusCode) -> u32 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => 2,
    }
}
