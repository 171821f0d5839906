//! The `compress` section: whether and how responses are compressed.

use schemars::JsonSchema;
use serde::Deserialize;
use services::BytesConfig;

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

/// A content coding (RFC 9110, section 8.4.1; RFC 8878; RFC 7932).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ContentCodingKind {
    /// Zstandard, with the best ratio of size to CPU time.
    #[serde(rename = "zstd")]
    Zstd,
    /// Brotli, which older browsers support over HTTPS.
    #[serde(rename = "br")]
    Brotli,
    /// Gzip, which all clients support.
    #[serde(rename = "gzip")]
    Gzip,
}

impl CompressConfig {
    /// The options, if compression is enabled.
    pub(crate) fn options(&self) -> Option<CompressOptions> {
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
