//! The `compress` section: whether and how responses are compressed.

use schemars::JsonSchema;
use serde::Deserialize;
use services::BytesConfig;

use super::coding::ContentCodingKind;

/// Compression for clients that accept it: `true`, `false`, or options.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CompressConfig {
    /// Whether responses are compressed.
    Is(bool),
    /// Compressed, with options.
    More(CompressOptions),
}

/// The options of compression.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompressOptions {
    /// The minimum size. Shorter responses of known length are not compressed, since they fit in a packet
    /// anyway.
    pub min: BytesConfig,
    /// The enabled codings in order of preference; by default zstd, br and gzip. The client's weights take
    /// precedence.
    #[schemars(length(min = 1))]
    pub codings: Vec<ContentCodingKind>,
}

impl CompressConfig {
    /// The options, if compression is enabled.
    pub(super) fn options(&self) -> Option<CompressOptions> {
        match self {
            Self::Is(is) => is.then(CompressOptions::default),
            Self::More(options) => Some(options.clone()),
        }
    }
}

impl Default for CompressOptions {
    fn default() -> Self {
        Self {
            min: BytesConfig(1 << 10),
            codings: vec![ContentCodingKind::Zstd, ContentCodingKind::Brotli, ContentCodingKind::Gzip],
        }
    }
}
