//! What holds bytes from outside across an `.await`, and the budget that bounds each: the table behind docs/bounds.md.
//!
//! The bounds are those of the target's config (`world/orfa.yaml`), where a bound is a setting.

/// A structure that holds bytes from outside, and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The row's name, by which cases refer to it.
    pub name: &'static str,
    /// The most bytes of one of them.
    pub bytes: u64,
    /// What there is one of: `request`, `connection`, `address`, `caller`, `process`.
    pub per: &'static str,
    /// The setting or constant that bounds it.
    pub setting: &'static str,
    /// The file that enforces it.
    pub file: &'static str,
    /// The test that sends one more than the bound, and sees the refusal.
    pub test: &'static str,
}

/// All rows.
pub const BOUNDS: &[Bound] = &[];
