//! `ORFA-Cache`: which program a client means without sending it, and how it wants it kept.
//!
//! The modes are the paper's (section 3.4): *base* is no header at all, *code* keeps the compiled code, *instance* a live
//! instance. All of them run the same program; what differs is what has to be sent and made.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use sfv::{BareItem, Item, Parser};

use crate::fields::Field;
use crate::owner::Hash;
use crate::problem::QueryError;
use crate::token::TEXT;

/// The header, in requests and answers.
pub(crate) const CACHE: HeaderName = HeaderName::from_static("orfa-cache");

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
    /// By what it was given, in base64.
    Token(String),
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
    const ALL: [Self; 2] = [Self::Code, Self::Instance];

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

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
    /// Reads `ORFA-Cache`.
    ///
    /// # Errors
    /// When it is there and none.
    pub(crate) fn read(field: Field<'_>) -> Result<Option<Self>, QueryError> {
        let wrong = |detail: &str| field.wrong(detail);
        let Some(text) = field.text()? else { return Ok(None) };
        if let Some(usual) = Self::usual(text) {
            return Ok(Some(usual));
        }
        let item: Result<Item, _> = Parser::new(text).parse();
        let item = item.map_err(|_| wrong("it is not an item of RFC 9651, as `code;token=:...:`"))?;
        let mode = item.bare_item.as_token().and_then(|token| Mode::of(token.as_str()));
        let mode = mode.ok_or_else(|| wrong("the mode has to be `code` or `instance`"))?;
        let bytes = |name: &str| match item.params.get(name) {
            None => Ok(None),
            Some(BareItem::ByteSequence(bytes)) => Ok(Some(bytes.clone())),
            Some(_) => Err(wrong(&format!("`{name}` has to be bytes in base64 between colons"))),
        };
        let named = match (bytes("token")?, bytes("hash")?) {
            (Some(_), Some(_)) => return Err(wrong("`token` and `hash` name one program each: send one")),
            (Some(token), None) => Some(Named::Token(STANDARD.encode(token))),
            (None, Some(hash)) => {
                let hash =
                    hash.try_into().map_err(|_| wrong("`hash` has to be the 32 bytes of a SHA-256"))?;
                Some(Named::Hash(hash))
            }
            (None, None) => None,
        };
        Ok(Some(Self { mode, named }))
    }

    /// What nearly every request says that says anything: a mode, and a token as it was given. It need not be taken
    /// apart: whether it is one is seen when it is opened.
    fn usual(text: &str) -> Option<Self> {
        let of = |mode: Mode| Some((mode, text.strip_prefix(mode.word())?));
        let (mode, rest) = Mode::ALL.into_iter().find_map(of)?;
        let token = rest.strip_prefix(";token=:")?.strip_suffix(':').filter(|token| token.len() == TEXT)?;
        Some(Self { mode, named: Some(Named::Token(token.to_owned())) })
    }
}

/// The header of an answer: the mode, what was done, a token where the client needs a new one, and by which gateway,
/// where the request brought the program.
pub(crate) fn told(
    mode: Mode,
    done: Done,
    token: Option<&[u8]>,
    gateway: Option<&str>,
) -> Option<HeaderValue> {
    let Some(token) = token else { return Some(HeaderValue::from_static(usual(mode, done))) };
    let mut text = String::with_capacity(192);
    text.push_str(mode.word());
    text.push_str(";token=:");
    STANDARD.encode_string(token, &mut text);
    text.push_str(":;did=");
    text.push_str(done.word());
    for part in gateway.into_iter().flat_map(|gateway| [";gateway=", gateway]) {
        text.push_str(part);
    }
    HeaderValue::try_from(text).ok()
}

/// What nearly every answer says, which has no token.
fn usual(mode: Mode, done: Done) -> &'static str {
    match (mode, done) {
        (Mode::Code, Done::Compiled) => "code;did=compiled",
        (Mode::Code, Done::Found) => "code;did=found",
        (Mode::Code, Done::Reused) => "code;did=reused",
        (Mode::Instance, Done::Compiled) => "instance;did=compiled",
        (Mode::Instance, Done::Found) => "instance;did=found",
        (Mode::Instance, Done::Reused) => "instance;did=reused",
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::fields::Fields;

    fn read(text: &str) -> Result<Option<CacheAsk>, QueryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE, text.parse().unwrap());
        CacheAsk::read(Fields::of(&headers).cache)
    }

    #[test]
    fn a_mode_and_what_it_is_for() {
        assert_eq!(CacheAsk::read(Fields::of(&HeaderMap::new()).cache).unwrap(), None);
        assert_eq!(read("code").unwrap(), Some(CacheAsk { mode: Mode::Code, named: None }));
        let token = Some(CacheAsk { mode: Mode::Instance, named: Some(Named::Token("YWJj".into())) });
        for text in ["instance;token=:YWJj:", "instance; token=:YWJj:", "instance;token=:YWJj:;did=reused"] {
            assert_eq!(read(text).unwrap(), token, "{text}");
        }
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
        let value = told(Mode::Code, Done::Compiled, Some(b"abc"), Some("g1")).unwrap();
        assert_eq!(value, "code;token=:YWJj:;did=compiled;gateway=g1");
        let value = told(Mode::Code, Done::Compiled, Some(b"abc"), None).unwrap();
        assert_eq!(value, "code;token=:YWJj:;did=compiled");
        for mode in [Mode::Code, Mode::Instance] {
            for done in [Done::Compiled, Done::Found, Done::Reused] {
                let words = format!("{};did={}", mode.word(), done.word());
                assert_eq!(told(mode, done, None, None).unwrap(), words);
            }
        }
    }
}
