//! Properties: data about an exchange beyond its messages.
//!
//! Paths are those of Envoy's attributes, with Envoy's encodings: text as is, numbers as eight bytes,
//! booleans as one. A path of one element is also looked up among nginx's variables, as in APISIX and Kong
//! (in Kong also after `ngx`); these are always text. Any other path returns the value that a module has set,
//! or NOT_FOUND.

mod nginx;

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Version, request};
use services::UpstreamCallRecord;

use super::{FilterHost, GuestModule, HostResult};
use crate::abi::{HostStatus, MessageSide};
use crate::context::StreamContext;
use crate::exchange::message::{self, MessageHead};
use crate::exchange::{ExchangeMessages, FilterExchange};

/// The maximum number of properties that modules may set in an exchange, and their maximum total size.
const MAX_PROPERTIES: usize = 256;
pub(super) const MAX_PROPERTY_BYTES: usize = 256 << 10;
/// The maximum number of elements of a path that are looked at: no known path has as many.
const MAX_ELEMENTS: usize = 4;

/// `proxy_get_property`
pub(super) fn get(guest: &mut GuestModule<'_>, path: u32, of: u32, address: u32, length: u32) -> HostResult {
    let value = {
        let raw = guest.memory_bytes((path, of))?;
        find_property(guest.host(), raw)
    };
    if guest.host().has_observer() {
        let path = guest.memory_text((path, of))?.replace('\0', ".");
        guest.describe_call(|| path);
    }
    guest.return_bytes(value.ok_or(HostStatus::NotFound)?, (address, length))
}

/// `proxy_set_property`
pub(super) fn set(guest: &mut GuestModule<'_>, path: u32, of: u32, value: u32, length: u32) -> HostResult {
    if guest.host().has_observer() {
        let path = guest.memory_text((path, of))?.replace('\0', ".");
        guest.describe_call(|| path);
    }
    let (path, value) = (guest.memory_bytes((path, of))?, guest.memory_bytes((value, length))?);
    let host = guest.host();
    // APISIX's way of requesting bodies.
    let side = match path {
        b"wasm_process_req_body" => Some(MessageSide::Request),
        b"wasm_process_resp_body" => Some(MessageSide::Response),
        _ => None,
    };
    if let (Some(side), Some(stream)) = (side, host.effective_stream()) {
        stream.state().half(side).wants_body = value != b"false" && value != b"0";
        return Ok(());
    }
    store_property(host, path, value)
}

/// Stores a property for all filters of the exchange.
pub(super) fn store_property(host: &FilterHost, path: &[u8], value: &[u8]) -> Result<(), HostStatus> {
    let stream = host.effective_stream().ok_or(HostStatus::NotFound)?;
    let mut messages = stream.exchange.messages();
    let known = &mut messages.properties;
    let bytes: usize = known.iter().map(|(path, value)| path.len() + value.len()).sum();
    let is_over = bytes + path.len() + value.len() > MAX_PROPERTY_BYTES;
    if is_over || (known.len() >= MAX_PROPERTIES && !known.contains_key(path)) {
        return Err(HostStatus::InternalFailure);
    }
    known.insert(path.to_vec(), Bytes::copy_from_slice(value));
    Ok(())
}

/// Splits a path into its elements, at most [`MAX_ELEMENTS`].
pub(crate) fn split_path(path: &[u8]) -> Vec<&[u8]> {
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    path.split(|byte| *byte == 0).take(MAX_ELEMENTS).collect()
}

fn find_property(host: &FilterHost, raw: &[u8]) -> Option<Bytes> {
    // No property with a longer path can be set.
    if raw.len() > MAX_PROPERTY_BYTES {
        return None;
    }
    let path = split_path(raw);
    let spec = host.spec()?;
    match path[..] {
        [b"plugin_name"] => return Some(Bytes::copy_from_slice(spec.name.as_bytes())),
        [b"plugin_root_id"] => return Some(spec.root_id.clone().into()),
        [b"plugin_vm_id"] => return Some(spec.vm_id.clone().into()),
        _ => {}
    }
    let stream = host.effective_stream()?;
    let exchange = &stream.exchange;
    let mut messages = exchange.messages();
    if let Some(set) = stored_property(&messages, raw, &path) {
        return Some(set);
    }
    let known = match path[..] {
        [b"request", ref rest @ ..] => request_property(exchange, &mut messages, rest),
        [b"response", ref rest @ ..] => response_property(stream, &mut messages, rest),
        [b"connection", field] => connection_property(exchange, field),
        [b"source", b"address"] => Some(text_bytes(exchange.facts.source)),
        [b"source", b"port"] => Some(number_bytes(u64::from(exchange.facts.source.port()))),
        [b"destination", b"address"] => exchange.facts.destination.map(text_bytes),
        [b"destination", b"port"] => Some(number_bytes(u64::from(exchange.facts.destination?.port()))),
        [b"upstream", field] => upstream_property(exchange, &messages, field),
        [b"route_name"] | [b"xds", b"route_name"] => Some(text_bytes(&exchange.facts.route)),
        [b"cluster_name"] | [b"xds", b"cluster_name"] => service_name(exchange),
        [b"listener_direction"] | [b"xds", b"listener_direction"] => Some(number_bytes(1)),
        _ => None,
    };
    known.or_else(|| match path[..] {
        [variable] | [b"ngx", variable] => nginx::variable_value(exchange, &mut messages, variable),
        _ => None,
    })
}

/// A value that a module has set, by the same path or as Envoy's filter state.
fn stored_property(messages: &ExchangeMessages, raw: &[u8], path: &[&[u8]]) -> Option<Bytes> {
    if messages.properties.is_empty() {
        return None;
    }
    let key = match path {
        [b"filter_state", key] => key.strip_prefix(b"wasm.").unwrap_or(key),
        _ => raw,
    };
    messages.properties.get(key).cloned()
}

fn request_property(
    exchange: &FilterExchange,
    messages: &mut ExchangeMessages,
    path: &[&[u8]],
) -> Option<Bytes> {
    match path {
        [b"headers"] => return encode_pairs(&messages.head(true)?),
        [b"headers", name] => return header_bytes(messages.head(true)?.get(name)),
        [b"size" | b"total_size"] => {
            return Some(number_bytes(request_size(exchange, messages.request.as_ref()?)));
        }
        [b"time"] => return Some(number_bytes(super::system::unix_nanoseconds(exchange.facts.started_at.1))),
        [b"duration"] => return Some(duration_bytes(exchange.facts.started_at.0.elapsed())),
        [b"scheme"] => return Some(messages.head_overrides.scheme.name().into()),
        [b"id"] => return request_id(exchange, messages),
        _ => {}
    }
    let head = messages.request.as_ref()?;
    match path {
        [b"path"] => Some(text_bytes(message::path_and_query(&head.uri))),
        [b"url_path"] => Some(text_bytes(head.uri.path())),
        [b"query"] => Some(text_bytes(head.uri.query().unwrap_or_default())),
        [b"host"] => message::effective_authority(head, &messages.head_overrides).map(Bytes::copy_from_slice),
        [b"method"] => Some(text_bytes(&head.method)),
        [b"protocol"] => Some(protocol_name(head.version).into()),
        [b"referer"] => field_bytes(head, "referer"),
        [b"useragent"] => field_bytes(head, "user-agent"),
        _ => None,
    }
}

fn response_property(
    stream: &StreamContext,
    messages: &mut ExchangeMessages,
    path: &[&[u8]],
) -> Option<Bytes> {
    match path {
        [b"trailers"] => with_response_trailers(stream, messages, |trailers| {
            encode_pairs(&MessageHead::Plain(&mut trailers.clone()))
        }),
        [b"trailers", name] => with_response_trailers(stream, messages, |trailers| {
            header_bytes(MessageHead::Plain(&mut trailers.clone()).get(name))
        }),
        [b"headers"] => encode_pairs(&messages.head(false)?),
        [b"headers", name] => header_bytes(messages.head(false)?.get(name)),
        [b"code"] => Some(number_bytes(u64::from(messages.response.as_ref()?.status.as_u16()))),
        [b"code_details"] if messages.details.is_empty() => {
            messages.response.as_ref().map(|_| "via_upstream".into())
        }
        [b"code_details"] => Some(messages.details.clone().into()),
        [b"flags"] => Some(number_bytes(0)),
        [b"grpc_status"] => {
            let status = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
            let at_once = messages.response.as_ref().and_then(|head| status(&head.headers));
            at_once.or_else(|| with_response_trailers(stream, messages, status)).map(number_bytes)
        }
        [b"size" | b"total_size"] => Some(number_bytes(stream.exchange.byte_count(MessageSide::Response))),
        _ => None,
    }
}

/// Reads the response's trailers: this filter's copy, or the ones that have left.
fn with_response_trailers<T>(
    stream: &StreamContext,
    messages: &ExchangeMessages,
    see: impl Fn(&HeaderMap) -> Option<T>,
) -> Option<T> {
    let mut state = stream.state();
    state.half(MessageSide::Response).trailers.as_ref().or(messages.trailers.as_ref()).and_then(see)
}

fn connection_property(exchange: &FilterExchange, name: &[u8]) -> Option<Bytes> {
    let tls = exchange.facts.tls.as_ref();
    let certificate = tls.and_then(|tls| tls.certificate.as_ref());
    match name {
        b"id" => Some(number_bytes(exchange.facts.connection)),
        b"mtls" => Some(bool_bytes(tls.is_some_and(|tls| tls.is_mutual))),
        b"tls_version" => tls?.version.map(text_bytes),
        b"requested_server_name" => tls?.server_name.as_deref().map(text_bytes),
        b"subject_peer_certificate" => Some(text_bytes(&certificate?.subject)),
        b"dns_san_peer_certificate" => certificate?.dns.as_deref().map(text_bytes),
        b"uri_san_peer_certificate" => certificate?.uri.as_deref().map(text_bytes),
        b"sha256_peer_certificate_digest" => Some(text_bytes(&certificate?.digest)),
        _ => None,
    }
}

/// A property of the upstream connection, available after the request has been sent.
fn upstream_property(exchange: &FilterExchange, messages: &ExchangeMessages, name: &[u8]) -> Option<Bytes> {
    exchange.call.budget.inspect_call_records(|records| {
        let record = handler_call(exchange, records.get(messages.calls_before..)?)?;
        match name {
            b"address" => record.address.map(text_bytes),
            b"port" => Some(number_bytes(u64::from(record.address?.port()))),
            b"request_attempt_count" => Some(number_bytes(1 + record.retry_times.len() as u64)),
            _ => None,
        }
    })
}

/// The service of the route, or if it has none, the service that was called last.
fn service_name(exchange: &FilterExchange) -> Option<Bytes> {
    let of_route = || exchange.facts.service.as_deref().map(text_bytes);
    let called = || {
        exchange
            .call
            .budget
            .inspect_call_records(|records| records.last().map(|record| text_bytes(&record.service)))
    };
    of_route().or_else(called)
}

/// The handler's own call among those made since the request reached it: the call to the route's service
/// rather than a filter's, or if the route has no service, the last one.
fn handler_call<'a>(
    exchange: &FilterExchange,
    records: &'a [UpstreamCallRecord],
) -> Option<&'a UpstreamCallRecord> {
    match &exchange.facts.service {
        Some(service) => records.iter().find(|record| record.service == *service),
        None => records.last(),
    }
}

/// The id of the request: from `x-request-id`, or else the trace id, or else random.
fn request_id(exchange: &FilterExchange, messages: &mut ExchangeMessages) -> Option<Bytes> {
    if let Some(named) = messages.request.as_ref().and_then(|head| field_bytes(head, "x-request-id")) {
        return Some(named);
    }
    if messages.id.is_none() {
        let random = || getrandom::u64().map(|half| u128::from(half) << 64).ok();
        let traced = exchange.call.trace.context().map(|context| context.trace_id);
        let id = traced.or_else(|| Some(random()? | u128::from(getrandom::u64().ok()?)))?;
        messages.id = Some(format!("{id:032x}").into());
    }
    messages.id.clone()
}

fn request_size(exchange: &FilterExchange, head: &request::Parts) -> u64 {
    let announced = || head.headers.get("content-length")?.to_str().ok()?.parse().ok();
    exchange.byte_count(MessageSide::Request).max(announced().unwrap_or(0))
}

fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

fn encode_pairs(head: &MessageHead<'_>) -> Option<Bytes> {
    let mut bytes = vec![0; message::encoded_size(head)];
    message::encode_head(head, &mut bytes)?;
    Some(bytes.into())
}

fn header_bytes(value: Option<HeaderValue>) -> Option<Bytes> {
    value.map(|value| Bytes::copy_from_slice(value.as_bytes()))
}

fn field_bytes(head: &request::Parts, name: &'static str) -> Option<Bytes> {
    header_bytes(head.headers.get(HeaderName::from_static(name)).cloned())
}

fn text_bytes(text: impl ToString) -> Bytes {
    text.to_string().into()
}

fn number_bytes(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

fn bool_bytes(truth: bool) -> Bytes {
    Bytes::copy_from_slice(&[u8::from(truth)])
}

fn duration_bytes(duration: Duration) -> Bytes {
    number_bytes(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
