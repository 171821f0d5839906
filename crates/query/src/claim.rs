//! Whose program a request wants to run, and by what right: from what it sends, a token, a hash or a
//! signature to one key of the cache.

use std::sync::Arc;

use sandbox::{Key, Name};
use services::Call;
use sha2::{Digest, Sha256};

use crate::ask::{Language, Which};
use crate::cached::{CacheAsk, Mode, Named};
use crate::config::Programs;
use crate::owner::{Hash, Mark, Owner, holder};
use crate::problem::QueryError;
use crate::token::{Sealer, Session, Token};
use crate::trust::{Trusted, TrustedKey};

/// Which program, and by what right.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    pub(crate) language: Language,
    pub(crate) hash: Hash,
    /// Where its code is kept.
    pub(crate) key: Key,
    /// The key that signed it.
    pub(crate) trusted: Option<Arc<TrustedKey>>,
    /// How it is to be kept, as far as the client asks for it and operator and key allow it.
    pub(crate) mode: Option<Mode>,
    /// Whose instance goes on living, in that mode.
    pub(crate) session: Session,
    holder: Mark,
    token: Option<Token>,
}

/// A token, and the key that signed its program.
type Opened = (Token, Option<Arc<TrustedKey>>);

/// What claims are judged by.
pub(crate) struct Judge<'a> {
    pub(crate) trusted: &'a Trusted,
    pub(crate) sealer: &'a Sealer,
    pub(crate) programs: Programs,
    pub(crate) modes: &'a [Mode],
}

impl Judge<'_> {
    /// Judges a request.
    ///
    /// # Errors
    /// Tokens and signatures that do not count, and programs that the route doesn't take.
    pub(crate) fn claim(&self, which: &Which, call: &Call) -> Result<Claim, QueryError> {
        if self.programs == Programs::Stored {
            return Err(QueryError::NotStored);
        }
        let token = self.token(which, call)?;
        let hash = match (&which.program, &token, &which.cache) {
            (Some(program), ..) => Sha256::digest(program).into(),
            (None, Some((token, _)), _) => token.hash,
            (None, None, Some(CacheAsk { named: Some(Named::Hash(hash)), .. })) => *hash,
            _ => return Err(QueryError::NoProgram),
        };
        let signature = which.trust.as_ref();
        let signed = signature.map(|signature| self.trusted.verify(signature, which.language, &hash));
        let trusted = match (signed.transpose()?, &token) {
            (Some(key), _) => Some(Arc::clone(key)),
            (None, Some((_, key))) => key.clone(),
            (None, None) => None,
        };
        if trusted.is_none() && self.programs == Programs::Signed {
            return Err(QueryError::Unsigned);
        }
        let owner = trusted.as_ref().map_or_else(|| Owner::of(call), |key| Owner::Key(Arc::clone(&key.name)));
        let mode = which.cache.as_ref().and_then(|cache| self.mode(cache.mode, trusted.as_deref()));
        let token = token.map(|(token, _)| token).filter(|token| Some(token.mode) == mode);
        Ok(Claim {
            key: owner.key(which.language, &hash),
            holder: holder(call, &owner),
            session: session(mode, token.as_ref())?,
            language: which.language,
            owner,
            hash,
            trusted,
            mode,
            token,
        })
    }

    /// The token of a request that sends no program, opened and judged, with the key that signed its program.
    fn token(&self, which: &Which, call: &Call) -> Result<Option<Opened>, QueryError> {
        let Some(CacheAsk { named: Some(Named::Token(bytes)), .. }) = &which.cache else { return Ok(None) };
        if which.program.is_some() {
            return Ok(None);
        }
        let token = self.sealer.open(bytes)?;
        if token.language != which.language {
            return Err(QueryError::TokenUnknown);
        }
        let key = match token.key {
            [0, 0, 0, 0, 0, 0, 0, 0] => None,
            mark => Some(Arc::clone(self.trusted.by_mark(mark).ok_or(QueryError::TokenRevoked)?)),
        };
        let owner = key.as_ref().map_or_else(|| Owner::of(call), |key| Owner::Key(Arc::clone(&key.name)));
        if token.holder != holder(call, &owner) {
            return Err(QueryError::TokenCaller);
        }
        Ok(Some((token, key)))
    }

    /// The mode that is asked for, or the next one that is open.
    fn mode(&self, asked: Mode, key: Option<&TrustedKey>) -> Option<Mode> {
        let open = |mode: &Mode| {
            let by_key = key.and_then(|key| key.config.modes.as_ref());
            self.modes.contains(mode) && by_key.is_none_or(|modes| modes.contains(mode))
        };
        [Mode::Instance, Mode::Code].into_iter().find(|mode| *mode <= asked && open(mode))
    }
}

/// The session whose instance may be used: the token's, or a new one.
fn session(mode: Option<Mode>, token: Option<&Token>) -> Result<Session, QueryError> {
    let mut session = token.map(|token| token.session).unwrap_or_default();
    if mode == Some(Mode::Instance) && token.is_none() {
        getrandom::fill(&mut session).map_err(|error| QueryError::Gateway(error.to_string()))?;
    }
    Ok(session)
}

impl Claim {
    /// Under what its code is kept on the disk.
    pub(crate) fn name(&self) -> Name {
        Name { owner: self.owner.id(), key: self.key }
    }

    /// The client as a number, for its share of the instances that go on living.
    pub(crate) fn holder_id(&self) -> sandbox::OwnerId {
        u64::from_be_bytes(self.holder)
    }

    /// The token that the client needs from now on: `None` where the one that it has will do.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn token(&self, sealer: &Sealer) -> Result<Option<Vec<u8>>, QueryError> {
        let Some(mode) = self.mode else { return Ok(None) };
        if self.token.as_ref().is_some_and(|token| !Sealer::is_old(token)) {
            return Ok(None);
        }
        let key = self.trusted.as_ref().map(|key| key.mark()).unwrap_or_default();
        let (language, hash, holder, session) = (self.language, self.hash, self.holder, self.session);
        sealer.seal(Token { mode, language, hash, holder, key, session, ends: 0 }).map(Some)
    }
}
