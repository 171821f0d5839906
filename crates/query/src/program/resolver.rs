//! Resolves the program of a request and authorises its use: maps the sent bytes, a token, a hash or a
//! signature to a key of the program cache.

use std::sync::Arc;

use sandbox::{CacheKey, DiskEntryName};
use services::RequestCall;
use sha2::{Digest, Sha256};

use super::blocked::BlockedPrograms;
use super::owner::{OwnerPrefix, ProgramOwner, token_holder};
use super::source::{CacheRequest, CachedProgramReference, ProgramHash, ProgramLanguage, ProgramSource};
use super::token::{SessionId, TokenContents, TokenIdentity, TokenSealer, now_seconds};
use super::trust::{SigningKeys, TrustedKey};
use crate::config::{AllowedPrograms, CacheMode};
use crate::problem::QueryError;

/// A resolved program, with the client's rights to run it.
#[derive(Debug)]
pub(crate) struct ResolvedProgram {
    pub(crate) owner: ProgramOwner,
    pub(crate) language: ProgramLanguage,
    pub(crate) hash: ProgramHash,
    /// The program's key in the cache.
    pub(crate) key: CacheKey,
    /// The key that signed the program.
    pub(crate) signer: Option<Arc<TrustedKey>>,
    /// Whether the request contains the program.
    pub(crate) is_program_sent: bool,
    /// The cache mode: the requested one, reduced to those that the operator and the signing key allow.
    pub(crate) mode: Option<CacheMode>,
    /// The session of the warm instance, in the mode *instance*.
    pub(crate) session: SessionId,
    holder: OwnerPrefix,
    /// Whether the client needs a new token.
    needs_token: bool,
}

/// An opened and verified token.
struct VerifiedToken {
    token: TokenContents,
    /// The key that signed the token's program.
    signer: Option<Arc<TrustedKey>>,
    owner: ProgramOwner,
    /// The key of the program's code in the cache.
    key: CacheKey,
}

/// The resolver of programs, with the config that applies to a route.
pub(crate) struct ProgramResolver<'a> {
    pub(crate) blocked: &'a BlockedPrograms,
    pub(crate) trusted: &'a SigningKeys,
    pub(crate) sealer: &'a TokenSealer,
    pub(crate) programs: AllowedPrograms,
    pub(crate) modes: &'a [CacheMode],
}

impl ProgramResolver<'_> {
    /// Resolves the program of a request.
    ///
    /// # Errors
    /// Invalid tokens and signatures, and programs that the route does not run.
    pub(crate) fn resolve(
        &self,
        source: &ProgramSource,
        call: &RequestCall,
    ) -> Result<ResolvedProgram, QueryError> {
        if self.programs == AllowedPrograms::Stored {
            return Err(QueryError::NotStored);
        }
        let now = now_seconds();
        let verified_token = self.open_token(source, call, now)?;
        let hash = match (&source.program, &verified_token, &source.cache) {
            (Some(program), ..) => Sha256::digest(program).into(),
            (None, Some(opened), _) => opened.token.hash,
            (
                None,
                None,
                Some(CacheRequest { program_reference: Some(CachedProgramReference::Hash(hash)), .. }),
            ) => *hash,
            _ => return Err(QueryError::NoProgram),
        };
        self.blocked.check_not_blocked(&hash)?;
        let signature = source.signature.as_ref();
        let signed = signature.map(|signature| self.trusted.verify(signature, source.language, &hash));
        let signed = signed.transpose()?.map(Arc::clone);
        let (token, trusted, judged) = match verified_token {
            Some(VerifiedToken { token, signer, owner, key }) if signed.is_none() => {
                (Some(token), signer, Some((owner, token.holder, key)))
            }
            opened => (opened.map(|opened| opened.token), signed, None),
        };
        if trusted.is_none() && self.programs == AllowedPrograms::Signed {
            return Err(QueryError::Unsigned);
        }
        let (owner, holder, key) = judged.unwrap_or_else(|| {
            let owner = program_owner(trusted.as_ref(), call);
            let (holder, key) = (token_holder(call, &owner), owner.cache_key(source.language, &hash));
            (owner, holder, key)
        });
        let mode = source.cache.as_ref().and_then(|cache| self.allowed_mode(cache.mode, trusted.as_deref()));
        let token = token.filter(|token| Some(token.mode) == mode);
        Ok(ResolvedProgram {
            key,
            holder,
            session: token_session(mode, token.as_ref())?,
            needs_token: token.is_none_or(|token| TokenSealer::needs_renewal(&token, now)),
            is_program_sent: source.program.is_some(),
            language: source.language,
            owner,
            hash,
            signer: trusted,
            mode,
        })
    }

    /// Opens and verifies the token of a request without a program. Includes the key that signed the token's
    /// program.
    fn open_token(
        &self,
        source: &ProgramSource,
        call: &RequestCall,
        now: u32,
    ) -> Result<Option<VerifiedToken>, QueryError> {
        let Some(CacheRequest { program_reference: Some(CachedProgramReference::Token(text)), .. }) =
            &source.cache
        else {
            return Ok(None);
        };
        if source.program.is_some() {
            return Ok(None);
        }
        let judge = |token: TokenContents, identity: &mut Option<TokenIdentity>| {
            if token.language != source.language {
                return Err(QueryError::TokenUnknown);
            }
            let signer = match token.key {
                [0, 0, 0, 0, 0, 0, 0, 0] => None,
                mark => Some(Arc::clone(self.trusted.find_by_mark(mark).ok_or(QueryError::TokenRevoked)?)),
            };
            let owner = program_owner(signer.as_ref(), call);
            let is_same = |token_identity: &&mut TokenIdentity| {
                token_identity.owner == owner && token_identity.caller == call.caller
            };
            let key = match identity.as_mut().filter(is_same) {
                Some(known) => known.key,
                None if token.holder != token_holder(call, &owner) => return Err(QueryError::TokenCaller),
                None => {
                    let (key, caller) = (owner.cache_key(token.language, &token.hash), call.caller.clone());
                    identity.insert(TokenIdentity { owner: owner.clone(), caller, key }).key
                }
            };
            Ok(VerifiedToken { token, signer, owner, key })
        };
        self.sealer.open(text, now, judge).map(Some)
    }

    /// Returns the requested mode, or else the next lower one that is allowed.
    fn allowed_mode(&self, cache_mode: CacheMode, key: Option<&TrustedKey>) -> Option<CacheMode> {
        let open = |mode: &CacheMode| {
            let by_key = key.and_then(|key| key.config.modes.as_ref());
            self.modes.contains(mode) && by_key.is_none_or(|modes| modes.contains(mode))
        };
        [CacheMode::Instance, CacheMode::Code].into_iter().find(|mode| *mode <= cache_mode && open(mode))
    }
}

/// Returns the owner of a program sent with this call: the signing key, if any, or the caller.
fn program_owner(key: Option<&Arc<TrustedKey>>, call: &RequestCall) -> ProgramOwner {
    key.map_or_else(|| ProgramOwner::from_call(call), |key| ProgramOwner::Key(Arc::clone(&key.name)))
}

/// Returns the session whose instance may be used: the token's, or a new one.
fn token_session(mode: Option<CacheMode>, token: Option<&TokenContents>) -> Result<SessionId, QueryError> {
    let mut session = token.map(|token| token.session).unwrap_or_default();
    if mode == Some(CacheMode::Instance) && token.is_none() {
        getrandom::fill(&mut session).map_err(|error| QueryError::Gateway(error.to_string()))?;
    }
    Ok(session)
}

impl ResolvedProgram {
    /// Returns the name of the program's code in the disk cache.
    pub(crate) fn disk_name(&self) -> DiskEntryName {
        DiskEntryName { owner: self.owner.owner_id(), key: self.key }
    }

    /// Returns the new token for the client, or `None` if its current one remains good.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn new_token(&self, sealer: &TokenSealer) -> Result<Option<Vec<u8>>, QueryError> {
        let Some(mode) = self.mode.filter(|_| self.needs_token) else { return Ok(None) };
        let key = self.signer.as_ref().map(|key| key.mark()).unwrap_or_default();
        let (language, hash, holder, session) = (self.language, self.hash, self.holder, self.session);
        sealer.seal(TokenContents { mode, language, hash, holder, key, session, expires_at: 0 }).map(Some)
    }
}
