//! Caller identification: by key (`authn/keys.rs`), by token (`authn/tokens.rs`, verified with the keys that
//! `authn/jwks.rs` fetches) or by the name in a client certificate. A request without credentials is
//! anonymous.
//!
//! Invalid credentials are refused and never treated as absent. A header that is checked for credentials is
//! removed from the request before it is proxied, except for services that list it under `forward`.
//! Credentials in a header take precedence over the certificate of the connection, which may belong to a
//! whole fleet of clients.

mod crypto;
mod jwks;
mod keys;
mod refusal;
mod tokens;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use services::{CallerId, GatewayClient};

pub(crate) use jwks::KeySet;
use jwks::{JwksLocation, JwksSource};
use keys::ApiKeys;
use refusal::BadToken;
pub(crate) use refusal::{AuthenticationError, CredentialKinds};
use tokens::{KeySource, TokenVerifier};

use crate::config::auth::is_url;
use crate::config::certificate_name::{self, CertificateName};
use crate::config::{CallerConfig, GatewayConfig, JwtConfig, SignatureAlgorithm};
use crate::http_semantics::peer_certificate::PeerCertificate;

/// A caller and its groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) caller: CallerId,
    pub(crate) groups: Vec<Arc<str>>,
}

/// The configured ways to identify callers.
pub(crate) struct IdentityProviders {
    anonymous: Arc<Principal>,
    /// The header that carries keys, if any caller has a key.
    key_header: Option<HeaderName>,
    keys: ApiKeys,
    tokens: Option<TokenVerifier>,
    /// Callers by the names in their certificates.
    certificates: HashMap<CertificateName, Arc<Principal>>,
    /// Callers by the subjects of their tokens.
    subjects: HashMap<String, Arc<Principal>>,
}

impl IdentityProviders {
    /// Builds the identification rules from the config. Reuses the keys that `earlier` fetched if the issuer
    /// is the same.
    ///
    /// # Errors
    /// Returns a JSON pointer into the config and a message if a key file can't be read.
    pub(crate) fn new(config: &GatewayConfig, earlier: Option<&Self>) -> Result<Self, (String, String)> {
        let who: HashMap<&str, Arc<Principal>> = config
            .callers
            .iter()
            .map(|(name, caller)| (name.as_str(), Arc::new(named_principal(name, caller))))
            .collect();
        let known = |name: &str| who.get(name).map(Arc::clone);
        let subjects = config.callers.iter();
        let subjects = subjects.filter_map(|(name, caller)| Some((caller.subject.clone()?, known(name)?)));
        let certificates = config.callers.iter().flat_map(|(name, caller)| {
            let names = caller.certificate.as_deref().map(CertificateName::parse_config_names);
            let names = names.into_iter().flatten().flatten();
            names.filter_map(move |certified| Some((certified, known(name)?)))
        });
        for (caller, text) in
            config.callers.iter().filter_map(|(name, caller)| Some((name, caller.certificate.as_ref()?)))
        {
            if certificate_name::split_kind(text).is_none() {
                tracing::warn!(
                    caller,
                    "its certificate's name has no kind: write dns:, uri:, email:, ip: or cn: before it"
                );
            }
        }
        let keys = ApiKeys::new(&config.callers, |name| who.get(name));
        let key = HeaderName::from_bytes(config.auth.keys.header.as_bytes()).ok();
        let jwt = config.auth.jwt.as_ref();
        Ok(Self {
            anonymous: Arc::default(),
            key_header: key.filter(|_| !keys.is_empty()),
            keys,
            tokens: jwt.map(|jwt| build_token_verifier(jwt, config.source.folder(), earlier)).transpose()?,
            certificates: certificates.collect(),
            subjects: subjects.collect(),
        })
    }

    /// Returns the caller that the client certificate of a connection identifies: the one for the first of
    /// its names that the config lists.
    ///
    /// # Errors
    /// Fails if the certificate has expired since the handshake, since a connection can outlive it.
    pub(crate) fn identify_by_certificate(
        &self,
        certificate: Option<&PeerCertificate>,
        now: SystemTime,
    ) -> Result<Option<&Arc<Principal>>, AuthenticationError> {
        let Some(certificate) = certificate else { return Ok(None) };
        if let Some(staleness) = certificate.staleness(now) {
            return Err(AuthenticationError::StaleCertificate(staleness));
        }
        let mut names = certificate.names.iter().filter(|name| name.is_exact());
        Ok(names.find_map(|name| self.certificates.get(name)))
    }

    /// Identifies the caller of a request with these headers, on a connection whose certificate identifies
    /// `certified`.
    ///
    /// # Errors
    /// Fails if the credentials are invalid or if there is more than one.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        certified: Option<&Arc<Principal>>,
    ) -> Result<Arc<Principal>, AuthenticationError> {
        let key = self.key_header.as_ref().filter(|name| **name != AUTHORIZATION);
        let key = key.map_or(Ok(None), |name| single_header(headers, name))?;
        let bearer = if self.accepts_bearer() {
            single_header(headers, &AUTHORIZATION)?.and_then(bearer_credentials)
        } else {
            None
        };
        match (key, bearer) {
            (None, None) => Ok(Arc::clone(certified.unwrap_or(&self.anonymous))),
            (Some(key), None) => self.identify_by_key(key),
            (None, Some(token)) => self.identify_by_bearer(token).await,
            (Some(_), Some(_)) => {
                Err(AuthenticationError::ConflictingCredentials("a key and a bearer token".to_owned()))
            }
        }
    }

    fn accepts_bearer(&self) -> bool {
        self.tokens.is_some() || self.key_header.as_ref() == Some(&AUTHORIZATION)
    }

    fn identify_by_key(&self, key: &[u8]) -> Result<Arc<Principal>, AuthenticationError> {
        self.keys.find(key).cloned().ok_or_else(|| AuthenticationError::UnknownKey(self.credential_kinds()))
    }

    /// Looks up a bearer value as a key, if keys are sent in `Authorization`, and otherwise as a token.
    async fn identify_by_bearer(&self, text: &[u8]) -> Result<Arc<Principal>, AuthenticationError> {
        let Some(tokens) = &self.tokens else { return self.identify_by_key(text) };
        if self.key_header.as_ref() == Some(&AUTHORIZATION)
            && let Some(principal) = self.keys.find(text)
        {
            return Ok(Arc::clone(principal));
        }
        let token = std::str::from_utf8(text).map_err(|_| BadToken::Malformed)?;
        tokens.identify(token, &self.subjects).await
    }

    /// Returns the error for an anonymous request where a caller is required.
    pub(crate) fn missing_credentials(&self) -> AuthenticationError {
        AuthenticationError::Missing(self.credential_kinds())
    }

    fn credential_kinds(&self) -> CredentialKinds {
        let key = self.key_header.clone().filter(|name| *name != AUTHORIZATION);
        CredentialKinds { key, bearer: self.accepts_bearer(), certificate: !self.certificates.is_empty() }
    }

    /// Removes the credentials from a request that is passed on to a service with these headers in `forward`,
    /// and returns them.
    pub(crate) fn strip_credentials(&self, headers: &mut HeaderMap, forwarded: &[HeaderName]) -> HeaderMap {
        let mut taken = HeaderMap::new();
        let mut take = |headers: &mut HeaderMap, name: &HeaderName| {
            taken.extend(headers.remove(name).map(|value| (name.clone(), value)));
        };
        if let Some(name) =
            self.key_header.as_ref().filter(|name| **name != AUTHORIZATION && !forwarded.contains(name))
        {
            take(headers, name);
        }
        let is_bearer = |value: &HeaderValue| bearer_credentials(value.as_bytes()).is_some();
        if self.accepts_bearer()
            && !forwarded.contains(&AUTHORIZATION)
            && headers.get(AUTHORIZATION).is_some_and(is_bearer)
        {
            take(headers, &AUTHORIZATION);
        }
        taken
    }
}

fn named_principal(name: &str, config: &CallerConfig) -> Principal {
    let groups = config.groups.iter().map(|group| group.as_str().into()).collect();
    Principal { caller: CallerId::Named(name.into()), groups }
}

fn build_token_verifier(
    config: &JwtConfig,
    folder: &Path,
    earlier: Option<&IdentityProviders>,
) -> Result<TokenVerifier, (String, String)> {
    let usual: &[SignatureAlgorithm] = match config.secret {
        Some(_) => &[SignatureAlgorithm::HS256],
        None => &[SignatureAlgorithm::RS256, SignatureAlgorithm::ES256],
    };
    let algorithms = config.algorithms.as_deref().unwrap_or(usual);
    let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm.to_jsonwebtoken()).collect();
    let source = match (&config.secret, &config.jwks) {
        (Some(secret), _) => KeySource::Fixed(Arc::new(KeySet::from_secret(secret, &algorithms))),
        (None, Some(url)) if is_url(url) => {
            fetched_key_source(JwksLocation::Url(url.clone()), &algorithms, earlier)?
        }
        (None, Some(file)) => {
            let wrong = |reason: String| ("/auth/jwt/jwks".to_owned(), format!("`{file}` {reason}"));
            let text = crate::config::read_file(&folder.join(file));
            let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
            let keys = KeySet::parse(text.as_bytes(), &algorithms);
            KeySource::Fixed(Arc::new(keys.map_err(|reason| wrong(format!("is {reason}")))?))
        }
        (None, None) => {
            fetched_key_source(JwksLocation::Issuer(config.issuer.clone()), &algorithms, earlier)?
        }
    };
    Ok(TokenVerifier::new(config, algorithms, source))
}

fn fetched_key_source(
    location: JwksLocation,
    algorithms: &[jsonwebtoken::Algorithm],
    earlier: Option<&IdentityProviders>,
) -> Result<KeySource, (String, String)> {
    if let Some(KeySource::Remote(jwks)) = earlier.and_then(|earlier| Some(&earlier.tokens.as_ref()?.source))
        && jwks.is_same_source(&location, algorithms)
    {
        return Ok(KeySource::Remote(Arc::clone(jwks)));
    }
    let fetch = GatewayClient::new()
        .map_err(|error| ("/auth/jwt".to_owned(), format!("TLS can't be used: {error}")))?;
    Ok(KeySource::Remote(JwksSource::new(location, algorithms.to_vec(), fetch)))
}

/// The value of a header that may occur only once.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, AuthenticationError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        Some(_) => Err(AuthenticationError::ConflictingCredentials(format!("the header `{name}` twice"))),
        None => Ok(value.map(HeaderValue::as_bytes)),
    }
}

/// The credentials after `Bearer` (RFC 6750, section 2.1). Other schemes are left to the services.
fn bearer_credentials(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && rest.first().is_none_or(|byte| *byte == b' ');
    is_bearer.then(|| rest.trim_ascii())
}
