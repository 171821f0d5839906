//! Heads in the form that modules see: a list of names and values that includes method, path, authority and
//! status as pseudo headers. Also the encoding of such lists in a module's memory.

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, Uri, request, response};

use super::spelling::WrittenNames;
use crate::abi::HostStatus;

/// The maximum number of headers that a module may read or write at once, and that a message may have.
pub(crate) const MAX_PAIRS: usize = 1024;
/// The maximum number of bytes of headers that a module may write at once, and in one exchange.
pub(crate) const MAX_LIST_BYTES: usize = 256 << 10;
pub(crate) const MAX_EXCHANGE_BYTES: usize = 1 << 20;

/// A message head, or headers alone.
pub(crate) enum MessageHead<'a> {
    Request(&'a mut request::Parts, &'a mut HeadOverrides),
    Response(&'a mut response::Parts),
    Plain(&'a mut HeaderMap),
}

/// Changes of a request by modules that its head can't represent or must not lose.
#[derive(Clone, Debug)]
pub(crate) struct HeadOverrides {
    pub(crate) scheme: ClientScheme,
    /// The authority to send upstream, if a module has changed it. The head keeps the client's own.
    pub(crate) authority: Option<Authority>,
    /// The headers that filters have written.
    written_names: WrittenNames,
}

impl HeadOverrides {
    pub(crate) fn new(scheme: ClientScheme) -> Self {
        Self { scheme, authority: None, written_names: WrittenNames::default() }
    }
}

/// The scheme of the client's connection: `true` for `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientScheme(pub(crate) bool);

impl ClientScheme {
    pub(crate) fn name(self) -> &'static str {
        if self.0 { "https" } else { "http" }
    }
}

impl MessageHead<'_> {
    /// Passes each name and value to `see`, pseudo headers first. `host` appears as `:authority`.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&[u8], &[u8])) {
        let headers = match self {
            Self::Request(head, aside) => {
                effective_authority(head, aside).iter().for_each(|value| see(b":authority", value));
                see(b":path", path_and_query(&head.uri).as_bytes());
                see(b":method", head.method.as_str().as_bytes());
                see(b":scheme", aside.scheme.name().as_bytes());
                &head.headers
            }
            Self::Response(head) => {
                see(b":status", head.status.as_str().as_bytes());
                &head.headers
            }
            Self::Plain(headers) => headers,
        };
        let is_request = matches!(self, Self::Request(..));
        for (name, value) in headers.iter().filter(|(name, _)| !is_request || **name != HOST) {
            see(name.as_str().as_bytes(), value.as_bytes());
        }
    }

    /// The number of pairs.
    pub(crate) fn count(&self) -> u32 {
        let (own, hidden) = match self {
            Self::Request(head, aside) => {
                let hosts = head.headers.get_all(HOST).iter().count();
                (3 + usize::from(effective_authority(head, aside).is_some()), hosts)
            }
            Self::Response(_) => (1, 0),
            Self::Plain(_) => (0, 0),
        };
        u32::try_from(self.headers().len() - hidden + own).unwrap_or(u32::MAX)
    }

    /// A copy of the first value of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<HeaderValue> {
        match (self, name) {
            (Self::Request(head, aside), b":authority" | b"host" | b"Host") => {
                effective_authority(head, aside).and_then(|value| HeaderValue::from_bytes(value).ok())
            }
            (Self::Request(head, _), b":path") => HeaderValue::from_str(path_and_query(&head.uri)).ok(),
            (Self::Request(head, _), b":method") => HeaderValue::from_str(head.method.as_str()).ok(),
            (Self::Request(_, aside), b":scheme") => Some(HeaderValue::from_static(aside.scheme.name())),
            (Self::Response(head), b":status") => HeaderValue::from_str(head.status.as_str()).ok(),
            _ => self.headers().get(HeaderName::from_bytes(name).ok()?).cloned(),
        }
    }

    /// Adds a value to this name. The client's other spellings of the field are removed.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), HostStatus> {
        if let Some(name) = self.append_value(name, value)? {
            self.note_written(&name);
        }
        Ok(())
    }

    /// Appends a value, and returns the name unless it is a pseudo header.
    fn append_value(&mut self, name: &[u8], value: &[u8]) -> Result<Option<HeaderName>, HostStatus> {
        if self.set_pseudo(name, value)? {
            return Ok(None);
        }
        let (name, value) = parse_field(name, value)?;
        let headers = self.headers_mut();
        if headers.len() >= MAX_PAIRS {
            return Err(HostStatus::BadArgument);
        }
        headers.try_append(name.clone(), value).map_err(|_| HostStatus::BadArgument)?;
        Ok(Some(name))
    }

    fn note_written(&mut self, name: &HeaderName) {
        if let Self::Request(head, aside) = self {
            aside.written_names.record_written(&mut head.headers, name);
        }
    }

    /// Replaces all values of this name. The client's other spellings of the field are removed.
    pub(crate) fn replace(&mut self, name: &[u8], value: &[u8]) -> Result<(), HostStatus> {
        if self.set_pseudo(name, value)? {
            return Ok(());
        }
        let (name, value) = parse_field(name, value)?;
        let headers = self.headers_mut();
        if headers.len() >= MAX_PAIRS && !headers.contains_key(&name) {
            return Err(HostStatus::BadArgument);
        }
        headers.try_insert(name.clone(), value).map_err(|_| HostStatus::BadArgument)?;
        self.note_written(&name);
        Ok(())
    }

    /// Removes all values of this name, and the client's other spellings of the field. Mandatory parts of a
    /// message stay.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        let is_host = matches!(self, Self::Request(..)) && name.eq_ignore_ascii_case(b"host");
        if !is_host && let Ok(name) = HeaderName::from_bytes(name) {
            self.headers_mut().remove(&name);
            if let Self::Request(head, aside) = self {
                aside.written_names.strip_others(&mut head.headers, &name);
            }
        }
    }

    /// Replaces all headers.
    pub(crate) fn set_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), HostStatus> {
        let host = match self {
            Self::Request(head, _) => head.headers.get(HOST).cloned(),
            _ => None,
        };
        let before = std::mem::take(self.headers_mut());
        if let Some(host) = host {
            self.headers_mut().insert(HOST, host);
        }
        let result = pairs.iter().try_for_each(|(name, value)| self.append_value(name, value).map(drop));
        if result.is_err() {
            *self.headers_mut() = before;
        } else if let Self::Request(head, aside) = self {
            aside.written_names.replace_all(&mut head.headers, &before);
        }
        result
    }

    fn headers(&self) -> &HeaderMap {
        match self {
            Self::Request(head, _) => &head.headers,
            Self::Response(head) => &head.headers,
            Self::Plain(headers) => headers,
        }
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        match self {
            Self::Request(head, _) => &mut head.headers,
            Self::Response(head) => &mut head.headers,
            Self::Plain(headers) => headers,
        }
    }

    /// Sets a pseudo header. Returns `false` if the name is a regular field.
    fn set_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<bool, HostStatus> {
        let bad = HostStatus::BadArgument;
        match (self, name) {
            (Self::Request(head, aside), b":authority" | b"host" | b"Host") => {
                let same = client_authority(head) == Some(value);
                aside.authority = if same { None } else { Some(parse_authority(value).ok_or(bad)?) };
            }
            (Self::Request(head, _), b":path") => {
                head.uri = replace_path(&head.uri, value).ok_or(bad)?;
            }
            (Self::Request(head, _), b":method") => {
                head.method = Method::from_bytes(value).map_err(|_| bad)?;
            }
            (Self::Request(_, aside), b":scheme") => {
                aside.scheme = match value {
                    b"http" => ClientScheme(false),
                    b"https" => ClientScheme(true),
                    _ => return Err(bad),
                };
            }
            (Self::Response(head), b":status") => {
                let status = StatusCode::from_bytes(value).map_err(|_| bad)?;
                // A module that writes all headers back includes the 101 of an upgrade, which may stay.
                if status != head.status && !(200..600).contains(&status.as_u16()) {
                    return Err(bad);
                }
                head.status = status;
            }
            // The pseudo headers of a call's response and unknown ones are not stored as fields.
            (_, [b':', ..]) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The path and query as in the request line.
pub(crate) fn path_and_query(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", PathAndQuery::as_str)
}

/// The authority that modules see.
pub(crate) fn effective_authority<'a>(
    head: &'a request::Parts,
    aside: &'a HeadOverrides,
) -> Option<&'a [u8]> {
    let changed = aside.authority.as_ref().map(|authority| authority.as_str().as_bytes());
    changed.or_else(|| client_authority(head))
}

fn client_authority(head: &request::Parts) -> Option<&[u8]> {
    let in_uri = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    in_uri.or_else(|| head.headers.get(HOST).map(HeaderValue::as_bytes))
}

fn replace_path(uri: &Uri, path: &[u8]) -> Option<Uri> {
    let path = if path.first() == Some(&b'/') { PathAndQuery::try_from(path).ok()? } else { return None };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// Parses a host with an optional port. User information is not allowed in requests (RFC 9110, section
/// 4.2.4).
fn parse_authority(value: &[u8]) -> Option<Authority> {
    Authority::try_from(value).ok().filter(|authority| !authority.as_str().contains('@'))
}

fn parse_field(name: &[u8], value: &[u8]) -> Result<(HeaderName, HeaderValue), HostStatus> {
    let name = HeaderName::from_bytes(name).map_err(|_| HostStatus::BadArgument)?;
    let value = HeaderValue::from_bytes(value).map_err(|_| HostStatus::BadArgument)?;
    Ok((name, value))
}

/// The encoded size of a head in bytes; 0 if it is empty.
pub(crate) fn encoded_size(head: &MessageHead<'_>) -> usize {
    let mut size = 0;
    head.for_each(|name, value| size += 8 + name.len() + 1 + value.len() + 1);
    if size == 0 { 0 } else { size + 4 }
}

/// Encodes a head as in the ABI: the number of pairs; the two lengths of each; then each name and value,
/// terminated by a zero. Returns `None` if the size does not match because the head has changed.
pub(crate) fn encode_head(head: &MessageHead<'_>, into: &mut [u8]) -> Option<()> {
    if into.is_empty() {
        return Some(());
    }
    let count = head.count();
    let lengths = 4 + 8 * count as usize;
    if encoded_size(head) != into.len() {
        return None;
    }
    let (front, mut texts) = into.split_at_mut_checked(lengths)?;
    let (number, front) = front.split_at_mut_checked(4)?;
    number.copy_from_slice(&count.to_le_bytes());
    let mut places = front.chunks_exact_mut(4);
    let mut put = |text: &[u8]| {
        let length = u32::try_from(text.len()).ok()?;
        places.next()?.copy_from_slice(&length.to_le_bytes());
        let (place, rest) = std::mem::take(&mut texts).split_at_mut_checked(text.len() + 1)?;
        let (end, place) = place.split_last_mut()?;
        place.copy_from_slice(text);
        *end = 0;
        texts = rest;
        Some(())
    };
    let mut whole = Some(());
    head.for_each(|name, value| {
        whole = whole.and_then(|()| put(name)).and_then(|()| put(value));
    });
    whole
}

/// Names and values.
pub(crate) type HeaderPairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Parses a list of names and values that a module has written.
///
/// # Errors
/// Returns [`HostStatus::BadArgument`] if lengths and bytes do not match, or there are too many
/// pairs or bytes.
pub(crate) fn decode_pairs(bytes: &[u8]) -> Result<HeaderPairs<'_>, HostStatus> {
    if bytes.len() > MAX_LIST_BYTES {
        return Err(HostStatus::BadArgument);
    }
    decode_pair_list(bytes).ok_or(HostStatus::BadArgument)
}

fn decode_pair_list(bytes: &[u8]) -> Option<HeaderPairs<'_>> {
    let Some((count, rest)) = bytes.split_first_chunk::<4>() else {
        // No bytes, or zeros alone, are an empty list.
        return bytes.iter().all(|byte| *byte == 0).then(Vec::new);
    };
    let count = u32::from_le_bytes(*count) as usize;
    if count > MAX_PAIRS {
        return None;
    }
    let (lengths, mut texts) = rest.split_at_checked(count * 8)?;
    let mut lengths = lengths.chunks_exact(4).map(|four| {
        let four: [u8; 4] = four.try_into().ok()?;
        Some(u32::from_le_bytes(four) as usize)
    });
    let mut next = || {
        let length = lengths.next()??;
        let (text, rest) = texts.split_at_checked(length)?;
        texts = rest.strip_prefix(&[0])?;
        Some(text)
    };
    (0..count).map(|_| Some((next()?, next()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_heads_read_back_unchanged() {
        let (mut head, ()) = http::Request::get("/a?b=1")
            .header("host", "example.org")
            .header("x", "1")
            .header("x", "2")
            .body(())
            .unwrap()
            .into_parts();
        let mut aside = HeadOverrides::new(ClientScheme(false));
        let head = MessageHead::Request(&mut head, &mut aside);
        let mut bytes = vec![0xff; encoded_size(&head)];
        encode_head(&head, &mut bytes).unwrap();
        let expected: HeaderPairs<'_> = vec![
            (b":authority", b"example.org"),
            (b":path", b"/a?b=1"),
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b"x", b"1"),
            (b"x", b"2"),
        ];
        assert_eq!(decode_pairs(&bytes), Ok(expected));
        assert_eq!(encode_head(&head, &mut bytes[1..]), None);
    }

    #[test]
    fn empty_input_and_zeros_are_empty_lists() {
        assert_eq!(decode_pairs(b""), Ok(vec![]));
        assert_eq!(decode_pairs(b"\0"), Ok(vec![]));
        assert_eq!(decode_pairs(b"\0\0\0\0"), Ok(vec![]));
        assert_eq!(decode_pairs(b"\x01"), Err(HostStatus::BadArgument));
        assert_eq!(decode_pairs(b"\xff\xff\xff\xff"), Err(HostStatus::BadArgument));
        assert_eq!(decode_pairs(&[0; MAX_LIST_BYTES + 1]), Err(HostStatus::BadArgument));
    }

    #[test]
    fn rejects_interim_and_invalid_statuses() {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        for (before, status, expected) in [
            (200, "201", Ok(())),
            (200, "599", Ok(())),
            (200, "101", Err(HostStatus::BadArgument)),
            (200, "600", Err(HostStatus::BadArgument)),
            (101, "101", Ok(())),
        ] {
            parts.status = StatusCode::from_u16(before).unwrap();
            let written = MessageHead::Response(&mut parts).replace(b":status", status.as_bytes());
            assert_eq!(written, expected, "{status}");
        }
    }

    #[test]
    fn pseudo_headers_are_written_through() {
        let (mut parts, ()) = http::Request::get("/a").header("host", "a.org").body(()).unwrap().into_parts();
        let mut aside = HeadOverrides::new(ClientScheme(false));
        let mut head = MessageHead::Request(&mut parts, &mut aside);
        head.replace(b":path", b"/b?c").unwrap();
        head.replace(b":method", b"PUT").unwrap();
        head.replace(b":authority", b"b.org").unwrap();
        assert_eq!(head.replace(b":path", b"no path"), Err(HostStatus::BadArgument));
        assert_eq!(head.add(b"bad name", b"x"), Err(HostStatus::BadArgument));
        assert_eq!(head.add(b"x", b"a\nb"), Err(HostStatus::BadArgument));
        assert_eq!(head.replace(b":authority", b"me@b.org"), Err(HostStatus::BadArgument));
        assert_eq!(head.get(b"host").unwrap(), "b.org");
        assert_eq!((parts.uri.to_string(), parts.method), ("/b?c".to_owned(), Method::PUT));
        assert_eq!(
            (&parts.headers[HOST], aside.authority.unwrap().as_str()),
            (&"a.org".parse().unwrap(), "b.org")
        );
    }

    #[test]
    fn restoring_the_clients_authority_clears_the_override() {
        let (mut parts, ()) = http::Request::get("/a").header("host", "a.org").body(()).unwrap().into_parts();
        let mut aside = HeadOverrides::new(ClientScheme(false));
        for name in ["b.org", "a.org"] {
            MessageHead::Request(&mut parts, &mut aside).replace(b":authority", name.as_bytes()).unwrap();
        }
        assert_eq!(aside.authority, None);
    }
}
