//! The config of callers: `auth:`, the accepted credentials, and `callers:`, the callers themselves.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use services::DurationConfig;
use services::config::OneOrMany;

/// The credentials that callers may send.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// The header for keys.
    pub keys: KeysConfig,
    /// The tokens (JWT) that are accepted.
    pub jwt: Option<JwtConfig>,
}

/// The header in which callers send their keys. The keys themselves are listed under `callers`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// The name of the header. In `authorization` a key is sent as `Bearer KEY`.
    pub header: String,
}

/// The tokens that are accepted: JSON Web Tokens (RFC 7519) of one issuer, for this gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// The issuer of the tokens. The claim `iss` must be equal to it.
    pub issuer: String,
    /// The accepted audiences. The claim `aud` must contain one of them.
    pub audience: OneOrMany,
    /// The issuer's public keys (RFC 7517): a URL, or a file relative to the config. By default the URL is
    /// the one in the issuer's `/.well-known/openid-configuration`, or else the issuer's
    /// `/.well-known/jwks.json`.
    #[serde(default)]
    pub jwks: Option<String>,
    /// A secret shared with the issuer, in place of public keys, as `${file:...}` or `${env:...}`.
    #[serde(default)]
    pub secret: Option<String>,
    /// The accepted algorithms. By default RS256 and ES256; with a `secret` HS256.
    #[serde(default)]
    pub algorithms: Option<Vec<SignatureAlgorithm>>,
    /// The tolerated difference between the issuer's clock and the gateway's.
    #[serde(default = "JwtConfig::default_leeway")]
    pub leeway: DurationConfig,
    /// The claim that contains the caller's name.
    #[serde(default = "JwtConfig::default_caller")]
    pub caller: String,
    /// The claim that contains the caller's groups, as a list or as a text separated by spaces. A JSON
    /// Pointer such as `/realm_access/roles` selects a nested claim.
    #[serde(default = "JwtConfig::default_groups")]
    pub groups: String,
}

/// A signature algorithm of tokens (RFC 7518). `none` is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[allow(clippy::upper_case_acronyms)]
pub enum SignatureAlgorithm {
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

/// A caller: the keys, certificates or tokens that identify it, and its groups.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallerConfig {
    /// The caller's key, or several keys during a rotation: `${env:...}`, `${file:...}`, or `sha256:` and the
    /// key's hash in hexadecimal digits.
    pub key: Option<OneOrMany>,
    /// The name in the caller's client certificate, prefixed with its kind: `dns:warehouse.example.org`,
    /// `uri:spiffe://shop/checkout`, `email:`, `ip:`, or `cn:` for the subject's common name. Names of other
    /// kinds do not match. Without a prefix, the kind is inferred from the name; a host name then also
    /// matches the common name of a certificate that has no alternative names.
    pub certificate: Option<String>,
    /// The subject of the caller's tokens, to give such a caller a name of its own.
    pub subject: Option<String>,
    /// The caller's groups. `rights` may have a row for each.
    pub groups: Vec<String>,
}

/// Callers by the names that logs and `rights` use for them.
pub type CallerConfigs = BTreeMap<String, CallerConfig>;

impl JwtConfig {
    fn default_leeway() -> DurationConfig {
        DurationConfig::from_secs(60)
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

impl SignatureAlgorithm {
    pub(crate) fn to_jsonwebtoken(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as JwtAlgorithm;
        match self {
            Self::RS256 => JwtAlgorithm::RS256,
            Self::RS384 => JwtAlgorithm::RS384,
            Self::RS512 => JwtAlgorithm::RS512,
            Self::PS256 => JwtAlgorithm::PS256,
            Self::PS384 => JwtAlgorithm::PS384,
            Self::PS512 => JwtAlgorithm::PS512,
            Self::ES256 => JwtAlgorithm::ES256,
            Self::ES384 => JwtAlgorithm::ES384,
            Self::EdDSA => JwtAlgorithm::EdDSA,
            Self::HS256 => JwtAlgorithm::HS256,
            Self::HS384 => JwtAlgorithm::HS384,
            Self::HS512 => JwtAlgorithm::HS512,
        }
    }
}

/// Whether a location is a URL to fetch keys from, and not a file.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
