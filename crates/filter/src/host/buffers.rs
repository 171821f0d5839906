//! Buffers: bodies, configurations, responses of calls.
//!
//! A missing buffer is NOT_FOUND, which SDKs read as "no data". A range beyond the end is clipped.

use bytes::{Bytes, BytesMut};

use super::memory::memory_slice;
use super::{FilterHost, GuestModule, HostResult, RootPhase};
use crate::abi::{BufferType, HostStatus, MessageSide};

/// `proxy_get_buffer_bytes`
pub(super) fn get(
    guest: &mut GuestModule<'_>,
    kind: u32,
    start: u32,
    most: u32,
    address: u32,
    length: u32,
) -> HostResult {
    let kind = BufferType::from_number(kind)?;
    guest.describe_call(|| format!("{}, {most} bytes from {start}", kind.name()));
    note_body_read(guest.host(), kind);
    let data = buffer_data(guest.host(), kind)?;
    if data.is_empty() {
        return Err(HostStatus::NotFound);
    }
    let end = start.saturating_add(most) as usize;
    let piece = data.slice((start as usize).min(data.len())..end.min(data.len()));
    guest.return_bytes(piece, (address, length))
}

/// `proxy_get_buffer_status`
pub(super) fn get_status(guest: &mut GuestModule<'_>, kind: u32, length: u32, flags: u32) -> HostResult {
    let kind = BufferType::from_number(kind)?;
    guest.describe_call(|| kind.name().to_owned());
    note_body_read(guest.host(), kind);
    let data = buffer_data(guest.host(), kind)?;
    guest.write_u32(length, u32::try_from(data.len()).unwrap_or(u32::MAX))?;
    guest.write_u32(flags, 0)
}

/// `proxy_set_buffer_bytes`: replaces `size` bytes from `start` on. A range that starts beyond the end is
/// appended.
pub(super) fn set(
    guest: &mut GuestModule<'_>,
    kind: u32,
    start: u32,
    size: u32,
    data: u32,
    length: u32,
) -> HostResult {
    let kind = BufferType::from_number(kind)?;
    guest.describe_call(|| format!("{}, {length} bytes for {size} from {start}", kind.name()));
    let side = body_side(kind).ok_or(HostStatus::BadArgument)?;
    let (memory, host) = guest.split_memory()?;
    let new = memory_slice(memory, (data, length))?;
    let stream = host.effective_stream().ok_or(HostStatus::BadArgument)?;
    let limit = stream.spec.limits.buffer.0;
    let mut state = stream.state();
    let half = state.half(side);
    half.wants_body = true;
    if !half.is_open {
        return Err(HostStatus::BadArgument);
    }
    let old = &half.data;
    let from = (start as usize).min(old.len());
    let to = from.saturating_add(size as usize).min(old.len());
    let whole = old.len() - (to - from) + new.len();
    if whole as u64 > limit.max(old.len() as u64) {
        return Err(HostStatus::BadArgument);
    }
    let mut built = BytesMut::with_capacity(whole);
    built.extend_from_slice(old.get(..from).unwrap_or_default());
    built.extend_from_slice(new);
    built.extend_from_slice(old.get(to..).unwrap_or_default());
    half.data = built.freeze();
    half.is_changed = true;
    if half.unseen_bytes > 0 {
        // The boundary of the unseen bytes is lost, so all bytes are shown again.
        half.unseen_bytes = half.data.len();
    }
    Ok(())
}

/// `proxy_get_configuration`, of 0.1.0
pub(super) fn get_configuration(guest: &mut GuestModule<'_>, address: u32, length: u32) -> HostResult {
    let host = guest.host();
    let spec = host.spec().ok_or(HostStatus::BadArgument)?;
    let config = if host.phase == RootPhase::Starting { &spec.vm_config } else { &spec.config };
    let config = config.clone();
    guest.return_bytes(config, (address, length))
}

fn body_side(kind: BufferType) -> Option<MessageSide> {
    match kind {
        BufferType::RequestBody => Some(MessageSide::Request),
        BufferType::ResponseBody => Some(MessageSide::Response),
        _ => None,
    }
}

/// Records that the module reads the body.
fn note_body_read(host: &FilterHost, kind: BufferType) {
    if let (Some(side), Some(stream)) = (body_side(kind), host.effective_stream()) {
        stream.state().half(side).wants_body = true;
    }
}

/// Returns the bytes of a buffer. In the strict dialect, configurations are available only while the module
/// is started with them; in the lenient one always.
fn buffer_data(host: &FilterHost, kind: BufferType) -> Result<Bytes, HostStatus> {
    let is_configuring = host.phase != RootPhase::Serving || host.is_lenient();
    match kind {
        BufferType::RequestBody | BufferType::ResponseBody => {
            let side = body_side(kind).ok_or(HostStatus::BadArgument)?;
            let stream = host.effective_stream().ok_or(HostStatus::NotFound)?;
            Ok(stream.state().half(side).data.clone())
        }
        BufferType::CallBody | BufferType::GrpcMessage => Ok(host.received_data.body.clone()),
        BufferType::ForeignArguments => Ok(host.received_data.arguments.clone()),
        BufferType::VmConfiguration if is_configuring => {
            Ok(host.spec().ok_or(HostStatus::NotFound)?.vm_config.clone())
        }
        BufferType::PluginConfiguration if is_configuring => {
            Ok(host.spec().ok_or(HostStatus::NotFound)?.config.clone())
        }
        BufferType::VmConfiguration | BufferType::PluginConfiguration | BufferType::Tcp => {
            Err(HostStatus::NotFound)
        }
    }
}
