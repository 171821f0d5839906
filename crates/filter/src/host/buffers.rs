//! Buffers: bodies, configurations, responses of calls.
//!
//! A missing buffer is NOT_FOUND, which SDKs read as "no data". A range beyond the end is clipped.

use bytes::{Bytes, BytesMut};

use super::memory::at;
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
    let kind = BufferType::of(kind)?;
    guest.about(|| format!("{}, {most} bytes from {start}", kind.name()));
    note_asking(guest.host(), kind);
    let data = find(guest.host(), kind)?;
    if data.is_empty() {
        return Err(HostStatus::NotFound);
    }
    let end = start.saturating_add(most) as usize;
    let piece = data.slice((start as usize).min(data.len())..end.min(data.len()));
    guest.give_bytes(piece, (address, length))
}

/// `proxy_get_buffer_status`
pub(super) fn get_status(guest: &mut GuestModule<'_>, kind: u32, length: u32, flags: u32) -> HostResult {
    let kind = BufferType::of(kind)?;
    guest.about(|| kind.name().to_owned());
    note_asking(guest.host(), kind);
    let data = find(guest.host(), kind)?;
    guest.put_u32(length, u32::try_from(data.len()).unwrap_or(u32::MAX))?;
    guest.put_u32(flags, 0)
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
    let kind = BufferType::of(kind)?;
    guest.about(|| format!("{}, {length} bytes for {size} from {start}", kind.name()));
    let side = side(kind).ok_or(HostStatus::BadArgument)?;
    let (memory, host) = guest.split()?;
    let new = at(memory, (data, length))?;
    let stream = host.stream().ok_or(HostStatus::BadArgument)?;
    let limit = stream.spec.limits.buffer.0;
    let mut state = stream.state();
    let half = state.half(side);
    half.asks = true;
    if !half.open {
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
    half.changed = true;
    if half.unseen > 0 {
        // The boundary of the unseen bytes is lost, so all bytes are shown again.
        half.unseen = half.data.len();
    }
    Ok(())
}

/// `proxy_get_configuration`, of 0.1.0
pub(super) fn get_configuration(guest: &mut GuestModule<'_>, address: u32, length: u32) -> HostResult {
    let host = guest.host();
    let spec = host.spec().ok_or(HostStatus::BadArgument)?;
    let config = if host.phase == RootPhase::Starting { &spec.vm_config } else { &spec.config };
    let config = config.clone();
    guest.give_bytes(config, (address, length))
}

fn side(kind: BufferType) -> Option<MessageSide> {
    match kind {
        BufferType::RequestBody => Some(MessageSide::Request),
        BufferType::ResponseBody => Some(MessageSide::Response),
        _ => None,
    }
}

/// Records that the module reads the body.
fn note_asking(host: &FilterHost, kind: BufferType) {
    if let (Some(side), Some(stream)) = (side(kind), host.stream()) {
        stream.state().half(side).asks = true;
    }
}

/// Returns the bytes of a buffer. In the strict dialect, configurations are available only while the module
/// is started with them; in the lenient one always.
fn find(host: &FilterHost, kind: BufferType) -> Result<Bytes, HostStatus> {
    let is_configuring = host.phase != RootPhase::Serving || host.is_lenient();
    match kind {
        BufferType::RequestBody | BufferType::ResponseBody => {
            let side = side(kind).ok_or(HostStatus::BadArgument)?;
            let stream = host.stream().ok_or(HostStatus::NotFound)?;
            Ok(stream.state().half(side).data.clone())
        }
        BufferType::CallBody | BufferType::GrpcMessage => Ok(host.received.body.clone()),
        BufferType::ForeignArguments => Ok(host.received.arguments.clone()),
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
