//! URLs as programs write them, and the paths that may be called.
//!
//! A program's path is never rewritten. Parts that a server behind the gateway may interpret differently from
//! the gateway's rules (dot segments, encoded slashes, backslashes, control characters) are refused, each
//! with its own code. Accepted paths are sent byte for byte as they arrived. Rules are matched against the
//! path after one decoding, with consecutive slashes counted as one.

mod glob;
mod value;

use std::fmt;

use http::uri::PathAndQuery;

use crate::problem::{CallErrorKind, FaultParty, ToProblem};

#[cfg(test)]
pub(crate) use glob::DECODED_PATH_COUNT;
pub(crate) use glob::DecodedPath;
pub use glob::PathGlob;
pub use value::{is_safe_segment, percent_encode};

/// The target of a program's request: `http://catalog/catalogs?limit=2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    /// The host of the URL, which is a service's name.
    pub service: String,
    /// The rest, as written.
    pub path_and_query: PathAndQuery,
}

/// The reason why a URL or its path may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not of the form `http://service/path?query`.
    #[error("this is not a URL of the form `http://service/path?query`")]
    Invalid,
    /// A scheme other than `http`.
    #[error("the URL of a service begins with `http://`")]
    Scheme,
    /// `http://user@service/`.
    #[error("the URL contains a user name before the service")]
    Userinfo,
    /// `http://service:80/`.
    #[error("the URL contains a port, but services are addressed by name only")]
    Port,
    /// `http://service/#there`.
    #[error("the URL has a fragment, which is never sent")]
    Fragment,
    /// `/../` or `/./`, also encoded or followed by parameters.
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    /// `//x`, `/;a/x`, `/%2Fx`.
    #[error("the path begins with an empty segment: a server may interpret the rest as a host")]
    EmptySegment,
    /// `%2F`.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// `\` or `%5C`.
    #[error("the path has a backslash")]
    Backslash,
    /// An encoded control character: below a space, or DEL.
    #[error("the path has an encoded control character")]
    ControlCharacter,
    /// `%` without two hexadecimal digits.
    #[error("the path has a `%` that is not followed by two hexadecimal digits")]
    BadEscape,
    /// There is no service of this name.
    #[error("there is no service of this name")]
    UnknownService,
    /// No pattern of the service's `paths` matches.
    #[error("the rules of this service do not permit this path")]
    NotPermitted,
}

/// Parses a program's URL.
///
/// # Errors
/// URLs that are not of the form `http://service/path?query`, and paths that [`check_path`] refuses.
pub fn parse_target(url: &str) -> Result<RequestTarget, PathError> {
    let (service, path_and_query) = split_url(url)?;
    Ok(RequestTarget { service: service.to_owned(), path_and_query })
}

/// Splits a URL into the service's name and the rest.
pub(crate) fn split_url(url: &str) -> Result<(&str, PathAndQuery), PathError> {
    let (scheme, rest) = url.split_once(':').ok_or(PathError::Invalid)?;
    let rest = rest.strip_prefix("//").ok_or(PathError::Invalid)?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(PathError::Scheme);
    }
    let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\'));
    let (host, rest) = rest.split_at(end.unwrap_or(rest.len()));
    check_host(host)?;
    if rest.contains('#') {
        return Err(PathError::Fragment);
    }
    let path_and_query = to_path_and_query(rest)?;
    check_path(path_and_query.path())?;
    Ok((host, path_and_query))
}

/// Checks whether a path may be sent to any service.
///
/// # Errors
/// The first reason for refusing the path; dot segments count also if they were encoded twice.
pub fn check_path(path: &str) -> Result<(), PathError> {
    // Fast path: most paths have none of the characters that need checks.
    if !path.bytes().any(|byte| matches!(byte, b'%' | b'.' | b'\\')) {
        return Ok(());
    }
    // One buffer for all segments, since there may be tens of thousands.
    let mut text = Vec::new();
    path.split('/').try_for_each(|segment| {
        text.clear();
        percent_decode_into(&mut text, segment)?;
        check_segment(&text)
    })?;
    check_double_encoding(path)
}

/// Checks the start of a path that passed [`check_path`]. With an empty first segment, `//admin/x` is a host
/// and a path to servers that parse it as a reference (RFC 3986, section 4.2), and another path to servers
/// that merge consecutive slashes.
///
/// # Errors
/// [`PathError::EmptySegment`], also if the segment is empty only after decoding or cutting parameters.
pub fn check_start(path: &str) -> Result<(), PathError> {
    // Fast path: nearly all paths begin with a name.
    if !matches!(path.as_bytes().get(1), Some(b'/' | b'\\' | b';' | b'%')) {
        return Ok(());
    }
    let once = percent_decode_lossy(path.as_bytes());
    let is_empty = |text: &[u8]| {
        let rest = text.get(1..).unwrap_or_default();
        let mut segments = rest.splitn(2, |byte| matches!(byte, b'/' | b'\\'));
        let (first, follows) = (segments.next().unwrap_or_default(), segments.next().is_some());
        let name = first.split(|byte| *byte == b';').next().unwrap_or_default();
        follows && name.trim_ascii().is_empty()
    };
    match is_empty(&once) || is_empty(&percent_decode_lossy(&once)) {
        true => Err(PathError::EmptySegment),
        false => Ok(()),
    }
}

/// Returns the path of a client's request as a lenient server may interpret it: decoded, without parameters
/// after `;`, and with consecutive slashes merged; non-ASCII bytes remain encoded. Returns `None` if the
/// interpretations agree.
///
/// # Errors
/// The errors of [`check_path`], except for encoded slashes; and dot segments that were encoded
/// twice, which a server that decodes once more would follow.
pub fn lenient_path(path: &str) -> Result<Option<String>, PathError> {
    // Byte by byte, since this runs for every request, and most paths are short.
    let is_special = |byte: u8| matches!(byte, b'%' | b'.' | b'\\' | b';');
    if !path.bytes().any(is_special) && !path.as_bytes().windows(2).any(|pair| pair == b"//") {
        return Ok(None);
    }
    match check_path(path) {
        Ok(()) | Err(PathError::EncodedSlash) => {}
        Err(error) => return Err(error),
    }
    check_double_encoding(path)?;
    let decoded = String::from_utf8_lossy(&percent_decode(path)?).into_owned();
    let mut reading = String::with_capacity(decoded.len());
    let mut is_parameter = false;
    for byte in decoded.bytes() {
        is_parameter = byte == b';' || (is_parameter && byte != b'/');
        if !is_parameter && (byte != b'/' || !reading.ends_with('/')) {
            push_percent_encoded(&mut reading, byte);
        }
    }
    Ok((reading != path).then_some(reading))
}

/// Whether a path, once decoded, contains a `.` or `..` segment, also with parameters. Unlike [`check_path`],
/// it treats malformed escapes as text.
#[must_use]
pub fn has_dot_segment(path: &str) -> bool {
    has_dot_part(&percent_decode_lossy(path.as_bytes()))
}

fn has_dot_part(text: &[u8]) -> bool {
    let is_dots = |part: &[u8]| matches!(part.split(|byte| *byte == b';').next(), Some(b"." | b".."));
    text.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dots)
}

/// Returns the normal form of a client's path and query: non-ASCII bytes are percent-encoded, and escapes of
/// unreserved characters in the path are decoded (RFC 3986, sections 2.1 and 6.2.2.2). Returns `None` if the
/// text is in normal form already.
///
/// A decoded `%2e` can complete a dot segment, so the result must be checked by [`lenient_path`]. A path with
/// a malformed escape keeps all of its escapes: decoded in part, `%%32e` would become `%2e`. [`lenient_path`]
/// refuses such a path.
#[must_use]
pub fn normalize_target(target: &str) -> Option<String> {
    // Fast path: most targets have neither.
    if !target.bytes().any(|byte| byte == b'%' || !byte.is_ascii()) {
        return None;
    }
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let may_decode = percent_decode(path).is_ok();
    let mut normal = String::with_capacity(target.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match after {
            [high, low, behind @ ..] if *first == b'%' && may_decode => {
                match decode_unreserved(*high, *low) {
                    Some(letter) => {
                        normal.push(letter);
                        rest = behind;
                    }
                    None => normal.push('%'),
                }
            }
            _ => push_percent_encoded(&mut normal, *first),
        }
    }
    query.bytes().for_each(|byte| push_percent_encoded(&mut normal, byte));
    (normal != target).then_some(normal)
}

/// Returns the unreserved character (RFC 3986, section 2.3) that an escape with these digits represents.
fn decode_unreserved(high: u8, low: u8) -> Option<char> {
    let byte = parse_hex_digit(Some(high)).ok()? << 4 | parse_hex_digit(Some(low)).ok()?;
    (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)).then(|| char::from(byte))
}

fn push_percent_encoded(text: &mut String, byte: u8) {
    if byte.is_ascii() {
        text.push(char::from(byte));
    } else {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        text.push('%');
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Refuses dot segments that were encoded twice.
///
/// # Errors
/// [`PathError::DotSegment`].
fn check_double_encoding(path: &str) -> Result<(), PathError> {
    if !path.contains("%25") {
        return Ok(());
    }
    let twice = percent_decode_lossy(&percent_decode_lossy(path.as_bytes()));
    match has_dot_part(&twice) {
        true => Err(PathError::DotSegment),
        false => Ok(()),
    }
}

/// Percent-decodes once, treating malformed escapes as text.
fn percent_decode_lossy(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escape = match after {
            [high, low, after @ ..] if *first == b'%' => {
                let byte = parse_hex_digit(Some(*high))
                    .and_then(|high| Ok(high << 4 | parse_hex_digit(Some(*low))?));
                byte.ok().map(|byte| (byte, after))
            }
            _ => None,
        };
        let (byte, after) = escape.unwrap_or((*first, after));
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// Whether a name can be the host of a URL: letters, digits, `-` and `_`.
#[must_use]
pub fn is_service_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.len() <= 63
        && name.bytes().all(plain)
}

fn check_host(host: &str) -> Result<(), PathError> {
    match host {
        host if host.contains('@') => Err(PathError::Userinfo),
        host if host.contains(':') => Err(PathError::Port),
        host if is_service_name(host) => Ok(()),
        _ => Err(PathError::Invalid),
    }
}

fn to_path_and_query(rest: &str) -> Result<PathAndQuery, PathError> {
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(PathError::Invalid);
    }
    match rest.as_bytes().first() {
        None => Ok(PathAndQuery::from_static("/")),
        Some(b'/') => PathAndQuery::try_from(rest).map_err(|_| PathError::Invalid),
        Some(b'\\') => Err(PathError::Backslash),
        Some(_) => PathAndQuery::try_from(format!("/{rest}")).map_err(|_| PathError::Invalid),
    }
}

/// Checks one segment as a server may interpret it: decoded once, and split at `;`, where some servers begin
/// parameters, and at encoded slashes.
fn check_segment(text: &[u8]) -> Result<(), PathError> {
    if has_dot_part(text) {
        return Err(PathError::DotSegment);
    }
    match text.iter().find(|byte| matches!(byte, b'/' | b'\\' | 0..0x20 | 0x7F)) {
        None => Ok(()),
        Some(b'/') => Err(PathError::EncodedSlash),
        Some(b'\\') => Err(PathError::Backslash),
        Some(_) => Err(PathError::ControlCharacter),
    }
}

/// Percent-decodes once. The result need not be UTF-8.
fn percent_decode(text: &str) -> Result<Vec<u8>, PathError> {
    let mut decoded = Vec::with_capacity(text.len());
    percent_decode_into(&mut decoded, text)?;
    Ok(decoded)
}

/// Like [`percent_decode`], but appends the result to `decoded`.
fn percent_decode_into(decoded: &mut Vec<u8>, text: &str) -> Result<(), PathError> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => parse_hex_digit(bytes.next())? << 4 | parse_hex_digit(bytes.next())?,
            other => other,
        });
    }
    Ok(())
}

fn parse_hex_digit(digit: Option<u8>) -> Result<u8, PathError> {
    let value = digit.and_then(|digit| char::from(digit).to_digit(16)).ok_or(PathError::BadEscape)?;
    u8::try_from(value).map_err(|_| PathError::BadEscape)
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "http://{}{}", self.service, self.path_and_query)
    }
}

impl PathError {
    /// The category of the error, for programs.
    #[must_use]
    pub fn kind(self) -> CallErrorKind {
        match self {
            Self::Invalid | Self::Scheme | Self::BadEscape => CallErrorKind::Invalid,
            Self::UnknownService => CallErrorKind::UnknownService,
            _ => CallErrorKind::Forbidden,
        }
    }
}

impl ToProblem for PathError {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid => "url-invalid",
            Self::Scheme => "url-scheme",
            Self::Userinfo => "url-userinfo",
            Self::Port => "url-port",
            Self::Fragment => "url-fragment",
            Self::DotSegment => "path-dot-segment",
            Self::EmptySegment => "path-empty-segment",
            Self::EncodedSlash => "path-encoded-slash",
            Self::Backslash => "path-backslash",
            Self::ControlCharacter => "path-control-character",
            Self::BadEscape => "path-bad-escape",
            Self::UnknownService => "service-unknown",
            Self::NotPermitted => "path-forbidden",
        }
    }

    fn status(&self) -> http::StatusCode {
        http::StatusCode::UNPROCESSABLE_ENTITY
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Program
    }

    fn hint(&self) -> String {
        match self {
            Self::Invalid | Self::Scheme | Self::Userinfo | Self::Port | Self::Fragment => {
                "Write `http://`, the service's name, then path and query, percent-encoded where needed."
            }
            Self::BadEscape => "Write `%25` for a percent sign.",
            Self::UnknownService => "Use one of the route's services.",
            Self::NotPermitted => "Call one of the permitted paths, or ask the operator to permit this one.",
            _ => "Write the path as documented by the service; the gateway does not rewrite paths.",
        }
        .to_owned()
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
