//! Authentication errors. The challenges for invalid credentials follow RFC 6750, section 3.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use services::{FaultParty, ToProblem};

/// The reason a request's caller could not be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthenticationError {
    #[error("this needs credentials, and there are none")]
    Missing(CredentialKinds),
    #[error("the request has {0}: send only one, since it is unclear which one applies")]
    ConflictingCredentials(String),
    #[error("this gateway has no such key")]
    UnknownKey(CredentialKinds),
    #[error("the token is not good: {0}")]
    Token(#[from] BadToken),
    #[error("the client certificate of this connection {0}")]
    StaleCertificate(&'static str),
    #[error("the keys to verify tokens are missing: their issuer can't be reached")]
    KeysUnavailable,
}

/// The reason a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadToken {
    #[error("it is not a JSON Web Token, or one of its fields has the wrong type")]
    Malformed,
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("its algorithm is not accepted here")]
    Algorithm,
    #[error("it requires an unsupported extension (`crit`)")]
    UnsupportedExtension,
    #[error("the issuer has no key of that name (`kid`) and algorithm")]
    UnknownKey,
    #[error("it names no key (`kid`), and the issuer has several")]
    AmbiguousKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("it is meant for another audience")]
    Audience,
    #[error("it comes from another issuer")]
    Issuer,
    #[error("its claim `{0}` is missing")]
    MissingClaim(String),
    #[error("it names no caller")]
    MissingCaller,
}

/// The kinds of credentials that the gateway accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CredentialKinds {
    /// The header of keys, unless it is `authorization`.
    pub(crate) key: Option<HeaderName>,
    /// Whether `Authorization: Bearer` is accepted.
    pub(crate) bearer: bool,
    /// Whether client certificates identify callers.
    pub(crate) certificate: bool,
}

impl CredentialKinds {
    /// Lists the configured kinds of credentials.
    fn hint(&self) -> String {
        let mut ways = Vec::new();
        ways.extend(self.key.as_ref().map(|name| format!("a key as `{name}`")));
        ways.extend(self.bearer.then(|| "a token as `Authorization: Bearer`".to_owned()));
        ways.extend(self.certificate.then(|| "a client certificate in the TLS handshake".to_owned()));
        if ways.is_empty() {
            return "the operator has configured no callers".to_owned();
        }
        format!("send {}", ways.join(", or "))
    }

    /// Adds `WWW-Authenticate` (RFC 9110, section 11.6.1). Keys have no registered scheme, so a scheme of our
    /// own names their header.
    fn add_challenge(&self, headers: &mut HeaderMap) {
        if self.bearer {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"orfa\""));
        }
        if let Some(name) = &self.key {
            let challenge = format!("ApiKey realm=\"orfa\", header=\"{name}\"");
            headers.extend(HeaderValue::from_str(&challenge).ok().map(|c| (header::WWW_AUTHENTICATE, c)));
        }
    }
}

impl AuthenticationError {
    /// Returns a `WWW-Authenticate` value with an error code of RFC 6750, section 3.1.
    fn bearer_challenge(&self, error: &str) -> Option<HeaderValue> {
        let mut challenge = format!("Bearer realm=\"orfa\", error=\"{error}\", error_description=\"");
        let _ = write!(challenge, "{}\"", self.to_string().replace(['"', '\\'], "'"));
        HeaderValue::from_str(&challenge).ok()
    }
}

impl ToProblem for AuthenticationError {
    fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "credentials-missing",
            Self::ConflictingCredentials(_) => "credentials-several",
            Self::UnknownKey(_) => "key-unknown",
            Self::Token(BadToken::Expired) => "token-expired",
            Self::Token(_) => "token-invalid",
            Self::StaleCertificate(_) => "certificate-expired",
            Self::KeysUnavailable => "token-keys-missing",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::ConflictingCredentials(_) => StatusCode::BAD_REQUEST,
            Self::KeysUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::KeysUnavailable => FaultParty::Unavailable,
            _ => FaultParty::Client,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Missing(asked) | Self::UnknownKey(asked) => asked.hint(),
            Self::StaleCertificate(_) => "connect again, with a certificate that is valid".to_owned(),
            Self::Token(BadToken::Expired) => "get a new one from its issuer".to_owned(),
            Self::KeysUnavailable => "try again later".to_owned(),
            _ => String::new(),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Missing(asked) | Self::UnknownKey(asked) => asked.add_challenge(&mut headers),
            Self::ConflictingCredentials(_) => {
                headers
                    .extend(self.bearer_challenge("invalid_request").map(|c| (header::WWW_AUTHENTICATE, c)));
            }
            Self::Token(_) => {
                headers.extend(self.bearer_challenge("invalid_token").map(|c| (header::WWW_AUTHENTICATE, c)));
            }
            Self::StaleCertificate(_) => {}
            Self::KeysUnavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
        }
        headers
    }
}
