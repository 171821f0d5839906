//! Header maps: availability by callback, reading and writing.
//!
//! In the strict dialect, a head is available in the callbacks of its own phase until it has been sent on. In
//! the lenient dialect, as in nginx, a head can be read for the lifetime of the exchange, and headers of a
//! response that has not arrived yet can be set: they are applied when it arrives.

use http::HeaderMap;
use http::header::HeaderValue;

use super::memory::memory_slice;
use super::{FilterHost, GuestModule, HostResult};
use crate::abi::{AbiVersion, HostStatus, MapType, MessageSide};
use crate::context::{ModuleContext, StreamContext};
use crate::exchange::message::{self, MessageHead};
use crate::exchange::{EarlyResponseChange, ExchangeMessages};

/// A change of a map.
#[derive(Clone, Copy)]
enum MapChange<'a> {
    Add(&'a [u8], &'a [u8]),
    Replace(&'a [u8], &'a [u8]),
    Remove(&'a [u8]),
    SetAll(&'a [(&'a [u8], &'a [u8])]),
}

/// `proxy_get_header_map_size`
pub(super) fn size(guest: &mut GuestModule<'_>, map: u32, to: u32) -> HostResult {
    let map = MapType::from_number(map)?;
    guest.describe_call(|| map.name().to_owned());
    let size = read_map(guest.host(), map, message::encoded_size)?;
    guest.write_u32(to, u32::try_from(size).unwrap_or(u32::MAX))
}

/// `proxy_get_header_map_pairs`
pub(super) fn get_all(guest: &mut GuestModule<'_>, map: u32, address: u32, length: u32) -> HostResult {
    let map = MapType::from_number(map)?;
    guest.describe_call(|| map.name().to_owned());
    let host = guest.host();
    let Some(stream) = host.effective_stream().filter(|_| is_exchange_map(map)).cloned() else {
        // A call's response. This is rare, so the simple path with a copy is enough.
        let bytes = read_map(host, map, |head| {
            let mut bytes = vec![0; message::encoded_size(head)];
            message::encode_head(head, &mut bytes).map(|()| bytes)
        })?;
        return guest.return_copy(&bytes.ok_or(HostStatus::InternalFailure)?, (address, length));
    };
    let size = read_exchange_map(&stream, map, message::encoded_size)?;
    guest.return_with(size, (address, length), |into| {
        read_exchange_map(&stream, map, |head| message::encode_head(head, into)).ok().flatten()
    })
}

/// `proxy_get_header_map_value`
pub(super) fn get(
    guest: &mut GuestModule<'_>,
    map: u32,
    name: u32,
    of: u32,
    address: u32,
    length: u32,
) -> HostResult {
    let map = MapType::from_number(map)?;
    let value = {
        let name = guest.memory_bytes((name, of))?;
        read_map(guest.host(), map, |head| head.get(name))?
    };
    if guest.host().has_observer() {
        let name = guest.memory_text((name, of))?;
        guest.describe_call(|| format!("{}, {name}", map.name()));
    }
    match value {
        Some(value) => guest.return_copy(value.as_bytes(), (address, length)),
        // In 0.1.0 a missing header is not an error.
        None if guest.host().resources.abi == AbiVersion::V0_1_0 => guest.return_copy(b"", (address, length)),
        None => Err(HostStatus::NotFound),
    }
}

/// `proxy_set_header_map_pairs`
pub(super) fn set_all(guest: &mut GuestModule<'_>, map: u32, data: u32, length: u32) -> HostResult {
    let map = MapType::from_number(map)?;
    guest.describe_call(|| map.name().to_owned());
    let (memory, host) = guest.split_memory()?;
    let pairs = message::decode_pairs(memory_slice(memory, (data, length))?)?;
    change_map(host, map, MapChange::SetAll(&pairs))
}

/// `proxy_add_header_map_value`
pub(super) fn add(
    guest: &mut GuestModule<'_>,
    map: u32,
    name: u32,
    of: u32,
    value: u32,
    length: u32,
) -> HostResult {
    change_value(guest, map, (name, of), (value, length), |name, value| MapChange::Add(name, value))
}

/// `proxy_replace_header_map_value`
pub(super) fn replace(
    guest: &mut GuestModule<'_>,
    map: u32,
    name: u32,
    of: u32,
    value: u32,
    length: u32,
) -> HostResult {
    change_value(guest, map, (name, of), (value, length), |name, value| MapChange::Replace(name, value))
}

/// `proxy_remove_header_map_value`
pub(super) fn remove(guest: &mut GuestModule<'_>, map: u32, name: u32, of: u32) -> HostResult {
    change_value(guest, map, (name, of), (0, 0), |name, _| MapChange::Remove(name))
}

fn change_value(
    guest: &mut GuestModule<'_>,
    map: u32,
    name: (u32, u32),
    value: (u32, u32),
    make: impl for<'a> FnOnce(&'a [u8], &'a [u8]) -> MapChange<'a>,
) -> HostResult {
    let map = MapType::from_number(map)?;
    if guest.host().has_observer() {
        let (name, value) = (guest.memory_text(name)?, guest.memory_text(value)?);
        guest.describe_call(|| format!("{}, {name}: {value}", map.name()));
    }
    let (memory, host) = guest.split_memory()?;
    let (name, value) = (memory_slice(memory, name)?, memory_slice(memory, value)?);
    change_map(host, map, make(name, value))
}

fn is_exchange_map(map: MapType) -> bool {
    use MapType::{RequestHeaders, RequestTrailers, ResponseHeaders, ResponseTrailers};
    matches!(map, RequestHeaders | RequestTrailers | ResponseHeaders | ResponseTrailers)
}

/// Reads a map, or returns the status if it is not available.
fn read_map<T>(
    host: &FilterHost,
    map: MapType,
    see: impl FnOnce(&MessageHead<'_>) -> T,
) -> Result<T, HostStatus> {
    if is_exchange_map(map) {
        return read_exchange_map(host.effective_stream().ok_or(HostStatus::BadArgument)?, map, see);
    }
    let received = &host.received_data;
    let headers = match map {
        MapType::GrpcInitialMetadata => &received.metadata,
        MapType::GrpcTrailingMetadata | MapType::CallTrailers => &received.trailers,
        _ => match &received.head {
            Some(head) => return Ok(see(&MessageHead::Response(&mut head.clone()))),
            None => &received.metadata,
        },
    };
    Ok(see(&MessageHead::Plain(&mut headers.clone())))
}

fn read_exchange_map<T>(
    stream: &StreamContext,
    map: MapType,
    see: impl FnOnce(&MessageHead<'_>) -> T,
) -> Result<T, HostStatus> {
    let side = match map {
        MapType::RequestTrailers => MessageSide::Request,
        MapType::ResponseTrailers => MessageSide::Response,
        _ => {
            let mut messages = stream.exchange.messages();
            let is_request = map == MapType::RequestHeaders;
            let is_open = stream.is_lenient() || messages.is_changeable(is_request) || messages.is_over;
            return match messages.head(is_request).filter(|_| is_open) {
                Some(head) => Ok(see(&head)),
                // A response that has not arrived yet is empty.
                None if stream.is_lenient() => Ok(see(&MessageHead::Plain(&mut HeaderMap::new()))),
                None => Err(HostStatus::BadArgument),
            };
        }
    };
    let mut state = stream.state();
    match &mut state.half(side).trailers {
        Some(trailers) => Ok(see(&MessageHead::Plain(trailers))),
        None if stream.is_lenient() => Ok(see(&MessageHead::Plain(&mut HeaderMap::new()))),
        None => Err(HostStatus::BadArgument),
    }
}

/// Changes a map, or returns the status if it can't be changed.
fn change_map(host: &FilterHost, map: MapType, change: MapChange<'_>) -> Result<(), HostStatus> {
    let Some((_, ModuleContext::Stream(stream))) = &host.effective_context else {
        return Err(HostStatus::BadArgument);
    };
    let written = match change {
        MapChange::Add(name, value) | MapChange::Replace(name, value) => name.len() + value.len(),
        MapChange::Remove(_) => 0,
        MapChange::SetAll(pairs) => pairs.iter().map(|(name, value)| name.len() + value.len()).sum(),
    };
    if written > message::MAX_LIST_BYTES || !stream.count_written_bytes(written) {
        return Err(HostStatus::BadArgument);
    }
    let side = match map {
        MapType::RequestTrailers => MessageSide::Request,
        MapType::ResponseTrailers => MessageSide::Response,
        MapType::RequestHeaders | MapType::ResponseHeaders => {
            return change_head(stream, &mut stream.exchange.messages(), map, change);
        }
        _ => return Err(HostStatus::BadArgument),
    };
    let mut state = stream.state();
    let trailers = state.half(side).trailers.as_mut().ok_or(HostStatus::BadArgument)?;
    change.apply(&mut MessageHead::Plain(trailers))
}

fn change_head(
    stream: &StreamContext,
    messages: &mut ExchangeMessages,
    map: MapType,
    change: MapChange<'_>,
) -> Result<(), HostStatus> {
    let is_request = map == MapType::RequestHeaders;
    if messages.is_changeable(is_request)
        && let Some(mut head) = messages.head_mut(is_request)
    {
        return change.apply(&mut head);
    }
    if is_request || !stream.is_lenient() || messages.is_over || messages.response_has_left {
        return Err(HostStatus::BadArgument);
    }
    let change = change.into_early_change()?;
    let kept = if let EarlyResponseChange::Remove(name) = &change { name.len() } else { 0 };
    if messages.early_changes.len() >= message::MAX_PAIRS || !stream.count_written_bytes(kept) {
        return Err(HostStatus::BadArgument);
    }
    messages.early_changes.push(change);
    Ok(())
}

impl MapChange<'_> {
    fn apply(self, head: &mut MessageHead<'_>) -> Result<(), HostStatus> {
        match self {
            Self::Add(name, value) => head.add(name, value),
            Self::Replace(name, value) => head.replace(name, value),
            Self::Remove(name) => {
                head.remove(name);
                Ok(())
            }
            Self::SetAll(pairs) => head.set_all(pairs),
        }
    }

    /// The change in the form that is stored for a response that has not arrived yet.
    fn into_early_change(self) -> Result<EarlyResponseChange, HostStatus> {
        let checked = |name: &[u8], value: &[u8]| {
            let mut trial = HeaderMap::new();
            MessageHead::Plain(&mut trial).add(name, value)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| HostStatus::BadArgument)?;
            Ok::<_, HostStatus>((name.to_vec(), value))
        };
        Ok(match self {
            Self::Add(name, value) => EarlyResponseChange::Add(checked(name, value)?),
            Self::Replace(name, value) => EarlyResponseChange::Replace(checked(name, value)?),
            Self::Remove(name) if name.len() <= message::MAX_LIST_BYTES => {
                EarlyResponseChange::Remove(name.to_vec())
            }
            Self::Remove(_) => return Err(HostStatus::BadArgument),
            Self::SetAll(_) => return Err(HostStatus::BadArgument),
        })
    }
}
