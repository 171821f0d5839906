//! The ways in which a gateway ends an attack.

use std::borrow::Cow;
use std::fmt;

use testkit::http::TestResponse;

/// How the gateway ended an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttackEnding {
    /// An answer without problem document or GraphQL errors: its status.
    Answer(u16),
    /// An RFC 9457 problem document: status and code.
    Problem(u16, Cow<'static, str>),
    /// A GraphQL answer with errors: the code of the first error.
    Errors(Cow<'static, str>),
    /// An HTTP/2 stream that was reset: the error code (RFC 9113, section 7).
    StreamReset(u32),
    /// An HTTP/2 connection that ended with GOAWAY: the error code.
    GoAway(u32),
    /// A connection that was closed without an answer.
    Closed,
}

impl AttackEnding {
    /// Returns the ending of a problem document with this code.
    #[must_use]
    pub const fn problem(status: u16, code: &'static str) -> Self {
        Self::Problem(status, Cow::Borrowed(code))
    }

    /// Returns the ending of a GraphQL answer whose first error has this code.
    #[must_use]
    pub const fn errors(code: &'static str) -> Self {
        Self::Errors(Cow::Borrowed(code))
    }

    /// Returns the ending that corresponds to an answer.
    #[must_use]
    pub fn from_response(response: &TestResponse) -> Self {
        let status = response.status.as_u16();
        let document = serde_json::from_slice::<serde_json::Value>(&response.body).unwrap_or_default();
        if response.header("content-type").starts_with("application/problem+json") {
            let code = document["code"].as_str().unwrap_or_default();
            return Self::Problem(status, code.to_owned().into());
        }
        match document["errors"].get(0) {
            Some(error) => {
                let code = error["extensions"]["code"].as_str().unwrap_or_default();
                Self::Errors(code.to_owned().into())
            }
            None => Self::Answer(status),
        }
    }
}

impl fmt::Display for AttackEnding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(status) => write!(out, "{status}"),
            Self::Problem(status, code) => write!(out, "{status} {code}"),
            Self::Errors(code) => write!(out, "GraphQL errors, {code} first"),
            Self::StreamReset(code) => write!(out, "RST_STREAM {code}"),
            Self::GoAway(code) => write!(out, "GOAWAY {code}"),
            Self::Closed => out.write_str("a closed connection"),
        }
    }
}
