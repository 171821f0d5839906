//! What an operator writes of callers: `auth:`, how they prove who they are, and `callers:`, who they are.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use services::Duration;
use services::config::OneOrMany;

/// How callers prove who they are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Where callers send their keys.
    pub keys: KeysConfig,
    /// The tokens (JWT) that are accepted.
    pub jwt: Option<JwtConfig>,
}

/// Where callers send their keys. The keys stand under `callers`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// The header. In `authorization` a key is sent as `Bearer KEY`.
    pub header: String,
}

/// The tokens that are accepted: JSON Web Tokens (RFC 7519) of one issuer, for this gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// Who issues them: the claim `iss`, to the letter.
    pub issuer: String,
    /// Whom they are issued for: the claim `aud` has to hold one of these.
    pub audience: OneOrMany,
    /// The issuer's public keys (RFC 7517): a URL, or a file relative to the config. Without it they are
    /// looked up where the issuer's `/.well-known/openid-configuration` says, or at
    /// `/.well-known/jwks.json`.
    #[serde(default)]
    pub jwks: Option<String>,
    /// A secret shared with the issuer, in place of public keys, as `${file:...}` or `${env:...}`.
    #[serde(default)]
    pub secret: Option<String>,
    /// The algorithms. By default RS256 and ES256; with a `secret` HS256.
    #[serde(default)]
    pub algorithms: Option<Vec<Algorithm>>,
    /// How far the issuer's clock and ours may be apart.
    #[serde(default = "JwtConfig::default_leeway")]
    pub leeway: Duration,
    /// The claim that names the caller.
    #[serde(default = "JwtConfig::default_caller")]
    pub caller: String,
    /// The claim that names the caller's groups, a list or a text with spaces; `/realm_access/roles` for one
    /// within another.
    #[serde(default = "JwtConfig::default_groups")]
    pub groups: String,
}

/// How tokens are signed (RFC 7518). There is no `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[allow(clippy::upper_case_acronyms)]
pub enum Algorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    RS256,
    /// RSA, PKCS #1 v1.5, SHA-384.
    RS384,
    /// RSA, PKCS #1 v1.5, SHA-512.
    RS512,
    /// RSA, PSS, SHA-256.
    PS256,
    /// RSA, PSS, SHA-384.
    PS384,
    /// RSA, PSS, SHA-512.
    PS512,
    /// ECDSA on P-256.
    ES256,
    /// ECDSA on P-384.
    ES384,
    /// Ed25519.
    EdDSA,
    /// A shared secret, SHA-256.
    HS256,
    /// A shared secret, SHA-384.
    HS384,
    /// A shared secret, SHA-512.
    HS512,
}

/// Who calls: by which key, certificate or token they are known, and which groups they are in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallerConfig {
    /// Its key, or several while one takes over from another: `${env:...}`, `${file:...}`, or
    /// `sha256:` and the key's hash in hexadecimal digits.
    pub key: Option<OneOrMany>,
    /// The name in its client certificate, with its kind before it: `dns:warehouse.example.org`, `uri:spiffe://shop/checkout`,
    /// `email:`, `ip:`, or `cn:` for the subject's common name. Names of other kinds do not count. Without a kind it is
    /// the one that it looks like; a host name then also fits the common name of a certificate that has no alternative
    /// names at all.
    pub certificate: Option<String>,
    /// What its tokens are issued to, where it is to have a name of its own.
    pub subject: Option<String>,
    /// The groups that it is in; `rights` may have a row for each.
    pub groups: Vec<String>,
}

/// Callers by the names that logs and `rights` call them by.
pub type Callers = BTreeMap<String, CallerConfig>;

impl JwtConfig {
    fn default_leeway() -> Duration {
        Duration::from_secs(60)
    }

    fn default_caller() -> String {
        "sub".to_owned()
    }

    fn default_groups() -> String {
        "groups".to_owned()
    }
}

impl Default for KeysConfig {
    fn default() -> Self {
        Self { header: "x-api-key".to_owned() }
    }
}

impl Algorithm {
    pub(super) fn known(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Known;
        match self {
            Self::RS256 => Known::RS256,
            Self::RS384 => Known::RS384,
            Self::RS512 => Known::RS512,
            Self::PS256 => Known::PS256,
            Self::PS384 => Known::PS384,
            Self::PS512 => Known::PS512,
            Self::ES256 => Known::ES256,
            Self::ES384 => Known::ES384,
            Self::EdDSA => Known::EdDSA,
            Self::HS256 => Known::HS256,
            Self::HS384 => Known::HS384,
            Self::HS512 => Known::HS512,
        }
    }
}

/// Whether keys are fetched from there, and not read from a file.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
