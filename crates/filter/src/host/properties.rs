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
use crate::message::{self, MessageHead};
use crate::messages::{ExchangeMessages, FilterExchange};
use crate::stream::StreamContext;

/// The maximum number of properties that modules may set in an exchange, and their maximum total size.
const MAX_PROPERTIES: usize = 256;
pub(super) const MAX_BYTES: usize = 256 << 10;
/// The maximum number of elements of a path that are looked at: no known path has as many.
const MAX_ELEMENTS: usize = 4;

/// `proxy_get_property`
pub(super) fn get(guest: &mut GuestModule<'_>, path: u32, of: u32, address: u32, length: u32) -> HostResult {
    let value = {
        let raw = guest.bytes((path, of))?;
        find(guest.host(), raw)
    };
    if guest.host().is_observed() {
        let path = guest.text((path, of))?.replace('\0', ".");
        guest.about(|| path);
    }
    guest.give_bytes(value.ok_or(HostStatus::NotFound)?, (address, length))
}

/// `proxy_set_property`
pub(super) fn set(guest: &mut GuestModule<'_>, path: u32, of: u32, value: u32, length: u32) -> HostResult {
    if guest.host().is_observed() {
        let path = guest.text((path, of))?.replace('\0', ".");
        guest.about(|| path);
    }
    let (path, value) = (guest.bytes((path, of))?, guest.bytes((value, length))?);
    let host = guest.host();
    // APISIX's way of requesting bodies.
    let side = match path {
        b"wasm_process_req_body" => Some(MessageSide::Request),
        b"wasm_process_resp_body" => Some(MessageSide::Response),
        _ => None,
    };
    if let (Some(side), Some(stream)) = (side, host.stream()) {
        stream.state().half(side).asks = value != b"false" && value != b"0";
        return Ok(());
    }
    keep(host, path, value)
}

/// Stores a property for all filters of the exchange.
pub(super) fn keep(host: &FilterHost, path: &[u8], value: &[u8]) -> Result<(), HostStatus> {
    let stream = host.stream().ok_or(HostStatus::NotFound)?;
    let mut messages = stream.exchange.messages();
    let known = &mut messages.properties;
    let bytes: usize = known.iter().map(|(path, value)| path.len() + value.len()).sum();
    let is_over = bytes + path.len() + value.len() > MAX_BYTES;
    if is_over || (known.len() >= MAX_PROPERTIES && !known.contains_key(path)) {
        return Err(HostStatus::InternalFailure);
    }
    known.insert(path.to_vec(), Bytes::copy_from_slice(value));
    Ok(())
}

/// Splits a path into its elements, at most [`MAX_ELEMENTS`].
pub(crate) fn parse(path: &[u8]) -> Vec<&[u8]> {
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    path.split(|byte| *byte == 0).take(MAX_ELEMENTS).collect()
}

fn find(host: &FilterHost, raw: &[u8]) -> Option<Bytes> {
    // No property with a longer path can be set.
    if raw.len() > MAX_BYTES {
        return None;
    }
    let path = parse(raw);
    let spec = host.spec()?;
    match path[..] {
        [b"plugin_name"] => return Some(Bytes::copy_from_slice(spec.name.as_bytes())),
        [b"plugin_root_id"] => return Some(spec.root_id.clone().into()),
        [b"plugin_vm_id"] => return Some(spec.vm_id.clone().into()),
        _ => {}
    }
    let stream = host.stream()?;
    let exchange = &stream.exchange;
    let mut messages = exchange.messages();
    if let Some(set) = set_before(&messages, raw, &path) {
        return Some(set);
    }
    let known = match path[..] {
        [b"request", ref rest @ ..] => of_request(exchange, &mut messages, rest),
        [b"response", ref rest @ ..] => of_response(stream, &mut messages, rest),
        [b"connection", field] => of_connection(exchange, field),
        [b"source", b"address"] => Some(text(exchange.facts.source)),
        [b"source", b"port"] => Some(number(u64::from(exchange.facts.source.port()))),
        [b"destination", b"address"] => exchange.facts.destination.map(text),
        [b"destination", b"port"] => Some(number(u64::from(exchange.facts.destination?.port()))),
        [b"upstream", field] => of_upstream(exchange, &messages, field),
        [b"route_name"] | [b"xds", b"route_name"] => Some(text(&exchange.facts.route)),
        [b"cluster_name"] | [b"xds", b"cluster_name"] => service(exchange),
        [b"listener_direction"] | [b"xds", b"listener_direction"] => Some(number(1)),
        _ => None,
    };
    known.or_else(|| match path[..] {
        [variable] | [b"ngx", variable] => nginx::variable(exchange, &mut messages, variable),
        _ => None,
    })
}

/// A value that a module has set, by the same path or as Envoy's filter state.
fn set_before(messages: &ExchangeMessages, raw: &[u8], path: &[&[u8]]) -> Option<Bytes> {
    if messages.properties.is_empty() {
        return None;
    }
    let key = match path {
        [b"filter_state", key] => key.strip_prefix(b"wasm.").unwrap_or(key),
        _ => raw,
    };
    messages.properties.get(key).cloned()
}

fn of_request(exchange: &FilterExchange, messages: &mut ExchangeMessages, path: &[&[u8]]) -> Option<Bytes> {
    match path {
        [b"headers"] => return pairs(&messages.head(true)?),
        [b"headers", name] => return header(messages.head(true)?.get(name)),
        [b"size" | b"total_size"] => return Some(number(request_size(exchange, messages.request.as_ref()?))),
        [b"time"] => return Some(number(super::system::nanoseconds(exchange.facts.began.1))),
        [b"duration"] => return Some(duration(exchange.facts.began.0.elapsed())),
        [b"scheme"] => return Some(messages.aside.scheme.name().into()),
        [b"id"] => return id(exchange, messages),
        _ => {}
    }
    let head = messages.request.as_ref()?;
    match path {
        [b"path"] => Some(text(message::path(&head.uri))),
        [b"url_path"] => Some(text(head.uri.path())),
        [b"query"] => Some(text(head.uri.query().unwrap_or_default())),
        [b"host"] => message::authority(head, &messages.aside).map(Bytes::copy_from_slice),
        [b"method"] => Some(text(&head.method)),
        [b"protocol"] => Some(protocol(head.version).into()),
        [b"referer"] => field(head, "referer"),
        [b"useragent"] => field(head, "user-agent"),
        _ => None,
    }
}

fn of_response(stream: &StreamContext, messages: &mut ExchangeMessages, path: &[&[u8]]) -> Option<Bytes> {
    match path {
        [b"trailers"] => {
            trailers(stream, messages, |trailers| pairs(&MessageHead::Plain(&mut trailers.clone())))
        }
        [b"trailers", name] => {
            trailers(stream, messages, |trailers| header(MessageHead::Plain(&mut trailers.clone()).get(name)))
        }
        [b"headers"] => pairs(&messages.head(false)?),
        [b"headers", name] => header(messages.head(false)?.get(name)),
        [b"code"] => Some(number(u64::from(messages.response.as_ref()?.status.as_u16()))),
        [b"code_details"] if messages.details.is_empty() => {
            messages.response.as_ref().map(|_| "via_upstream".into())
        }
        [b"code_details"] => Some(messages.details.clone().into()),
        [b"flags"] => Some(number(0)),
        [b"grpc_status"] => {
            let status = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
            let at_once = messages.response.as_ref().and_then(|head| status(&head.headers));
            at_once.or_else(|| trailers(stream, messages, status)).map(number)
        }
        [b"size" | b"total_size"] => Some(number(stream.exchange.counted(MessageSide::Response))),
        _ => None,
    }
}

/// Reads the response's trailers: this filter's copy, or the ones that have left.
fn trailers<T>(
    stream: &StreamContext,
    messages: &ExchangeMessages,
    see: impl Fn(&HeaderMap) -> Option<T>,
) -> Option<T> {
    let mut state = stream.state();
    state.half(MessageSide::Response).trailers.as_ref().or(messages.trailers.as_ref()).and_then(see)
}

fn of_connection(exchange: &FilterExchange, name: &[u8]) -> Option<Bytes> {
    let tls = exchange.facts.tls.as_ref();
    let certificate = tls.and_then(|tls| tls.certificate.as_ref());
    match name {
        b"id" => Some(number(exchange.facts.connection)),
        b"mtls" => Some(truth(tls.is_some_and(|tls| tls.is_mutual))),
        b"tls_version" => tls?.version.map(text),
        b"requested_server_name" => tls?.server_name.as_deref().map(text),
        b"subject_peer_certificate" => Some(text(&certificate?.subject)),
        b"dns_san_peer_certificate" => certificate?.dns.as_deref().map(text),
        b"uri_san_peer_certificate" => certificate?.uri.as_deref().map(text),
        b"sha256_peer_certificate_digest" => Some(text(&certificate?.digest)),
        _ => None,
    }
}

/// A property of the upstream connection, available after the request has been sent.
fn of_upstream(exchange: &FilterExchange, messages: &ExchangeMessages, name: &[u8]) -> Option<Bytes> {
    exchange.call.budget.inspect_call_records(|made| {
        let made = handled(exchange, made.get(messages.calls_before..)?)?;
        match name {
            b"address" => made.address.map(text),
            b"port" => Some(number(u64::from(made.address?.port()))),
            b"request_attempt_count" => Some(number(1 + made.retry_times.len() as u64)),
            _ => None,
        }
    })
}

/// The service of the route, or if it has none, the service that was called last.
fn service(exchange: &FilterExchange) -> Option<Bytes> {
    let of_route = || exchange.facts.service.as_deref().map(text);
    let called =
        || exchange.call.budget.inspect_call_records(|made| made.last().map(|made| text(&made.service)));
    of_route().or_else(called)
}

/// The handler's own call among those made since the request reached it: the call to the route's service
/// rather than a filter's, or if the route has no service, the last one.
fn handled<'a>(exchange: &FilterExchange, made: &'a [UpstreamCallRecord]) -> Option<&'a UpstreamCallRecord> {
    match &exchange.facts.service {
        Some(service) => made.iter().find(|made| made.service == *service),
        None => made.last(),
    }
}

/// The id of the request: from `x-request-id`, or else the trace id, or else random.
fn id(exchange: &FilterExchange, messages: &mut ExchangeMessages) -> Option<Bytes> {
    if let Some(named) = messages.request.as_ref().and_then(|head| field(head, "x-request-id")) {
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
    exchange.counted(MessageSide::Request).max(announced().unwrap_or(0))
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

fn pairs(head: &MessageHead<'_>) -> Option<Bytes> {
    let mut bytes = vec![0; message::size(head)];
    message::write(head, &mut bytes)?;
    Some(bytes.into())
}

fn header(value: Option<HeaderValue>) -> Option<Bytes> {
    value.map(|value| Bytes::copy_from_slice(value.as_bytes()))
}

fn field(head: &request::Parts, name: &'static str) -> Option<Bytes> {
    header(head.headers.get(HeaderName::from_static(name)).cloned())
}

fn text(text: impl ToString) -> Bytes {
    text.to_string().into()
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

fn truth(truth: bool) -> Bytes {
    Bytes::copy_from_slice(&[u8::from(truth)])
}

fn duration(duration: Duration) -> Bytes {
    number(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
