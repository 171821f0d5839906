//! Who pays for a job.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::LazyLock;

/// A block's quota, and its jobs in a round, in those of one payer.
pub(crate) const BLOCK_SHARE: u32 = 16;

/// What a payer has for work on answers, in quotas: a fraction of a core.
const ANSWERS_SHARE: u32 = 8;

/// The hash is keyed by the process, so that clients can't choose names whose accounts are the same.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The payer of jobs: a caller, a network without a name, a key of the operator's.
///
/// A payer may belong to a block of payers, which has an account, too: one customer often has all networks of an IPv6
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaKey {
    payer: u64,
    block: Option<u64>,
    share: u32,
    is_exempt: bool,
}

impl QuotaKey {
    /// The key of a payer. Whatever hashes differently is another payer.
    #[must_use]
    pub fn new(payer: &impl Hash) -> Self {
        Self { payer: HASHER.hash_one((false, payer)), block: None, share: 1, is_exempt: false }
    }

    /// The same payer as a member of a block.
    #[must_use]
    pub fn in_block(self, block: &impl Hash) -> Self {
        Self { block: Some(HASHER.hash_one((true, block))), ..self }
    }

    /// The same payer where work is on what services answer to it. That has an account of its own, of eight quotas: who gets
    /// long answers may have new programs compiled all the same.
    #[must_use]
    pub fn for_answers(self) -> Self {
        let account = |account: u64| HASHER.hash_one(("answers", account));
        Self { payer: account(self.payer), block: self.block.map(account), share: ANSWERS_SHARE, ..self }
    }

    /// The same payer, charged nothing: for work that the operator answers for. Its jobs still run one after another.
    #[must_use]
    pub fn exempt(self) -> Self {
        Self { is_exempt: true, ..self }
    }

    /// Whether both belong to the same block.
    #[must_use]
    pub fn shares_block(self, other: Self) -> bool {
        self.block.is_some() && self.block == other.block
    }

    /// The payer alone.
    pub(crate) fn payer(self) -> u64 {
        self.payer
    }

    /// The accounts that are charged, each with its share of the quota.
    pub(crate) fn accounts(self) -> impl Iterator<Item = (u64, u32)> {
        let block = self.block.map(|block| (block, BLOCK_SHARE * self.share));
        let accounts = [Some((self.payer, self.share)), block];
        accounts.into_iter().flatten().filter(move |_| !self.is_exempt)
    }
}
