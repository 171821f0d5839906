//! `ORFA-Cache`: names a cached program instead of sending it, and requests a cache mode.
//!
//! The modes are those of the paper (section 3.4): *base*, without the header, *code*, which caches the
//! compiled code, and *instance*, which keeps an instance warm. All run the same program; they differ in the
//! bytes to send and in the work to do before it runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderName, HeaderValue};
use sfv::{BareItem, Item, Parser};

use super::fields::SingleField;
use crate::config::CacheMode;
use crate::problem::QueryError;
use crate::program::{CacheRequest, CachedProgramReference, TOKEN_TEXT_LENGTH};

/// The header, in requests and responses.
pub(crate) const CACHE_HEADER: HeaderName = HeaderName::from_static("orfa-cache");

/// The work done for a request with a mode, reported in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheModeResult {
    /// The program was compiled.
    Compiled,
    /// The compiled code was in the cache.
    Found,
    /// A warm instance was reused.
    Reused,
}

impl CacheModeResult {
    fn word(self) -> &'static str {
        match self {
            Self::Compiled => "compiled",
            Self::Found => "found",
            Self::Reused => "reused",
        }
    }
}

/// Parses `ORFA-Cache`.
///
/// # Errors
/// If the header is malformed.
pub(super) fn parse_cache(field: SingleField<'_>) -> Result<Option<CacheRequest>, QueryError> {
    let wrong = |detail: &str| field.header_error(detail);
    let Some(text) = field.text()? else { return Ok(None) };
    if let Some(usual) = parse_common(text) {
        return Ok(Some(usual));
    }
    let item: Result<Item, _> = Parser::new(text).parse();
    let item = item.map_err(|_| wrong("it is not an item of RFC 9651, as `code;token=:...:`"))?;
    let mode = item.bare_item.as_token().and_then(|token| CacheMode::from_word(token.as_str()));
    let mode = mode.ok_or_else(|| wrong("the mode has to be `code` or `instance`"))?;
    let bytes = |name: &str| match item.params.get(name) {
        None => Ok(None),
        Some(BareItem::ByteSequence(bytes)) => Ok(Some(bytes.clone())),
        Some(_) => Err(wrong(&format!("`{name}` has to be bytes in base64 between colons"))),
    };
    let reference = match (bytes("token")?, bytes("hash")?) {
        (Some(_), Some(_)) => return Err(wrong("`token` and `hash` name one program each: send one")),
        (Some(token), None) => Some(CachedProgramReference::Token(STANDARD.encode(token))),
        (None, Some(hash)) => {
            let hash = hash.try_into().map_err(|_| wrong("`hash` has to be the 32 bytes of a SHA-256"))?;
            Some(CachedProgramReference::Hash(hash))
        }
        (None, None) => None,
    };
    Ok(Some(CacheRequest { mode, program_reference: reference }))
}

/// Parses the most common form without the general parser: a mode and a token. The token is not decoded
/// here, since opening it validates it.
fn parse_common(text: &str) -> Option<CacheRequest> {
    let of = |mode: CacheMode| Some((mode, text.strip_prefix(mode.word())?));
    let (mode, rest) = CacheMode::ALL.into_iter().find_map(of)?;
    let token =
        rest.strip_prefix(";token=:")?.strip_suffix(':').filter(|token| token.len() == TOKEN_TEXT_LENGTH)?;
    Some(CacheRequest { mode, program_reference: Some(CachedProgramReference::Token(token.to_owned())) })
}

/// Builds the response header: the mode, the work done, a token if the client needs a new one, and the
/// gateway's name if the request contained the program.
pub(crate) fn cache_response_header(
    mode: CacheMode,
    result: CacheModeResult,
    token: Option<&[u8]>,
    gateway: Option<&str>,
) -> Option<HeaderValue> {
    let Some(token) = token else { return Some(common_header(mode, result)) };
    let mut text = String::with_capacity(192);
    text.push_str(mode.word());
    text.push_str(";token=:");
    STANDARD.encode_string(token, &mut text);
    text.push_str(":;did=");
    text.push_str(result.word());
    for part in gateway.into_iter().flat_map(|gateway| [";gateway=", gateway]) {
        text.push_str(part);
    }
    HeaderValue::try_from(text).ok()
}

/// Returns the most common responses, those without a token.
fn common_header(mode: CacheMode, result: CacheModeResult) -> HeaderValue {
    match (mode, result) {
        (CacheMode::Code, CacheModeResult::Compiled) => {
            const { HeaderValue::from_static("code;did=compiled") }
        }
        (CacheMode::Code, CacheModeResult::Found) => const { HeaderValue::from_static("code;did=found") },
        (CacheMode::Code, CacheModeResult::Reused) => const { HeaderValue::from_static("code;did=reused") },
        (CacheMode::Instance, CacheModeResult::Compiled) => {
            const { HeaderValue::from_static("instance;did=compiled") }
        }
        (CacheMode::Instance, CacheModeResult::Found) => {
            const { HeaderValue::from_static("instance;did=found") }
        }
        (CacheMode::Instance, CacheModeResult::Reused) => {
            const { HeaderValue::from_static("instance;did=reused") }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::protocol::fields::RequestFields;

    fn parse_header(text: &str) -> Result<Option<CacheRequest>, QueryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_HEADER, text.parse().unwrap());
        parse_cache(RequestFields::from_headers(&headers).cache)
    }

    #[test]
    fn parses_the_mode_and_the_named_program() {
        assert_eq!(parse_cache(RequestFields::from_headers(&HeaderMap::new()).cache).unwrap(), None);
        assert_eq!(
            parse_header("code").unwrap(),
            Some(CacheRequest { mode: CacheMode::Code, program_reference: None })
        );
        let token = Some(CacheRequest {
            mode: CacheMode::Instance,
            program_reference: Some(CachedProgramReference::Token("YWJj".into())),
        });
        for text in ["instance;token=:YWJj:", "instance; token=:YWJj:", "instance;token=:YWJj:;did=reused"] {
            assert_eq!(parse_header(text).unwrap(), token, "{text}");
        }
        let hash = format!("code;hash=:{}:", "A".repeat(43) + "=");
        assert_eq!(
            parse_header(&hash).unwrap().unwrap().program_reference,
            Some(CachedProgramReference::Hash([0; 32]))
        );
    }

    #[test]
    fn rejects_malformed_cache_headers() {
        for text in [
            "base",
            "code;token=abc",
            "code;hash=:YWJj:",
            "code;token=:YWJj:;hash=:YWJj:",
            "\"code\"",
            ";",
            "code, code",
        ] {
            assert!(parse_header(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats_the_response_header() {
        let value =
            cache_response_header(CacheMode::Code, CacheModeResult::Compiled, Some(b"abc"), Some("g1"))
                .unwrap();
        assert_eq!(value, "code;token=:YWJj:;did=compiled;gateway=g1");
        let value =
            cache_response_header(CacheMode::Code, CacheModeResult::Compiled, Some(b"abc"), None).unwrap();
        assert_eq!(value, "code;token=:YWJj:;did=compiled");
        for mode in [CacheMode::Code, CacheMode::Instance] {
            for result in [CacheModeResult::Compiled, CacheModeResult::Found, CacheModeResult::Reused] {
                let words = format!("{};did={}", mode.word(), result.word());
                assert_eq!(cache_response_header(mode, result, None, None).unwrap(), words);
            }
        }
    }
}
