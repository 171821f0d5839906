//! The encoding of bytes in a recording: readable text for UTF-8, base64 otherwise.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, written as `"text"` or `{"base64": "AAEC"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedBytes(pub(crate) Bytes);

/// The serialised form.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SerializedBytes<T> {
    Text(T),
    Base64 { base64: T },
}

impl Serialize for RecordedBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => SerializedBytes::Text(text).serialize(serializer),
            Err(_) => SerializedBytes::Base64 { base64: &*STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RecordedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match SerializedBytes::<String>::deserialize(deserializer)? {
            SerializedBytes::Text(text) => Ok(Self(text.into())),
            SerializedBytes::Base64 { base64 } => {
                let bytes = STANDARD.decode(base64).map_err(serde::de::Error::custom)?;
                Ok(Self(bytes.into()))
            }
        }
    }
}
