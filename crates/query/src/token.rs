//! Tokens: what a client sends instead of a program that the gateway knows.
//!
//! A token is sealed, so that nobody can make or read one, and holds everything that a later request is judged
//! by: no table is needed, and gateways that share `runtime.secret` take each other's. The sealing key is another one
//! every day (HMAC-SHA-256 of the day, by the secret), and a token ends before its key's second day does.
//!
//! Sealed are the mode and language (a byte), the program's SHA-256 (32), who holds it and the key that signed it (8
//! each), its end (4, seconds since 1970) and its session (8); before it stand the day (a byte) and the nonce (12),
//! behind it the tag (16).
//!
//! A client sends the same token many times. What the last ones say is remembered by their whole text, and for whom
//! they were judged, so that each is opened once; whether it has ended, and whether it is still the same one who sends
//! it, is looked at every time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use rustix::time::{ClockId, clock_gettime};

use sandbox::Key;
use services::Caller;

use crate::ask::Language;
use crate::cached::Mode;
use crate::owner::{Hash, Mark, Owner};
use crate::problem::QueryError;
use crate::random::RandomMap;

/// An instance that goes on living is the session's, and a session is a token's.
pub(crate) type Session = [u8; 8];

/// Seconds that a token lives.
const LIFE: u32 = DAY;
const DAY: u32 = 24 * 3600;
const SEALED: usize = 1 + 32 + 8 + 8 + 4 + 8;
const HEAD: usize = 1 + NONCE_LEN;
const TAG: usize = 16;
/// The bytes of a token.
const TOKEN: usize = HEAD + SEALED + TAG;
/// The length of a token in base64.
pub(crate) const TEXT: usize = TOKEN.div_ceil(3) * 4;
/// How many opened tokens are remembered.
const REMEMBERED: usize = 1024;

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) mode: Mode,
    pub(crate) language: Language,
    pub(crate) hash: Hash,
    /// Who may use it.
    pub(crate) holder: Mark,
    /// The owner, if it is the key that signed the program; zeros if the holder owns it.
    pub(crate) key: Mark,
    pub(crate) session: Session,
    /// Seconds since 1970.
    pub(crate) ends: u32,
}

/// For whom a token was found good, and under which key its program is kept for that owner.
pub(crate) struct Judged {
    pub(crate) owner: Owner,
    pub(crate) caller: Caller,
    pub(crate) key: Key,
}

/// What is remembered of tokens, by their text.
type Opened = RandomMap<Box<str>, (Token, Option<Judged>)>;

/// Seals tokens and opens them.
pub(crate) struct Sealer {
    /// By what clients tell this process from others that share its secret: it says nothing else.
    gateway: Box<str>,
    secret: hmac::Key,
    days: Mutex<Vec<(u32, LessSafeKey)>>,
    opened: Mutex<Opened>,
}

impl Sealer {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut number = [0; 4];
        // Without chance all processes have the same name, and a client sends a program once more.
        let _ = getrandom::fill(&mut number);
        let gateway = format!("g{:08x}", u32::from_be_bytes(number)).into();
        Self { gateway, secret, days: Mutex::default(), opened: Mutex::default() }
    }

    /// The name of this process among the gateways that share its secret, a token of RFC 9651.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Seals a token that lives from now on.
    pub(crate) fn seal(&self, token: Token) -> Result<Vec<u8>, QueryError> {
        self.seal_at(Token { ends: now().saturating_add(LIFE), ..token }, now())
    }

    fn seal_at(&self, token: Token, now: u32) -> Result<Vec<u8>, QueryError> {
        let failed = |_| QueryError::Gateway("a token could not be sealed".into());
        let day = now / DAY;
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|error| QueryError::Gateway(error.to_string()))?;
        let mut bytes = Vec::with_capacity(TOKEN);
        let mut sealed = token.bytes();
        let nonce_bytes = nonce;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .with(day, |key| key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed))
            .map_err(failed)?;
        bytes.push(day as u8);
        bytes.extend_from_slice(&nonce_bytes);
        bytes.extend_from_slice(&sealed);
        bytes.extend_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// Opens a token, as it stands in a header, and judges it. What `judge` notes of it is there the next time.
    ///
    /// # Errors
    /// When this gateway did not seal it, or it has ended; and those of `judge`.
    pub(crate) fn open<T>(
        &self,
        text: &str,
        now: u32,
        judge: impl FnOnce(Token, &mut Option<Judged>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if let Some((token, judged)) = self.opened().get_mut(text) {
            return judge(token.lasting(now)?, judged);
        }
        let mut bytes = [0; TOKEN];
        let length = STANDARD.decode_slice(text, &mut bytes).map_err(|_| QueryError::TokenUnknown)?;
        let token = self.open_at(&bytes[..length], now)?;
        let mut judged = None;
        let result = judge(token, &mut judged);
        let mut opened = self.opened();
        if opened.len() >= REMEMBERED {
            opened.clear();
        }
        opened.insert(text.into(), (token, judged));
        result
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_at(&self, bytes: &[u8], now: u32) -> Result<Token, QueryError> {
        let mut sealed: [u8; TOKEN] = bytes.try_into().map_err(|_| QueryError::TokenUnknown)?;
        let (head, sealed) = sealed.split_at_mut(HEAD);
        let nonce = Nonce::try_assume_unique_for_key(&head[1..]).map_err(|_| QueryError::TokenUnknown)?;
        // The day is the last one with this byte; a clock that is a little ahead elsewhere is no matter.
        let today = now / DAY + 1;
        let day = today.saturating_sub(u32::from((today as u8).wrapping_sub(head[0])));
        let open = |key: &LessSafeKey| {
            key.open_in_place(nonce, Aad::empty(), sealed).map(|bytes| Token::read(bytes))
        };
        let token = self.with(day, open).map_err(|_| QueryError::TokenUnknown)?;
        token.ok_or(QueryError::TokenUnknown)?.lasting(now)
    }

    /// Whether a token has so little time left that its holder should get another.
    pub(crate) fn is_old(token: &Token, now: u32) -> bool {
        token.ends.saturating_sub(now) < LIFE / 2
    }

    /// Uses the key of a day. The last few are kept.
    fn with<T>(&self, day: u32, use_key: impl FnOnce(&LessSafeKey) -> T) -> T {
        let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        let at = days.iter().position(|(known, _)| *known == day).unwrap_or_else(|| {
            days.truncate(2);
            days.insert(0, (day, self.key(day)));
            0
        });
        use_key(&days[at].1)
    }

    fn key(&self, day: u32) -> LessSafeKey {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(b"orfa token v1");
        context.update(&day.to_be_bytes());
        let bytes = context.sign();
        #[expect(clippy::unwrap_used, reason = "the bytes of HMAC-SHA-256 are as many as the key has")]
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, bytes.as_ref()).unwrap())
    }
}

impl Token {
    /// The same, unless it has ended.
    fn lasting(self, now: u32) -> Result<Self, QueryError> {
        if self.ends < now { Err(QueryError::TokenExpired) } else { Ok(self) }
    }

    fn bytes(&self) -> [u8; SEALED] {
        let mut bytes = [0; SEALED];
        bytes[0] = ((self.mode as u8) << 4) | self.language as u8;
        let parts: [&[u8]; 5] =
            [&self.hash, &self.holder, &self.key, &self.ends.to_be_bytes(), &self.session];
        let mut at = 1;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (hash, rest) = rest.split_first_chunk()?;
        let (holder, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (ends, rest) = rest.split_first_chunk()?;
        let (session, _) = rest.split_first_chunk()?;
        let mode = [Mode::Code, Mode::Instance].into_iter().find(|mode| *mode as u8 == kind >> 4)?;
        let languages = [Language::Wasm, Language::Javascript, Language::Typescript];
        let language = languages.into_iter().find(|language| *language as u8 == kind & 15)?;
        let ends = u32::from_be_bytes(*ends);
        Some(Self { mode, language, hash: *hash, holder: *holder, key: *key, session: *session, ends })
    }
}

/// Seconds since 1970, by the clock that is some milliseconds behind and costs next to nothing.
pub(crate) fn now() -> u32 {
    let seconds = clock_gettime(ClockId::RealtimeCoarse).tv_sec.max(0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u32 = 20_000 * DAY + DAY / 2;

    fn token() -> Token {
        Token {
            mode: Mode::Instance,
            language: Language::Typescript,
            hash: [1; 32],
            holder: [2; 8],
            key: [3; 8],
            session: [4; 8],
            ends: NOON + LIFE,
        }
    }

    #[test]
    fn what_was_sealed_is_opened_until_it_ends() {
        let sealer = Sealer::new(&[7; 32]);
        let sealed = sealer.seal_at(token(), NOON).unwrap();
        assert_eq!(sealer.open_at(&sealed, NOON).unwrap(), token());
        assert_eq!(sealer.open_at(&sealed, NOON + LIFE).unwrap(), token());
        assert!(matches!(sealer.open_at(&sealed, NOON + LIFE + 1), Err(QueryError::TokenExpired)));
        assert!(matches!(sealer.open_at(&sealed, NOON + 90 * DAY), Err(QueryError::TokenExpired)));
        let (ahead, behind) = (sealer.seal_at(token(), NOON + DAY).unwrap(), NOON);
        assert_eq!(sealer.open_at(&ahead, behind).unwrap(), token(), "another gateway's clock is ahead");
    }

    #[test]
    fn what_is_remembered_ends_as_it_would_and_is_no_other() {
        let sealer = Sealer::new(&[7; 32]);
        let open = |text: &str, now| sealer.open(text, now, |token, _| Ok(token));
        let text = STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
        for _ in 0..2 {
            assert_eq!(open(&text, NOON).unwrap(), token());
        }
        assert!(matches!(open(&text, NOON + LIFE + 1), Err(QueryError::TokenExpired)));
        for other in [&text[1..], &text[..text.len() - 1], &text.to_lowercase(), &format!("{text}AAAA"), ""] {
            assert!(matches!(open(other, NOON), Err(QueryError::TokenUnknown)), "{other}");
        }
        for _ in 0..2 * REMEMBERED {
            let another = STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
            assert_eq!(open(&another, NOON).unwrap(), token());
            assert!(sealer.opened().len() <= REMEMBERED);
        }
    }

    #[test]
    fn what_was_noted_of_a_token_is_there_the_next_time() {
        let sealer = Sealer::new(&[7; 32]);
        let text = || STANDARD.encode(sealer.seal_at(token(), NOON).unwrap());
        let (text, other) = (text(), text());
        let mark = |text: &str, key| {
            let judge = |_, judged: &mut Option<Judged>| {
                let (owner, caller) = (Owner::Caller(Caller::Anonymous), Caller::Anonymous);
                Ok(judged.replace(Judged { owner, caller, key }).map(|before| before.key))
            };
            sealer.open(text, NOON, judge).unwrap()
        };
        assert_eq!((mark(&text, [1; 32]), mark(&other, [2; 32])), (None, None));
        assert_eq!((mark(&text, [3; 32]), mark(&other, [4; 32])), (Some([1; 32]), Some([2; 32])));
    }

    #[test]
    fn nobody_else_makes_one() {
        let sealer = Sealer::new(&[7; 32]);
        let sealed = sealer.seal_at(token(), NOON).unwrap();
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert!(matches!(sealer.open_at(&forged, NOON), Err(QueryError::TokenUnknown)), "byte {at}");
        }
        for len in 0..sealed.len() {
            assert!(matches!(sealer.open_at(&sealed[..len], NOON), Err(QueryError::TokenUnknown)));
        }
        let other = Sealer::new(&[8; 32]);
        assert!(matches!(other.open_at(&sealed, NOON), Err(QueryError::TokenUnknown)));
    }
}
