//! Time and size as people write them: `50ms`, `16MiB`.
//!
//! Reading and writing are inverses of each other, and the schema refuses with a pattern and a
//! description what the parser would refuse, so that `orfa check` finds `50 bananas` with its line.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A span of time as it is written: `50ms`, `2s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(pub std::time::Duration);

/// A number of bytes as it is written: `64KiB`, `16MiB`, `1GiB`, `4kB`, or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct Bytes(pub u64);

/// Why a text is no [`Duration`] or no [`Bytes`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is not a whole number followed by a unit of time.
    #[error("`{0}` is no span of time: write a whole number and one of ns, us, ms, s, m, h, as in `50ms`")]
    Duration(String),
    /// It is not a whole number, alone or followed by a unit of size.
    #[error(
        "`{0}` is no size: write a whole number and one of B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `16MiB`"
    )]
    Bytes(String),
    /// The number is beyond what can be counted.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// Largest first, each kind of thousand on its own: this is also the order of preference when writing.
const SIZES: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

impl Duration {
    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(count: u64) -> Self {
        Self(std::time::Duration::from_millis(count))
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(count: u64) -> Self {
        Self(std::time::Duration::from_secs(count))
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        use std::time::Duration as Std;
        let too_large = || UnitError::TooLarge(text.to_owned());
        let (number, unit) = split(text).ok_or_else(|| UnitError::Duration(text.to_owned()))?;
        let count: u64 = number.parse().map_err(|_| too_large())?;
        let seconds = |each: u64| count.checked_mul(each).map(Std::from_secs).ok_or_else(too_large);
        Ok(Self(match unit {
            "ns" => Std::from_nanos(count),
            "us" => Std::from_micros(count),
            "ms" => Std::from_millis(count),
            "s" => seconds(1)?,
            "m" => seconds(60)?,
            "h" => seconds(3600)?,
            _ => return Err(UnitError::Duration(text.to_owned())),
        }))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        match (seconds, nanos) {
            (0, 0) => out.write_str("0s"),
            (s, 0) if s % 3600 == 0 => write!(out, "{}h", s / 3600),
            (s, 0) if s % 60 == 0 => write!(out, "{}m", s / 60),
            (s, 0) => write!(out, "{s}s"),
            (_, n) if n % 1_000_000 == 0 => write!(out, "{}ms", self.0.as_millis()),
            (_, n) if n % 1_000 == 0 => write!(out, "{}us", self.0.as_micros()),
            _ => write!(out, "{}ns", self.0.as_nanos()),
        }
    }
}

impl Bytes {
    /// So many times 1024 bytes.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// So many times 1024 times 1024 bytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number, for what counts in `usize`; what doesn't fit is more than there is memory.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Bytes(text.to_owned());
        let too_large = || UnitError::TooLarge(text.to_owned());
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let each = match unit {
            "" | "B" => 1,
            unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
        };
        let count: u64 = number.parse().map_err(|_| too_large())?;
        count.checked_mul(each).map(Self).ok_or_else(too_large)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZES.iter().find(|(_, each)| self.0 > 0 && self.0.is_multiple_of(*each)) {
            Some((unit, each)) => write!(out, "{}{unit}", self.0 / each),
            None => write!(out, "{}", self.0),
        }
    }
}

/// The digits at the front and what follows them.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| text.split_at(digits))
}

impl TryFrom<String> for Duration {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl TryFrom<NumberOrText> for Bytes {
    type Error = UnitError;

    fn try_from(value: NumberOrText) -> Result<Self, UnitError> {
        match value {
            NumberOrText::Number(count) => Ok(Self(count)),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        duration.to_string()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        bytes.to_string()
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]+(ns|us|ms|s|m|h)$",
            "description": "A span of time: a whole number and one of ns, us, ms, s, m, h, as in `50ms`.",
        })
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)?$",
            "description": "A size: a whole number of bytes, or one with a unit out of B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `16MiB`.",
        })
    }
}
