//! The payers of jobs.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

/// The factor of a block's quota, and of its jobs per round, relative to a single payer.
pub(crate) const BLOCK_SHARE: u32 = 16;

/// The factor of the quota for work on responses: a fraction of a core.
const RESPONSE_SHARE: u32 = 8;

/// The hash is keyed per process, so that clients cannot choose names with colliding accounts.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A payer's share of queues and pools ([`QuotaKey::queue_share`]).
pub type ShareKey = (u64, u64);

/// The payer of jobs: a caller, the network of an anonymous client, or a key of the operator.
///
/// A payer may belong to a block of payers, which has an account too: a single customer often owns all
/// networks of an IPv6 block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaKey {
    payer: u64,
    block: Option<u64>,
    share: u32,
    is_exempt: bool,
}

impl QuotaKey {
    /// Creates the key of a payer. Values with different hashes are different payers.
    #[must_use]
    pub fn new(payer: &impl Hash) -> Self {
        Self { payer: HASHER.hash_one((false, payer)), block: None, share: 1, is_exempt: false }
    }

    /// Makes the payer a member of a block.
    #[must_use]
    pub fn with_block(self, block: &impl Hash) -> Self {
        Self { block: Some(HASHER.hash_one((true, block))), ..self }
    }

    /// Returns the payer's account for work on services' responses. It is separate, with eight times the
    /// quota, so that clients with long responses can still have new programs compiled.
    #[must_use]
    pub fn for_responses(self) -> Self {
        let account = |account: u64| HASHER.hash_one(("answers", account));
        Self { payer: account(self.payer), block: self.block.map(account), share: RESPONSE_SHARE, ..self }
    }

    /// Exempts the payer from charges, for work that the operator is responsible for. Its jobs still
    /// run one at a time.
    #[must_use]
    pub fn exempt(self) -> Self {
        Self { is_exempt: true, ..self }
    }

    /// Whether the payer is exempt from charges.
    #[must_use]
    pub fn is_exempt(self) -> bool {
        self.is_exempt
    }

    /// Whether both belong to the same block.
    #[must_use]
    pub fn has_same_block(self, other: Self) -> bool {
        self.block.is_some() && self.block == other.block
    }

    /// Returns the payer's share of a queue that is served in rounds. A block of payers has sixteen shares.
    #[must_use]
    pub fn queue_share(self) -> ShareKey {
        let shares = u64::from(BLOCK_SHARE);
        self.block.map_or((self.payer, shares), |block| (block, self.payer % shares))
    }

    /// The payer without its block.
    pub(crate) fn payer(self) -> u64 {
        self.payer
    }

    /// Returns the accounts that are charged, each with the factor of its quota.
    pub(crate) fn accounts(self) -> impl Iterator<Item = (u64, u32)> {
        let block = self.block.map(|block| (block, BLOCK_SHARE * self.share));
        let accounts = [Some((self.payer, self.share)), block];
        accounts.into_iter().flatten().filter(move |_| !self.is_exempt)
    }
}
