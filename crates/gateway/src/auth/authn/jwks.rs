//! An issuer's public keys (JSON Web Key Set, RFC 7517), fetched and refreshed in the background.
//!
//! A key set is fetched again after `Cache-Control: max-age`, clamped to fixed bounds, or earlier if a token
//! names a key that is not in the set, since issuers rotate keys. Anybody can send such a name, so this
//! happens at most once per [`COOLDOWN`]. While the issuer is unreachable, the keys that were fetched remain
//! valid; if none were ever fetched, every token is refused.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use offload::polls::{PollSite, watch_polls};
use serde::Deserialize as _;
use serde_json::Value;
use services::{FetchError, GatewayClient};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// The timeout of a fetch, and the longest time a request waits for one.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const KEY_WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest response that is accepted, in bytes.
const MAX_RESPONSE_BYTES: u64 = 256 << 10;
/// The minimum time between a fetch and the next one that an unknown key triggers.
pub(super) const COOLDOWN: Duration = Duration::from_secs(30);
/// The lifetime of a key set if the issuer sends no `max-age`, and the bounds for `max-age`.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(600);
const MAX_AGE_BOUNDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(86400));
/// The first delay after a failed fetch, which doubles each time, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The keys that tokens may be signed with.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<VerificationKey>);

/// A key and the algorithms that it may be used with.
#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The reason a set has no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// No key has the ID in the token, or it is not for the token's algorithm.
    Unknown,
    /// The token has no key ID, and more than one key would fit.
    Ambiguous,
}

/// The location of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JwksLocation {
    /// At this URL.
    Url(String),
    /// At the URL that this issuer publishes.
    Issuer(String),
}

/// The keys of an issuer, fetched from it.
#[derive(Debug)]
pub(crate) struct JwksSource {
    location: JwksLocation,
    algorithms: Vec<Algorithm>,
    fetch: GatewayClient,
    keys: ArcSwapOption<KeySet>,
    /// The number of fetches that have finished, and the start of the last one.
    fetches: watch::Sender<(u64, Option<Instant>)>,
    fetch_requested: Notify,
    is_started: AtomicBool,
}

/// The reason a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchFailed {
    #[error("{0} can't be fetched: {1}")]
    Fetch(String, FetchError),
    #[error("{0} answers {1}")]
    Status(String, StatusCode),
    #[error("{0} is {1}")]
    Invalid(String, &'static str),
}

impl KeySet {
    /// Parses a key set. Ignores keys of unknown types, as RFC 7517, section 5, requires, and symmetric keys,
    /// which must not be in a public set.
    pub(crate) fn parse(text: &[u8], algorithms: &[Algorithm]) -> Result<Self, &'static str> {
        let value: Value = serde_json::from_slice(text).map_err(|_| "not JSON")?;
        let keys = value.get("keys").and_then(Value::as_array).ok_or("not a JSON Web Key Set")?;
        let keys = keys.iter().filter_map(|key| Jwk::deserialize(key).ok());
        let keys: Vec<VerificationKey> =
            keys.filter_map(|key| VerificationKey::new(&key, algorithms)).collect();
        if keys.is_empty() {
            Err("a set without a key for the algorithms of the config")
        } else {
            Ok(Self(keys))
        }
    }

    /// Returns a set with a single key, the given secret.
    pub(super) fn from_secret(secret: &str, algorithms: &[Algorithm]) -> Self {
        let key = DecodingKey::from_secret(secret.as_bytes());
        Self(vec![VerificationKey { id: None, algorithms: algorithms.to_vec(), key }])
    }

    /// Returns the key for a token with this key ID and algorithm. A shared secret has no ID.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&DecodingKey, NoKey> {
        let mut fitting = self.0.iter().filter(|key| {
            let is_it = id.is_none() || key.id.is_none() || key.id.as_deref() == id;
            is_it && key.algorithms.contains(&algorithm)
        });
        match (fitting.next(), id) {
            (Some(_), None) if fitting.next().is_some() => Err(NoKey::Ambiguous),
            (Some(key), _) => Ok(&key.key),
            (None, _) => Err(NoKey::Unknown),
        }
    }
}

impl VerificationKey {
    fn new(key: &Jwk, allowed: &[Algorithm]) -> Option<Self> {
        if !matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        if key.common.key_operations.as_ref().is_some_and(|uses| !uses.contains(&KeyOperations::Verify)) {
            return None;
        }
        let mut algorithms = algorithms_for_key(&key.algorithm);
        if let Some(named) = key.common.key_algorithm {
            let named = Algorithm::try_from(named).ok()?;
            algorithms.retain(|algorithm| *algorithm == named);
        }
        algorithms.retain(|algorithm| allowed.contains(algorithm));
        let id = key.common.key_id.clone();
        let key = DecodingKey::from_jwk(key).ok().filter(|_| !algorithms.is_empty())?;
        Some(Self { id, algorithms, key })
    }
}

/// The algorithms that a type of key supports.
fn algorithms_for_key(kind: &AlgorithmParameters) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match kind {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => vec![ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => vec![ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => vec![EdDSA],
        _ => Vec::new(),
    }
}

impl JwksSource {
    /// Creates the key source. The first fetch starts at once inside a Tokio runtime, otherwise with the
    /// first token.
    pub(super) fn new(
        jwks_location: JwksLocation,
        algorithms: Vec<Algorithm>,
        fetch: GatewayClient,
    ) -> Arc<Self> {
        let jwks = Arc::new(Self {
            location: jwks_location,
            algorithms,
            fetch,
            keys: ArcSwapOption::empty(),
            fetches: watch::Sender::new((0, None)),
            fetch_requested: Notify::new(),
            is_started: AtomicBool::new(false),
        });
        jwks.start();
        jwks
    }

    /// Starts the background fetching inside a runtime, unless it has started already.
    fn start(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.is_started.swap(true, Relaxed)
        {
            runtime.spawn(watch_polls(PollSite::Upstream, refresh_loop(Arc::downgrade(self))));
        }
    }

    /// Whether another config uses the same location and algorithms.
    pub(super) fn is_same_source(&self, location: &JwksLocation, algorithms: &[Algorithm]) -> bool {
        (&self.location, &*self.algorithms) == (location, algorithms)
    }

    /// Returns the keys, and waits for the first fetch if there are none yet. `None` if that failed.
    pub(super) async fn keys(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let keys = self.keys.load_full();
        if keys.is_some() || self.fetches.borrow().0 > 0 {
            return keys;
        }
        self.start();
        self.wait_for_fetch(0).await;
        self.keys.load_full()
    }

    /// Fetches the keys again because one is missing. Returns the current ones if the last fetch was recent.
    pub(super) async fn refetch_keys(&self) -> Option<Arc<KeySet>> {
        if self.is_cooldown_over() {
            let count = self.fetches.borrow().0;
            self.fetch_requested.notify_one();
            self.wait_for_fetch(count).await;
        }
        self.keys.load_full()
    }

    /// Whether the last fetch is old enough for an unknown key to trigger another.
    fn is_cooldown_over(&self) -> bool {
        self.fetches.borrow().1.is_none_or(|began| began.elapsed() >= COOLDOWN)
    }

    /// Waits until more than `count` fetches have finished, at most for [`KEY_WAIT_TIMEOUT`].
    async fn wait_for_fetch(&self, count: u64) {
        let mut fetches = self.fetches.subscribe();
        let _ = timeout(KEY_WAIT_TIMEOUT, fetches.wait_for(|(done, _)| *done > count)).await;
    }

    /// Fetches once. Returns the delay until the next fetch.
    async fn refresh(&self, failures: u32) -> Result<Duration, Duration> {
        let began = Instant::now();
        let answer = self.fetch_keys().await;
        let wait = match answer {
            Ok((keys, wait)) => {
                self.keys.store(Some(Arc::new(keys)));
                Ok(wait)
            }
            Err(error) => {
                let kept = self.keys.load().is_some();
                tracing::warn!(%error, kept, "the keys for tokens were not fetched");
                Err((RETRY_DELAYS.0 * 2_u32.saturating_pow(failures.min(10))).min(RETRY_DELAYS.1))
            }
        };
        self.fetches.send_modify(|(count, last)| (*count, *last) = (*count + 1, Some(began)));
        wait
    }

    async fn fetch_keys(&self) -> Result<(KeySet, Duration), FetchFailed> {
        let url = match &self.location {
            JwksLocation::Url(url) => url.clone(),
            JwksLocation::Issuer(issuer) => self.discover(issuer.trim_end_matches('/')).await?,
        };
        let answer = self.get(&url).await?;
        let wait =
            max_age(&answer).map_or(DEFAULT_MAX_AGE, |age| age.clamp(MAX_AGE_BOUNDS.0, MAX_AGE_BOUNDS.1));
        let keys = KeySet::parse(answer.body(), &self.algorithms);
        Ok((keys.map_err(|reason| FetchFailed::Invalid(url, reason))?, wait))
    }

    /// Returns the URL of the issuer's keys (OpenID Connect Discovery 1.0, section 4). Ignores a document
    /// that is missing or names another issuer.
    async fn discover(&self, issuer: &str) -> Result<String, FetchFailed> {
        let fallback = format!("{issuer}/.well-known/jwks.json");
        let answer = match self.get(&format!("{issuer}/.well-known/openid-configuration")).await {
            Ok(answer) => answer,
            Err(FetchFailed::Status(..)) => return Ok(fallback),
            Err(error) => return Err(error),
        };
        let document: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        let is_safe = |url: &str| url.starts_with("https://") || !issuer.starts_with("https://");
        let is_ours = text("issuer").is_some_and(|named| named.trim_end_matches('/') == issuer);
        Ok(text("jwks_uri").filter(|url| is_ours && is_safe(url)).map_or(fallback, str::to_owned))
    }

    async fn get(&self, url: &str) -> Result<Response<Bytes>, FetchFailed> {
        let nonsense = |_| FetchFailed::Invalid(url.to_owned(), "not a valid URL");
        let request = Request::get(url).header(header::ACCEPT, "application/json");
        let request = request.body(Bytes::new()).map_err(nonsense)?;
        let answer = self.fetch.send(request, FETCH_TIMEOUT, MAX_RESPONSE_BYTES).await;
        let answer = answer.map_err(|error| FetchFailed::Fetch(url.to_owned(), error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(FetchFailed::Status(url.to_owned(), status)),
        }
    }
}

/// Fetches repeatedly for as long as the keys are in use.
async fn refresh_loop(jwks: Weak<JwksSource>) {
    let mut failures = 0;
    while let Some(keys) = jwks.upgrade() {
        let wait = keys.refresh(failures).await;
        failures = if wait.is_ok() { 0 } else { failures + 1 };
        let end = Instant::now() + wait.unwrap_or_else(|wait| wait);
        drop(keys);
        // Waits in steps, so that the task ends soon after the keys are dropped.
        while Instant::now() < end {
            let Some(keys) = jwks.upgrade() else { return };
            let step = RETRY_DELAYS.1.min(end.saturating_duration_since(Instant::now()));
            if timeout(step, keys.fetch_requested.notified()).await.is_ok() && keys.is_cooldown_over() {
                break;
            }
        }
    }
}

fn max_age(answer: &Response<Bytes>) -> Option<Duration> {
    let values =
        answer.headers().get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(',')).map(str::trim);
    let seconds = directives.find_map(|directive| directive.strip_prefix("max-age="));
    seconds?.parse().ok().map(Duration::from_secs)
}
