//! Header maps: availability by callback, reading and writing.
//!
//! In the strict dialect, a head is available in the callbacks of its own phase until it has been sent on. In
//! the lenient dialect, as in nginx, a head can be read for the lifetime of the exchange, and headers of a
//! response that has not arrived yet can be set: they are applied when it arrives.

use http::HeaderMap;
use http::header::HeaderValue;

use super::memory::at;
use super::{FilterHost, GuestModule, HostResult, ModuleContext};
use crate::abi::{AbiVersion, HostStatus, MapType, MessageSide};
use crate::message::{self, MessageHead};
use crate::messages::{EarlyResponseChange, ExchangeMessages};
use crate::stream::StreamContext;

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
    let map = MapType::of(map)?;
    guest.about(|| map.name().to_owned());
    let size = read(guest.host(), map, message::size)?;
    guest.put_u32(to, u32::try_from(size).unwrap_or(u32::MAX))
}

/// `proxy_get_header_map_pairs`
pub(super) fn get_all(guest: &mut GuestModule<'_>, map: u32, address: u32, length: u32) -> HostResult {
    let map = MapType::of(map)?;
    guest.about(|| map.name().to_owned());
    let host = guest.host();
    let Some(stream) = host.stream().filter(|_| is_of_exchange(map)).cloned() else {
        // A call's response. This is rare, so the simple path with a copy is enough.
        let bytes = read(host, map, |head| {
            let mut bytes = vec![0; message::size(head)];
            message::write(head, &mut bytes).map(|()| bytes)
        })?;
        return guest.give(&bytes.ok_or(HostStatus::InternalFailure)?, (address, length));
    };
    let size = read_exchange(&stream, map, message::size)?;
    guest.give_with(size, (address, length), |into| {
        read_exchange(&stream, map, |head| message::write(head, into)).ok().flatten()
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
    let map = MapType::of(map)?;
    let value = {
        let name = guest.bytes((name, of))?;
        read(guest.host(), map, |head| head.get(name))?
    };
    if guest.host().is_observed() {
        let name = guest.text((name, of))?;
        guest.about(|| format!("{}, {name}", map.name()));
    }
    match value {
        Some(value) => guest.give(value.as_bytes(), (address, length)),
        // In 0.1.0 a missing header is not an error.
        None if guest.host().core.module.abi == AbiVersion::V0_1_0 => guest.give(b"", (address, length)),
        None => Err(HostStatus::NotFound),
    }
}

/// `proxy_set_header_map_pairs`
pub(super) fn set_all(guest: &mut GuestModule<'_>, map: u32, data: u32, length: u32) -> HostResult {
    let map = MapType::of(map)?;
    guest.about(|| map.name().to_owned());
    let (memory, host) = guest.split()?;
    let pairs = message::read(at(memory, (data, length))?)?;
    change(host, map, MapChange::SetAll(&pairs))
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
    change_one(guest, map, (name, of), (value, length), |name, value| MapChange::Add(name, value))
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
    change_one(guest, map, (name, of), (value, length), |name, value| MapChange::Replace(name, value))
}

/// `proxy_remove_header_map_value`
pub(super) fn remove(guest: &mut GuestModule<'_>, map: u32, name: u32, of: u32) -> HostResult {
    change_one(guest, map, (name, of), (0, 0), |name, _| MapChange::Remove(name))
}

fn change_one(
    guest: &mut GuestModule<'_>,
    map: u32,
    name: (u32, u32),
    value: (u32, u32),
    make: impl for<'a> FnOnce(&'a [u8], &'a [u8]) -> MapChange<'a>,
) -> HostResult {
    let map = MapType::of(map)?;
    if guest.host().is_observed() {
        let (name, value) = (guest.text(name)?, guest.text(value)?);
        guest.about(|| format!("{}, {name}: {value}", map.name()));
    }
    let (memory, host) = guest.split()?;
    let (name, value) = (at(memory, name)?, at(memory, value)?);
    change(host, map, make(name, value))
}

fn is_of_exchange(map: MapType) -> bool {
    use MapType::{RequestHeaders, RequestTrailers, ResponseHeaders, ResponseTrailers};
    matches!(map, RequestHeaders | RequestTrailers | ResponseHeaders | ResponseTrailers)
}

/// Reads a map, or returns the status if it is not available.
fn read<T>(
    host: &FilterHost,
    map: MapType,
    see: impl FnOnce(&MessageHead<'_>) -> T,
) -> Result<T, HostStatus> {
    if is_of_exchange(map) {
        return read_exchange(host.stream().ok_or(HostStatus::BadArgument)?, map, see);
    }
    let received = &host.received;
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

fn read_exchange<T>(
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
            let is_open = stream.is_lenient() || messages.is_open(is_request) || messages.is_over;
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
fn change(host: &FilterHost, map: MapType, change: MapChange<'_>) -> Result<(), HostStatus> {
    let Some((_, ModuleContext::Stream(stream))) = &host.current else { return Err(HostStatus::BadArgument) };
    let written = match change {
        MapChange::Add(name, value) | MapChange::Replace(name, value) => name.len() + value.len(),
        MapChange::Remove(_) => 0,
        MapChange::SetAll(pairs) => pairs.iter().map(|(name, value)| name.len() + value.len()).sum(),
    };
    if written > message::MAX_LIST || !stream.may_write(written) {
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
    if messages.is_open(is_request)
        && let Some(mut head) = messages.change(is_request)
    {
        return change.apply(&mut head);
    }
    if is_request || !stream.is_lenient() || messages.is_over || messages.has_left {
        return Err(HostStatus::BadArgument);
    }
    let change = change.early()?;
    let kept = if let EarlyResponseChange::Remove(name) = &change { name.len() } else { 0 };
    if messages.early.len() >= message::MAX_PAIRS || !stream.may_write(kept) {
        return Err(HostStatus::BadArgument);
    }
    messages.early.push(change);
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
    fn early(self) -> Result<EarlyResponseChange, HostStatus> {
        let checked = |name: &[u8], value: &[u8]| {
            let mut trial = HeaderMap::new();
            MessageHead::Plain(&mut trial).add(name, value)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| HostStatus::BadArgument)?;
            Ok::<_, HostStatus>((name.to_vec(), value))
        };
        Ok(match self {
            Self::Add(name, value) => EarlyResponseChange::Add(checked(name, value)?),
            Self::Replace(name, value) => EarlyResponseChange::Replace(checked(name, value)?),
            Self::Remove(name) if name.len() <= message::MAX_LIST => {
                EarlyResponseChange::Remove(name.to_vec())
            }
            Self::Remove(_) => return Err(HostStatus::BadArgument),
            Self::SetAll(_) => return Err(HostStatus::BadArgument),
        })
    }
}
