//! The variables of nginx that are meaningful here, as used by modules for APISIX and Kong.

use bytes::Bytes;
use http::HeaderMap;
use http::header::COOKIE;

use super::{protocol_name, request_size, text_bytes};
use crate::exchange::{ExchangeMessages, FilterExchange, message};

/// The value of a variable.
pub(super) fn variable_value(
    exchange: &FilterExchange,
    messages: &mut ExchangeMessages,
    name: &[u8],
) -> Option<Bytes> {
    let name = std::str::from_utf8(name).ok()?;
    let facts = &exchange.facts;
    match name {
        "remote_addr" => return Some(text_bytes(facts.source.ip())),
        "binary_remote_addr" => return Some(address_bytes(facts.source.ip())),
        "remote_port" => return Some(text_bytes(facts.source.port())),
        "server_addr" => return facts.destination.map(|address| text_bytes(address.ip())),
        "server_port" => return facts.destination.map(|address| text_bytes(address.port())),
        "scheme" => return Some(messages.head_overrides.scheme.name().into()),
        "https" => return Some(if facts.tls.is_some() { "on".into() } else { Bytes::new() }),
        "connection" => return Some(text_bytes(facts.connection)),
        "request_id" => return super::request_id(exchange, messages),
        "status" => return messages.response.as_ref().map(|head| text_bytes(head.status.as_u16())),
        "pid" => return Some(text_bytes(std::process::id())),
        "hostname" => return None,
        "msec" | "request_time" => {
            let time = match name {
                "msec" => {
                    exchange.facts.started_at.1.duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
                }
                _ => exchange.facts.started_at.0.elapsed(),
            };
            return Some(text_bytes(format_args!("{:.3}", time.as_secs_f64())));
        }
        "bytes_sent" | "body_bytes_sent" => {
            return Some(text_bytes(exchange.byte_count(crate::abi::MessageSide::Response)));
        }
        _ => {}
    }
    if let Some(header) = name.strip_prefix("sent_http_") {
        return find_header(&messages.response.as_ref()?.headers, header);
    }
    let head = messages.request.as_ref()?;
    let query = head.uri.query().unwrap_or_default();
    match name {
        "uri" | "document_uri" => Some(text_bytes(head.uri.path())),
        "request_uri" => Some(text_bytes(message::path_and_query(&head.uri))),
        "args" | "query_string" => Some(text_bytes(query)),
        "is_args" => Some(if query.is_empty() { Bytes::new() } else { "?".into() }),
        "request_method" => Some(text_bytes(&head.method)),
        "request" => Some(text_bytes(format_args!(
            "{} {} {}",
            head.method,
            message::path_and_query(&head.uri),
            server_protocol(head.version)
        ))),
        "server_protocol" => Some(server_protocol(head.version).into()),
        "host" | "server_name" => {
            let authority =
                std::str::from_utf8(message::effective_authority(head, &messages.head_overrides)?).ok()?;
            let (host, _) = authority.rsplit_once(':').unwrap_or((authority, ""));
            Some(text_bytes(host.to_ascii_lowercase()))
        }
        "request_length" => Some(text_bytes(request_size(exchange, head))),
        "content_length" | "content_type" => find_header(&head.headers, name),
        _ => find_named_part(&head.headers, query, name),
    }
}

/// A request header, a query argument, or a cookie.
fn find_named_part(headers: &HeaderMap, query: &str, name: &str) -> Option<Bytes> {
    if let Some(name) = name.strip_prefix("http_") {
        return find_header(headers, name);
    }
    if let Some(name) = name.strip_prefix("arg_") {
        return find_pair_value(query.split('&'), name).map(text_bytes);
    }
    let name = name.strip_prefix("cookie_")?;
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    find_pair_value(cookies.flat_map(|cookies| cookies.split(';')), name).map(text_bytes)
}

fn find_pair_value<'a>(mut pairs: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    pairs.find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A header by its name in nginx's spelling.
fn find_header(headers: &HeaderMap, name: &str) -> Option<Bytes> {
    headers.get(name.replace('_', "-")).map(|value| Bytes::copy_from_slice(value.as_bytes()))
}

fn address_bytes(address: std::net::IpAddr) -> Bytes {
    match address {
        std::net::IpAddr::V4(address) => Bytes::copy_from_slice(&address.octets()),
        std::net::IpAddr::V6(address) => Bytes::copy_from_slice(&address.octets()),
    }
}

fn server_protocol(version: http::Version) -> &'static str {
    if version == http::Version::HTTP_2 { "HTTP/2.0" } else { protocol_name(version) }
}
