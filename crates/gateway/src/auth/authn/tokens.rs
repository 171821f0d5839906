//! JWT validation: identifies callers by JSON Web Tokens (RFC 7519), verified as RFC 8725 recommends. The
//! allowed algorithms come from the config and from each key, never from the token. Issuer, audience and
//! expiry are required.
//!
//! A valid token is cached by its hash until it expires, so that its signature is verified only once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::Value;
use services::CallerId;

use super::Principal;
use super::jwks::{JwksSource, KeySet, NoKey};
use super::refusal::{AuthenticationError, BadToken};
use crate::config::JwtConfig;
use crate::config::api_key::{KeyHash, sha256};

/// The longest accepted token, in bytes.
const MAX_TOKEN_LENGTH: usize = 8 << 10;
/// The maximum number of valid tokens that are cached, and the maximum memory of their callers in bytes.
const MAX_CACHED: usize = 16 << 10;
const MAX_CACHED_BYTES: usize = 128 << 20;
/// The number of shards. Each is small enough to be cleared on a serving thread.
const SHARDS: usize = 64;
/// The memory of the largest caller that is cached, in bytes. Tokens with more groups are verified each time.
const MAX_CACHED_CALLER: usize = 16 << 10;
/// The memory of a text beside its bytes: its pointer in the list, its counts, and rounding.
const TEXT_OVERHEAD: usize = 48;
/// The longest name of a caller or a group, in bytes.
const MAX_NAME_LENGTH: usize = 256;

/// The issuer's keys, from the config or fetched from the issuer.
pub(super) enum KeySource {
    Fixed(Arc<KeySet>),
    Remote(Arc<JwksSource>),
}

/// The token verifier.
pub(super) struct TokenVerifier {
    validation: Validation,
    algorithms: Vec<Algorithm>,
    issuer: String,
    caller_claim: String,
    groups_claim: String,
    pub(super) source: KeySource,
    valid_tokens: ValidTokenCache,
}

/// The cache of valid tokens.
struct ValidTokenCache([Mutex<TokenShard>; SHARDS]);

/// A shard of the cache.
#[derive(Default)]
struct TokenShard {
    by_hash: HashMap<KeyHash, CachedClaims>,
    /// The memory of the callers, see [`cached_size`].
    bytes: usize,
}

struct CachedClaims {
    principal: Arc<Principal>,
    /// Seconds since 1970.
    valid_until: u64,
    /// The keys that the token was verified with, which are freed when the issuer's keys are replaced.
    keys: Weak<KeySet>,
}

impl CachedClaims {
    fn is_valid(&self, keys: &Arc<KeySet>, now: u64) -> bool {
        now < self.valid_until && Weak::as_ptr(&self.keys) == Arc::as_ptr(keys)
    }
}

impl TokenVerifier {
    pub(super) fn new(config: &JwtConfig, algorithms: Vec<Algorithm>, source: KeySource) -> Self {
        super::crypto::install();
        let mut validation = Validation::new(algorithms.first().copied().unwrap_or_default());
        validation.leeway = config.leeway.0.as_secs();
        validation.validate_nbf = true;
        validation.set_audience(config.audience.as_slice());
        validation.set_issuer(&[&config.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let (issuer, caller_claim) = (config.issuer.clone(), config.caller.clone());
        let groups_claim = config.groups.clone();
        Self {
            validation,
            algorithms,
            issuer,
            caller_claim,
            groups_claim,
            source,
            valid_tokens: ValidTokenCache::new(),
        }
    }

    /// Identifies the sender of a token. `known` contains the callers of the config by the subject of their
    /// tokens.
    pub(super) async fn identify(
        &self,
        token: &str,
        known: &HashMap<String, Arc<Principal>>,
    ) -> Result<Arc<Principal>, AuthenticationError> {
        if token.len() > MAX_TOKEN_LENGTH {
            return Err(BadToken::TooLong(MAX_TOKEN_LENGTH).into());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let hash = sha256(token.as_bytes());
        let keys = self.keys().await?;
        if let Some(principal) = self.valid_tokens.find(&hash, &keys, now) {
            return Ok(principal);
        }
        let (claims, keys) = self.verify_token(token, keys).await?;
        let who = self.resolve_principal(&claims, known)?;
        let until = claims.get("exp").and_then(Value::as_f64).unwrap_or(0.0) as u64;
        let until = until.saturating_add(self.validation.leeway);
        self.valid_tokens.insert(hash, &who, until, &keys, now);
        Ok(who)
    }

    async fn keys(&self) -> Result<Arc<KeySet>, AuthenticationError> {
        match &self.source {
            KeySource::Fixed(keys) => Ok(Arc::clone(keys)),
            KeySource::Remote(jwks) => jwks.keys().await.ok_or(AuthenticationError::KeysUnavailable),
        }
    }

    /// Returns the claims of a token after checking its signature, issuer, audience and times.
    async fn verify_token(
        &self,
        token: &str,
        mut keys: Arc<KeySet>,
    ) -> Result<(Value, Arc<KeySet>), AuthenticationError> {
        let header = decode_header(token).map_err(|_| BadToken::Malformed)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(BadToken::Algorithm.into());
        }
        if header.crit.is_some() {
            return Err(BadToken::UnsupportedExtension.into());
        }
        let mut key = keys.find(header.kid.as_deref(), header.alg).cloned();
        if let (Err(NoKey::Unknown), KeySource::Remote(jwks)) = (&key, &self.source) {
            keys = jwks.refetch_keys().await.unwrap_or(keys);
            key = keys.find(header.kid.as_deref(), header.alg).cloned();
        }
        let key = key.map_err(|reason| match reason {
            NoKey::Unknown => BadToken::UnknownKey,
            NoKey::Ambiguous => BadToken::AmbiguousKey,
        })?;
        let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
        let claims: Value = decode(token, &key, &validation).map_err(|error| token_error(&error))?.claims;
        // The library also accepts a list of issuers; RFC 7519, section 4.1.1, allows only one.
        match claims.get("iss").and_then(Value::as_str) {
            Some(issuer) if issuer == self.issuer => Ok((claims, keys)),
            _ => Err(BadToken::Issuer.into()),
        }
    }

    fn resolve_principal(
        &self,
        claims: &Value,
        known: &HashMap<String, Arc<Principal>>,
    ) -> Result<Arc<Principal>, AuthenticationError> {
        let name = find_claim(claims, &self.caller_claim).and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() || name.len() > MAX_NAME_LENGTH {
            return Err(BadToken::MissingCaller.into());
        }
        let mut groups = match find_claim(claims, &self.groups_claim) {
            Some(Value::String(words)) => words.split_whitespace().map(Arc::from).collect(),
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).map(Arc::from).collect(),
            _ => Vec::new(),
        };
        let caller = match known.get(name) {
            Some(principal) => {
                groups.extend(principal.groups.iter().cloned());
                principal.caller.clone()
            }
            None => CallerId::Subject(name.into()),
        };
        // The caller may be cached.
        groups.shrink_to_fit();
        Ok(Arc::new(Principal { caller, groups }))
    }
}

/// Returns a claim by its name or by a JSON Pointer.
fn find_claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) }
}

/// Estimates the memory of a cached caller. A full table has two places for each.
fn cached_size(principal: &Principal) -> usize {
    let names = principal.groups.iter().map(|group| &**group).chain(principal.caller.name());
    let texts: usize = names.map(|name| name.len() + TEXT_OVERHEAD).sum();
    size_of::<Principal>() + 2 * size_of::<(KeyHash, CachedClaims)>() + texts
}

fn token_error(error: &Error) -> BadToken {
    match error.kind() {
        ErrorKind::InvalidSignature => BadToken::Signature,
        ErrorKind::ExpiredSignature => BadToken::Expired,
        ErrorKind::ImmatureSignature => BadToken::NotYetValid,
        ErrorKind::InvalidAudience => BadToken::Audience,
        ErrorKind::InvalidIssuer => BadToken::Issuer,
        ErrorKind::InvalidAlgorithm => BadToken::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) => BadToken::MissingClaim(claim.clone()),
        _ => BadToken::Malformed,
    }
}

impl ValidTokenCache {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    fn lock_shard(&self, hash: &KeyHash) -> MutexGuard<'_, TokenShard> {
        let part = &self.0[usize::from(hash[0]) % SHARDS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, hash: &KeyHash, keys: &Arc<KeySet>, now: u64) -> Option<Arc<Principal>> {
        let part = self.lock_shard(hash);
        let claims = part.by_hash.get(hash).filter(|cached_claims| cached_claims.is_valid(keys, now))?;
        Some(Arc::clone(&claims.principal))
    }

    fn insert(&self, hash: KeyHash, who: &Arc<Principal>, until: u64, keys: &Arc<KeySet>, now: u64) {
        let more = cached_size(who);
        if more > MAX_CACHED_CALLER {
            return;
        }
        let mut part = self.lock_shard(&hash);
        if !part.has_room(more) {
            part.retain(|claims| claims.is_valid(keys, now));
        }
        if !part.has_room(more) {
            // Evicting valid tokens is harmless: they are verified again.
            part.retain(|_| false);
        }
        part.bytes += more;
        let cached_claims =
            CachedClaims { principal: Arc::clone(who), valid_until: until, keys: Arc::downgrade(keys) };
        if let Some(old) = part.by_hash.insert(hash, cached_claims) {
            part.bytes -= cached_size(&old.principal);
        }
    }
}

impl TokenShard {
    fn has_room(&self, more: usize) -> bool {
        self.by_hash.len() < MAX_CACHED / SHARDS && self.bytes + more <= MAX_CACHED_BYTES / SHARDS
    }

    fn retain(&mut self, is_kept: impl Fn(&CachedClaims) -> bool) {
        self.by_hash.retain(|_, kept| {
            let is_kept = is_kept(kept);
            if !is_kept {
                self.bytes -= cached_size(&kept.principal);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_cache_callers_of_many_groups() {
        let (good, keys) = (ValidTokenCache::new(), Arc::<KeySet>::default());
        let is_kept = |count: usize, length: usize| {
            let group: Arc<str> = "a".repeat(length).into();
            let principal = Arc::new(Principal { caller: CallerId::Anonymous, groups: vec![group; count] });
            let hash = sha256(&count.to_be_bytes());
            good.insert(hash, &principal, 10, &keys, 1);
            good.find(&hash, &keys, 1).is_some()
        };
        assert!(is_kept(128, 1) && !is_kept(2_900, 1));
        // A token of 8 KiB has room for this many groups that are named by a UUID.
        assert!(is_kept(140, 36));
    }

    #[test]
    fn bounds_the_cache_of_valid_tokens() {
        let (good, keys) = (ValidTokenCache::new(), Arc::<KeySet>::default());
        for count in [0, 128, 300, 0] {
            let groups = vec!["a".into(); count];
            let principal = Arc::new(Principal { caller: CallerId::Anonymous, groups });
            for number in 0..2 * MAX_CACHED {
                let hash = sha256(&number.to_be_bytes());
                good.insert(hash, &principal, 10, &keys, 1);
            }
            let parts: Vec<_> = good.0.iter().map(|part| part.lock().unwrap()).collect();
            let kept: usize = parts.iter().map(|part| part.by_hash.len()).sum();
            let bytes: usize = parts.iter().map(|part| part.bytes).sum();
            assert!(kept <= MAX_CACHED && bytes <= MAX_CACHED_BYTES, "{kept} tokens, {bytes} bytes");
            for part in parts {
                assert_eq!(
                    part.bytes,
                    part.by_hash.values().map(|claims| cached_size(&claims.principal)).sum::<usize>()
                );
            }
            let last = sha256(&(2 * MAX_CACHED - 1).to_be_bytes());
            assert!(good.find(&last, &keys, 1).is_some() && good.find(&last, &keys, 10).is_none());
        }
    }

    #[test]
    fn cached_tokens_do_not_keep_replaced_keys() {
        let (good, replaced) = (ValidTokenCache::new(), Arc::<KeySet>::default());
        let principal = Arc::new(Principal { caller: CallerId::Anonymous, groups: Vec::new() });
        let hash = sha256(b"a token");
        good.insert(hash, &principal, 10, &replaced, 1);
        assert!(good.find(&hash, &replaced, 1).is_some());
        let freed = Arc::downgrade(&replaced);
        drop(replaced);
        assert_eq!(freed.strong_count(), 0);
        assert!(good.find(&hash, &Arc::default(), 1).is_none());
    }

    #[test]
    fn caches_12_000_valid_tokens() {
        let (good, keys) = (ValidTokenCache::new(), Arc::<KeySet>::default());
        let groups = vec!["a-group-of-usual-length".into(); 20];
        let principal = Arc::new(Principal { caller: CallerId::Subject("a-subject".into()), groups });
        let hashes: Vec<_> = (0..12_000_u32).map(|number| sha256(&number.to_be_bytes())).collect();
        for hash in &hashes {
            good.insert(*hash, &principal, 10, &keys, 1);
        }
        assert!(hashes.iter().all(|hash| good.find(hash, &keys, 1).is_some()));
    }
}
