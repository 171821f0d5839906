//! The settings of developers' keys: `trust:`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use der::DateTime;
use handler::CallerLimits;
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::CacheMode;

/// The registered keys, by name. A signature refers to its key by this name, as `keyid`.
pub type TrustConfig = BTreeMap<String, KeyConfig>;

/// A registered developer's key, and the rights of programs signed with it. A setting that is left out is as
/// on the route. No setting extends the route's own rights.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The public key: a P-256 SubjectPublicKeyInfo in base64, as printed by `orfa keys new`, or in PEM.
    pub public_key: String,
    /// The time when the key expires: `2027-01-01`, or `2027-01-01T12:00:00Z`.
    #[serde(default)]
    pub expires: Option<String>,
    /// The services that the key's programs may call.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    /// The methods that the key's programs may use.
    #[serde(default)]
    pub methods: Option<Vec<String>>,
    /// The cache modes that the key's programs may use.
    #[serde(default)]
    pub modes: Option<Vec<CacheMode>>,
    /// The limits of the key's programs, in addition to those of the route and the caller: the smallest value
    /// applies.
    #[serde(default)]
    pub limits: CallerLimits,
}

type SigningKeyError = (String, &'static str);

/// The first bytes of the SubjectPublicKeyInfo of every P-256 key (RFC 5480). The point follows.
pub(super) const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Returns the uncompressed point of a public key.
pub(super) fn parse_public_key(text: &str) -> Result<Vec<u8>, SigningKeyError> {
    let hint = "write what `orfa keys new` printed, or the PEM that `openssl pkey -pubout` prints";
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>());
    let der = der.map_err(|_| ("the key is not base64".to_owned(), hint))?;
    let point = der.strip_prefix(&SPKI_PREFIX).filter(|point| is_point(point));
    point.map(<[u8]>::to_vec).ok_or_else(|| ("this is not a public key on P-256".to_owned(), hint))
}

/// Whether these bytes are a point on the curve. Checked by a key agreement, since `ring` exposes no other
/// check.
fn is_point(point: &[u8]) -> bool {
    let mine = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new());
    mine.is_ok_and(|mine| agree_ephemeral(mine, &UnparsedPublicKey::new(&ECDH_P256, point), |_| ()).is_ok())
}

/// Returns the text of a public key in the config's format.
#[must_use]
pub fn format_public_key(point: &[u8]) -> String {
    STANDARD.encode([&SPKI_PREFIX, point].concat())
}

/// Parses a date, or a date with time, in UTC (RFC 3339).
pub(super) fn parse_date(text: &str) -> Result<SystemTime, SigningKeyError> {
    let moment = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let moment: Result<DateTime, _> = moment.parse();
    let wrong = |_| (format!("`{text}` is not a date"), "write 2027-01-01, or 2027-01-01T12:00:00Z");
    moment.map(|moment| moment.to_system_time()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_dates_and_times() {
        let seconds = |text| {
            parse_date(text).map(|date| date.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
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
            assert!(parse_date(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rejects_keys_that_are_not_curve_points() {
        assert!(parse_public_key("not base64!").is_err());
        let nowhere = format_public_key(&[&[4][..], &[1; 64]].concat());
        assert!(parse_public_key(&nowhere).is_err(), "it is not on the curve");
    }
}
