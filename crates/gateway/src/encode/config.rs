//! `compress`: whether answers leave compressed, and how.

use schemars::JsonSchema;
use serde::Deserialize;
use services::Bytes;

use super::coding::Coding;

/// Whether answers are compressed for clients that take it: `true`, `false`, or how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CompressConfig {
    /// Whether at all.
    Is(bool),
    /// And how.
    More(CompressOptions),
}

/// How answers are compressed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompressOptions {
    /// Answers that are known to be shorter go out as they are: they fit in the packet that leaves anyway.
    pub min: Bytes,
    /// What may be used, the best first. Without it: zstd, br and gzip. The client's weights decide before this order.
    #[schemars(length(min = 1))]
    pub codings: Vec<Coding>,
}

impl CompressConfig {
    /// How, if at all.
    pub(super) fn options(&self) -> Option<CompressOptions> {
        match self {
            Self::Is(is) => is.then(CompressOptions::default),
            Self::More(options) => Some(options.clone()),
        }
    }
}

impl Default for CompressOptions {
    fn default() -> Self {
        Self { min: Bytes(1 << 10), codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip] }
    }
}
