//! What an operator writes of developers' keys: `trust:`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use der::DateTime;
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cached::Mode;
use crate::config::CallerLimits;

/// The registered keys, by the names that signatures give as `keyid`.
pub type TrustConfig = BTreeMap<String, KeyConfig>;

/// A registered developer's key, and what programs may do that it signed. What is left out is as on the
/// route; nothing opens what the route keeps closed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The public key as `orfa keys new` prints it: a P-256 SubjectPublicKeyInfo in base64, or as PEM.
    pub public: String,
    /// The moment from which it counts no more: `2027-01-01`, or `2027-01-01T12:00:00Z`.
    #[serde(default)]
    pub expires: Option<String>,
    /// The services that its programs may call.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    /// The methods that its programs may use.
    #[serde(default)]
    pub methods: Option<Vec<String>>,
    /// The modes that its programs may be kept in.
    #[serde(default)]
    pub modes: Option<Vec<Mode>>,
    /// The caps of its programs, beside those of the route and the caller: the smallest one holds.
    #[serde(default)]
    pub limits: CallerLimits,
}

type Wrong = (String, &'static str);

/// How the SubjectPublicKeyInfo of every P-256 key begins (RFC 5480); the point follows.
pub(super) const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The point of a public key, uncompressed.
pub(super) fn public_key_of(text: &str) -> Result<Vec<u8>, Wrong> {
    let hint = "write what `orfa keys new` printed, or the PEM that `openssl pkey -pubout` prints";
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>());
    let der = der.map_err(|_| ("the key is not base64".to_owned(), hint))?;
    let point = der.strip_prefix(&PREFIX).filter(|point| is_point(point));
    point.map(<[u8]>::to_vec).ok_or_else(|| ("this is no public key on P-256".to_owned(), hint))
}

/// Whether these are a point of the curve: only the agreement of keys asks.
fn is_point(point: &[u8]) -> bool {
    let mine = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new());
    mine.is_ok_and(|mine| agree_ephemeral(mine, &UnparsedPublicKey::new(&ECDH_P256, point), |_| ()).is_ok())
}

/// The text of a public key, as the config has it.
#[must_use]
pub fn public_key(point: &[u8]) -> String {
    STANDARD.encode([&PREFIX, point].concat())
}

/// A day, or a moment of one, in UTC (RFC 3339).
pub(super) fn date(text: &str) -> Result<SystemTime, Wrong> {
    let moment = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let moment: Result<DateTime, _> = moment.parse();
    let wrong = |_| (format!("`{text}` is no date"), "write 2027-01-01, or 2027-01-01T12:00:00Z");
    moment.map(|moment| moment.to_system_time()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_moments() {
        let seconds =
            |text| date(text).map(|date| date.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(seconds("1970-01-01"), Ok(0));
        assert_eq!(seconds("2024-02-29"), Ok(1_709_164_800));
        assert_eq!(seconds("2027-01-01T12:00:01Z"), Ok(1_798_804_801));
        for wrong in [
            "",
            "2027",
            "2027-13-01",
            "2027-02-29",
            "2027-01-01T24:00:00Z",
            "2027-01-01T12:00",
            "27-01-01",
            "+027-01-01",
        ] {
            assert!(date(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_point_is_no_key() {
        assert!(public_key_of("not base64!").is_err());
        let nowhere = public_key(&[&[4][..], &[1; 64]].concat());
        assert!(public_key_of(&nowhere).is_err(), "it is not on the curve");
    }
}
