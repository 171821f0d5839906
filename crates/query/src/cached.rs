//! `ORFA-Cache`: which program a client means without sending it, and how it wants it kept.
//!
//! The modes are the paper's (section 3.4): *base* is no header at all, *code* keeps the compiled code, *instance* a live
//! instance. All of them run the same program; what differs is what has to be sent and made.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use sfv::{BareItem, Item, Parser};

use crate::ask::single;
use crate::owner::Hash;
use crate::problem::QueryError;

/// The header, in requests and answers.
pub(crate) const CACHE: HeaderName = HeaderName::from_static("orfa-cache");
const NAME: &str = "ORFA-Cache";

/// How a program is kept between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Its compiled code, for requests that send a token or its hash.
    Code,
    /// An instance that goes on living, for one caller.
    Instance,
}

/// What a request says with the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheAsk {
    pub(crate) mode: Mode,
    pub(crate) named: Option<Named>,
}

/// A program that is named instead of sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Token(Vec<u8>),
    Hash(Hash),
}

/// What was done for a request that asked for a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The program was compiled.
    Compiled,
    /// Its code was there.
    Found,
    /// An instance was there.
    Reused,
}

impl Mode {
    /// As header and config have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Instance => "instance",
        }
    }
}

impl Done {
    fn word(self) -> &'static str {
        match self {
            Self::Compiled => "compiled",
            Self::Found => "found",
            Self::Reused => "reused",
        }
    }
}

impl CacheAsk {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is there and none.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, QueryError> {
        let wrong = |detail: &str| QueryError::Header { header: NAME, detail: detail.to_owned() };
        let Some(text) = single(headers, NAME)? else { return Ok(None) };
        let item: Result<Item, _> = Parser::new(text).parse();
        let item = item.map_err(|_| wrong("it is not an item of RFC 9651, as `code;token=:...:`"))?;
        let mode = match item.bare_item.as_token().map(|token| token.as_str()) {
            Some("code") => Mode::Code,
            Some("instance") => Mode::Instance,
            _ => return Err(wrong("the mode has to be `code` or `instance`")),
        };
        let bytes = |name: &str| match item.params.get(name) {
            None => Ok(None),
            Some(BareItem::ByteSequence(bytes)) => Ok(Some(bytes.clone())),
            Some(_) => Err(wrong(&format!("`{name}` has to be bytes in base64 between colons"))),
        };
        let named = match (bytes("token")?, bytes("hash")?) {
            (Some(_), Some(_)) => return Err(wrong("`token` and `hash` name one program each: send one")),
            (Some(token), None) => Some(Named::Token(token)),
            (None, Some(hash)) => {
                let hash =
                    hash.try_into().map_err(|_| wrong("`hash` has to be the 32 bytes of a SHA-256"))?;
                Some(Named::Hash(hash))
            }
            (None, None) => None,
        };
        Ok(Some(Self { mode, named }))
    }
}

/// The header of an answer: the mode, what was done, and a token where the client needs a new one.
pub(crate) fn told(mode: Mode, done: Done, token: Option<&[u8]>) -> Option<HeaderValue> {
    use base64::Engine as _;
    let token = token.map(|token| base64::engine::general_purpose::STANDARD.encode(token));
    let token = token.map(|token| format!(";token=:{token}:")).unwrap_or_default();
    HeaderValue::try_from(format!("{}{token};did={}", mode.word(), done.word())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<CacheAsk>, QueryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE, text.parse().unwrap());
        CacheAsk::read(&headers)
    }

    #[test]
    fn a_mode_and_what_it_is_for() {
        assert_eq!(CacheAsk::read(&HeaderMap::new()).unwrap(), None);
        assert_eq!(read("code").unwrap(), Some(CacheAsk { mode: Mode::Code, named: None }));
        let token = Some(Named::Token(b"abc".to_vec()));
        assert_eq!(
            read("instance;token=:YWJj:").unwrap(),
            Some(CacheAsk { mode: Mode::Instance, named: token })
        );
        let hash = format!("code;hash=:{}:", "A".repeat(43) + "=");
        assert_eq!(read(&hash).unwrap().unwrap().named, Some(Named::Hash([0; 32])));
    }

    #[test]
    fn what_is_no_such_header_is_said_so() {
        for text in [
            "base",
            "code;token=abc",
            "code;hash=:YWJj:",
            "code;token=:YWJj:;hash=:YWJj:",
            "\"code\"",
            ";",
            "code, code",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_reads_as_a_request_does() {
        let value = told(Mode::Code, Done::Compiled, Some(b"abc")).unwrap();
        assert_eq!(value, "code;token=:YWJj:;did=compiled");
        assert_eq!(told(Mode::Instance, Done::Reused, None).unwrap(), "instance;did=reused");
    }
}
