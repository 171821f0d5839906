//! Parsing of `traceparent` and `tracestate` according to W3C Trace Context (level 1), sections 3.2 and 3.3.

use std::fmt;

use http::{HeaderMap, HeaderValue};

use super::{TRACEPARENT, TRACESTATE};
use crate::headers::field_values;

/// The maximum number of members of a `tracestate` (section 3.3.1.1).
const MAX_MEMBERS: usize = 32;
/// The maximum number of bytes of a propagated `tracestate`; the standard requires 512.
const MAX_STATE: usize = 1024;

/// The position of a span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace id; never 0.
    pub trace_id: u128,
    /// The span id; never 0.
    pub span_id: u64,
    /// Whether the sender records its spans.
    pub sampled: bool,
}

impl SpanContext {
    /// Reads the context from a request's headers; `None` unless there is exactly one valid `traceparent`.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = field_values(headers, &TRACEPARENT);
        let (first, None) = (values.next()?, values.next()) else { return None };
        Self::parse(first.as_bytes())
    }

    /// Parses a `traceparent`. Of future versions, only the fields of version 00 are read.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(55)?;
        let [version, trace_id, span_id, flags] = [0..2, 3..35, 36..52, 53..55].map(|range| &known[range]);
        if [2, 35, 52].iter().any(|&dash| known[dash] != b'-') || version == b"ff" {
            return None;
        }
        let version = parse_hex(version)?;
        if !more.is_empty() && (version == 0 || more[0] != b'-') {
            return None;
        }
        let (trace_id, span_id) = (parse_hex(trace_id)?, u64::try_from(parse_hex(span_id)?).ok()?);
        let sampled = parse_hex(flags)? & 1 == 1;
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }

    /// Returns the context of an upstream call made within this span.
    #[must_use]
    pub fn child(&self, call: usize) -> Self {
        Self { span_id: derive_span_id(self.span_id, call as u64), ..*self }
    }
}

/// Formats a `traceparent`.
impl fmt::Display for SpanContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, sampled } = self;
        write!(formatter, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*sampled))
    }
}

/// Derives a span id from another one and a number: a step of SplitMix64, which is a bijection.
fn derive_span_id(span: u64, number: u64) -> u64 {
    let mut mixed = span.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

/// Parses lower-case hexadecimal digits without sign.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Joins all `tracestate` fields into one value, if all are well-formed.
pub(super) fn parse_tracestate(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut joined = String::new();
    for value in headers.get_all(TRACESTATE) {
        for member in value.to_str().ok()?.split(',').map(|member| member.trim_matches([' ', '\t'])) {
            match member {
                "" => {}
                member if !is_member(member) => return None,
                member if joined.is_empty() => joined.push_str(member),
                member => joined.extend([",", member]),
            }
        }
    }
    let fits = !joined.is_empty() && joined.len() <= MAX_STATE && joined.split(',').count() <= MAX_MEMBERS;
    fits.then(|| HeaderValue::try_from(joined).ok())?
}

/// Whether a member has the form `key=value`, as in `vendor@system=opaque`.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let is_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    let begins = key.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && key.len() <= 256 && key.bytes().all(is_key) && !value.is_empty() && value.bytes().all(is_value)
}
