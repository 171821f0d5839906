//! Program tokens: sent by clients instead of a program that the gateway has cached.
//!
//! Tokens are sealed, so that only gateways with the secret can create or read them. They contain everything
//! needed to authorise a later request: there is no table, and gateways that share `runtime.secret` accept
//! each other's tokens. The sealing key changes daily (HMAC-SHA-256 of the day, keyed by the secret), and a
//! token expires before its key's second day ends.
//!
//! The sealed part consists of the mode and language (one byte), the program's SHA-256 (32), the holder and
//! the signing key (8 each), the expiry time (4, seconds since 1970) and the session (8). The day (one byte)
//! and the nonce (12) precede it, and the tag (16) follows it.
//!
//! A client sends the same token many times. The most recent tokens are cached by their text, together with
//! the caller that they were verified for, so that each is opened once. Expiry and caller are still checked
//! on every request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use rustix::time::{ClockId, clock_gettime};

use sandbox::CacheKey;
use services::CallerId;

use super::owner::{OwnerPrefix, ProgramOwner};
use super::random_map::RandomMap;
use super::source::{ProgramHash, ProgramLanguage};
use crate::config::CacheMode;
use crate::problem::QueryError;

/// The identifier of a session. Each token has one session, and a warm instance belongs to one session.
pub(crate) type SessionId = [u8; 8];

/// The lifetime of a token in seconds.
const TOKEN_LIFETIME: u32 = DAY_SECONDS;
const DAY_SECONDS: u32 = 24 * 3600;
const SEALED_BYTES: usize = 1 + 32 + 8 + 8 + 4 + 8;
const HEAD_BYTES: usize = 1 + NONCE_LEN;
const TAG_BYTES: usize = 16;
/// The size of a token in bytes.
const TOKEN_BYTES: usize = HEAD_BYTES + SEALED_BYTES + TAG_BYTES;
/// The length of a token in base64.
pub(crate) const TOKEN_TEXT_LENGTH: usize = TOKEN_BYTES.div_ceil(3) * 4;
/// The maximum number of opened tokens in the cache.
const MAX_CACHED_TOKENS: usize = 1024;

/// The contents of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenContents {
    pub(crate) mode: CacheMode,
    pub(crate) language: ProgramLanguage,
    pub(crate) hash: ProgramHash,
    /// The client that may use the token.
    pub(crate) holder: OwnerPrefix,
    /// The key that signed the program and therefore owns it; zeros if the holder owns the program.
    pub(crate) key: OwnerPrefix,
    pub(crate) session: SessionId,
    /// The expiry time, in seconds since 1970.
    pub(crate) expires_at: u32,
}

/// The owner and caller that a token was verified for, with the owner's cache key for the program.
pub(crate) struct TokenIdentity {
    pub(crate) owner: ProgramOwner,
    pub(crate) caller: CallerId,
    pub(crate) key: CacheKey,
}

/// Opened tokens, by their text.
type VerifiedTokenCache = RandomMap<Box<str>, (TokenContents, Option<TokenIdentity>)>;

/// Seals and opens tokens.
pub(crate) struct TokenSealer {
    /// A random name that distinguishes this process from others that share its secret.
    gateway: Box<str>,
    secret: hmac::Key,
    day_keys: Mutex<Vec<(u32, LessSafeKey)>>,
    token_cache: Mutex<VerifiedTokenCache>,
}

impl TokenSealer {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut number = [0; 4];
        // Without random bytes all processes have the same name, and clients send a program once more than
        // necessary.
        let _ = getrandom::fill(&mut number);
        let gateway = format!("g{:08x}", u32::from_be_bytes(number)).into();
        Self { gateway, secret, day_keys: Mutex::default(), token_cache: Mutex::default() }
    }

    /// Returns the name of this process among the gateways that share its secret, a token of RFC 9651.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Seals a token whose lifetime starts now.
    pub(crate) fn seal(&self, token: TokenContents) -> Result<Vec<u8>, QueryError> {
        self.seal_at(
            TokenContents { expires_at: now_seconds().saturating_add(TOKEN_LIFETIME), ..token },
            now_seconds(),
        )
    }

    fn seal_at(&self, token: TokenContents, now: u32) -> Result<Vec<u8>, QueryError> {
        let failed = |_| QueryError::Gateway("a token could not be sealed".into());
        let day = now / DAY_SECONDS;
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| QueryError::Gateway(error.to_string()))?;
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        let mut sealed = token.to_bytes();
        let nonce_bytes = nonce;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .with_day_key(day, |key| key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed))
            .map_err(failed)?;
        bytes.push(day as u8);
        bytes.extend_from_slice(&nonce_bytes);
        bytes.extend_from_slice(&sealed);
        bytes.extend_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// Opens a token in its header form and passes it to `judge`. A value that `judge` stores is passed to it
    /// again when the same token is opened next.
    ///
    /// # Errors
    /// If this gateway did not seal it, or it has expired, and the errors of `judge`.
    pub(crate) fn open<T>(
        &self,
        text: &str,
        now: u32,
        judge: impl FnOnce(TokenContents, &mut Option<TokenIdentity>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if let Some((token, judged)) = self.lock_cache().get_mut(text) {
            return judge(token.check_expiry(now)?, judged);
        }
        let mut bytes = [0; TOKEN_BYTES];
        let length = STANDARD.decode_slice(text, &mut bytes).map_err(|_| QueryError::TokenUnknown)?;
        let token = self.open_at(&bytes[..length], now)?;
        let mut identity = None;
        let result = judge(token, &mut identity);
        let mut opened = self.lock_cache();
        if opened.len() >= MAX_CACHED_TOKENS {
            opened.clear();
        }
        opened.insert(text.into(), (token, identity));
        result
    }

    fn lock_cache(&self) -> MutexGuard<'_, VerifiedTokenCache> {
        self.token_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_at(&self, bytes: &[u8], now: u32) -> Result<TokenContents, QueryError> {
        let mut sealed: [u8; TOKEN_BYTES] = bytes.try_into().map_err(|_| QueryError::TokenUnknown)?;
        let (head, sealed) = sealed.split_at_mut(HEAD_BYTES);
        let nonce = Nonce::try_assume_unique_for_key(&head[1..]).map_err(|_| QueryError::TokenUnknown)?;
        // The latest day with this low byte, up to tomorrow, since another gateway's clock may be ahead.
        let today = now / DAY_SECONDS + 1;
        let day = today.saturating_sub(u32::from((today as u8).wrapping_sub(head[0])));
        let open = |key: &LessSafeKey| {
            key.open_in_place(nonce, Aad::empty(), sealed).map(|bytes| TokenContents::from_bytes(bytes))
        };
        let token = self.with_day_key(day, open).map_err(|_| QueryError::TokenUnknown)?;
        token.ok_or(QueryError::TokenUnknown)?.check_expiry(now)
    }

    /// Whether a token has less than half of its lifetime left, so that its holder should get a new one.
    pub(crate) fn needs_renewal(token: &TokenContents, now: u32) -> bool {
        token.expires_at.saturating_sub(now) < TOKEN_LIFETIME / 2
    }

    /// Uses the key of a day. The keys of the last few days are cached.
    fn with_day_key<T>(&self, day: u32, use_key: impl FnOnce(&LessSafeKey) -> T) -> T {
        let mut days = self.day_keys.lock().unwrap_or_else(PoisonError::into_inner);
        let at = days.iter().position(|(known, _)| *known == day).unwrap_or_else(|| {
            days.truncate(2);
            days.insert(0, (day, self.derive_day_key(day)));
            0
        });
        use_key(&days[at].1)
    }

    fn derive_day_key(&self, day: u32) -> LessSafeKey {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(b"orfa token v1");
        context.update(&day.to_be_bytes());
        let bytes = context.sign();
        #[expect(clippy::unwrap_used, reason = "the bytes of HMAC-SHA-256 are as many as the key has")]
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, bytes.as_ref()).unwrap())
    }
}

impl TokenContents {
    /// Returns the token unless it has expired.
    fn check_expiry(self, now: u32) -> Result<Self, QueryError> {
        if self.expires_at < now { Err(QueryError::TokenExpired) } else { Ok(self) }
    }

    fn to_bytes(self) -> [u8; SEALED_BYTES] {
        let mut bytes = [0; SEALED_BYTES];
        bytes[0] = ((self.mode as u8) << 4) | self.language as u8;
        let parts: [&[u8]; 5] =
            [&self.hash, &self.holder, &self.key, &self.expires_at.to_be_bytes(), &self.session];
        let mut at = 1;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (hash, rest) = rest.split_first_chunk()?;
        let (holder, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (ends, rest) = rest.split_first_chunk()?;
        let (session, _) = rest.split_first_chunk()?;
        let mode =
            [CacheMode::Code, CacheMode::Instance].into_iter().find(|mode| *mode as u8 == kind >> 4)?;
        let languages = [ProgramLanguage::Wasm, ProgramLanguage::Javascript, ProgramLanguage::Typescript];
        let language = languages.into_iter().find(|language| *language as u8 == kind & 15)?;
        let ends = u32::from_be_bytes(*ends);
        Some(Self {
            mode,
            language,
            hash: *hash,
            holder: *holder,
            key: *key,
            session: *session,
            expires_at: ends,
        })
    }
}

/// Returns seconds since 1970, from the coarse clock: some milliseconds late, but nearly free.
pub(crate) fn now_seconds() -> u32 {
    let seconds = clock_gettime(ClockId::RealtimeCoarse).tv_sec.max(0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u32 = 20_000 * DAY_SECONDS + DAY_SECONDS / 2;

    fn token() -> TokenContents {
        TokenContents {
            mode: CacheMode::Instance,
            language: ProgramLanguage::Typescript,
            hash: [1; 32],
            holder: [2; 8],
            key: [3; 8],
            session: [4; 8],
            expires_at: NOON + TOKEN_LIFETIME,
        }
    }

    #[test]
    fn opens_sealed_tokens_until_they_expire() {
        let sealer = TokenSealer::new(&[7; 32]);
        let sealed = sealer.seal_at(token(), NOON).unwrap();
        assert_eq!(sealer.open_at(&sealed, NOON).unwrap(), token());
        assert_eq!(sealer.open_at(&sealed, NOON + TOKEN_LIFETIME).unwrap(), token());
        assert!(matches!(sealer.open_at(&sealed, NOON + TOKEN_LIFETIME + 1), Err(QueryError::TokenExpired)));
        assert!(matches!(sealer.open_at(&sealed, NOON + 90 * DAY_SECONDS), Err(QueryError::TokenExpired)));
        let (ahead, behind) = (sealer.seal_at(token(), NOON + DAY_SECONDS).unwrap(), NOON);
        assert_eq!(sealer.open_at(&ahead, behind).unwrap(), token(), "another gateway's clock is ahead");
    }

    #[test]
    fn cached_tokens_expire_and_match_exactly() {
        let sealer = TokenSealer::new(&[7; 32]);
        let open = |text: &str, now| sealer.open(text, now, |token, _| Ok(token));
        let text = STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
        for _ in 0..2 {
            assert_eq!(open(&text, NOON).unwrap(), token());
        }
        assert!(matches!(open(&text, NOON + TOKEN_LIFETIME + 1), Err(QueryError::TokenExpired)));
        for other in [&text[1..], &text[..text.len() - 1], &text.to_lowercase(), &format!("{text}AAAA"), ""] {
            assert!(matches!(open(other, NOON), Err(QueryError::TokenUnknown)), "{other}");
        }
        for _ in 0..2 * MAX_CACHED_TOKENS {
            let another = STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
            assert_eq!(open(&another, NOON).unwrap(), token());
            assert!(sealer.lock_cache().len() <= MAX_CACHED_TOKENS);
        }
    }

    #[test]
    fn keeps_the_verification_of_a_cached_token() {
        let sealer = TokenSealer::new(&[7; 32]);
        let text = || STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
        let (text, other) = (text(), text());
        let mark = |text: &str, key| {
            let judge = |_, identity: &mut Option<TokenIdentity>| {
                let (owner, caller) = (ProgramOwner::Caller(CallerId::Anonymous), CallerId::Anonymous);
                Ok(identity.replace(TokenIdentity { owner, caller, key }).map(|before| before.key))
            };
            sealer.open(text, NOON, judge).unwrap()
        };
        assert_eq!((mark(&text, [1; 32]), mark(&other, [2; 32])), (None, None));
        assert_eq!((mark(&text, [3; 32]), mark(&other, [4; 32])), (Some([1; 32]), Some([2; 32])));
    }

    #[test]
    fn rejects_forged_tokens() {
        let sealer = TokenSealer::new(&[7; 32]);
        let sealed = sealer.seal_at(token(), NOON).unwrap();
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert!(matches!(sealer.open_at(&forged, NOON), Err(QueryError::TokenUnknown)), "byte {at}");
        }
        for len in 0..sealed.len() {
            assert!(matches!(sealer.open_at(&sealed[..len], NOON), Err(QueryError::TokenUnknown)));
        }
        let other = TokenSealer::new(&[8; 32]);
        assert!(matches!(other.open_at(&sealed, NOON), Err(QueryError::TokenUnknown)));
    }
}
