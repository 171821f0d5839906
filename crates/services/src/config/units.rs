//! Durations, sizes, percentages and rates in their written form: `50ms`, `16MiB`, `20%`, `100/s`.
//!
//! All sections of the config use these types. Each value is a whole number and a unit from a table. Parsing
//! and display are inverses of each other. The JSON schema rejects, by pattern, the values that the parser
//! would reject, so that `orfa check` reports `50 bananas` with its line.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A duration in its written form: `50ms`, `2s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurationConfig(pub std::time::Duration);

/// A number of bytes in its written form: `64KiB`, `16MiB`, `1GiB`, `4kB`, or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesConfig(pub u64);

/// A percentage in its written form: `20%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentConfig(pub u8);

/// A rate: a count per unit of time, such as `100/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerTime {
    /// The count, at least 1.
    pub count: u64,
    /// The unit of time: a second, a minute or an hour.
    pub span: std::time::Duration,
}

/// A rate of CPU time, such as `500ms/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPerTime {
    /// The CPU time.
    pub cpu: std::time::Duration,
    /// The unit of time: a second, a minute or an hour.
    pub span: std::time::Duration,
}

/// An error in the written form of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a whole number followed by a unit of time.
    #[error("`{0}` is not a duration: write a whole number and one of ns, us, ms, s, m, h, as in `50ms`")]
    Duration(String),
    /// Not a whole number, alone or followed by a unit of size.
    #[error(
        "`{0}` is not a size: write a whole number and one of B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `16MiB`"
    )]
    Bytes(String),
    /// Not a whole number up to 100 followed by `%`.
    #[error("`{0}` is not a percentage: write it as in `20%`")]
    Percent(String),
    /// Not a rate, or a rate of zero.
    #[error("`{0}` is not a rate: write 100/s, or 500ms/s of CPU time")]
    Rate(String),
    /// The number is out of range.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// Unit names with their factors, in order of preference for display.
type UnitFactors = [(&'static str, u64)];

const TIME_UNITS: &UnitFactors =
    &[("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

const SECOND: u64 = 1_000_000_000;

/// Binary and decimal units, in descending order within each kind.
const SIZE_UNITS: &UnitFactors = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("", 1),
    ("B", 1),
];

/// Parses a whole number with a unit from `units`. `wrong` makes the error for texts of another form.
fn parse_with_unit(
    text: &str,
    units: &UnitFactors,
    wrong: fn(String) -> UnitError,
) -> Result<u128, UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = units.iter().find(|(name, _)| digits > 0 && *name == unit);
    let (_, each) = unit.ok_or_else(|| wrong(text.to_owned()))?;
    let count: u64 = number.parse().map_err(|_| UnitError::TooLarge(text.to_owned()))?;
    Ok(u128::from(count) * u128::from(*each))
}

/// Writes the amount in the first unit that divides it; zero is written in the unit `of_nothing`.
fn format_with_unit(
    out: &mut fmt::Formatter<'_>,
    amount: u128,
    units: &UnitFactors,
    of_nothing: &str,
) -> fmt::Result {
    let whole = |(_, each): &&(&str, u64)| amount > 0 && amount.is_multiple_of(u128::from(*each));
    let (unit, each) = units.iter().find(whole).copied().unwrap_or((of_nothing, 1));
    write!(out, "{}{unit}", amount / u128::from(each))
}

/// Splits a rate at the slash into the amount and the duration of its unit: a second, a minute or an hour.
fn split_rate(text: &str) -> Option<(&str, std::time::Duration)> {
    let (amount, unit) = text.split_once('/')?;
    let (_, nanos) = TIME_UNITS.iter().find(|(name, nanos)| *name == unit && *nanos >= SECOND)?;
    Some((amount, std::time::Duration::from_nanos(*nanos)))
}

impl DurationConfig {
    /// Creates a duration from milliseconds.
    #[must_use]
    pub const fn from_millis(count: u64) -> Self {
        Self(std::time::Duration::from_millis(count))
    }

    /// Creates a duration from seconds.
    #[must_use]
    pub const fn from_secs(count: u64) -> Self {
        Self(std::time::Duration::from_secs(count))
    }
}

impl BytesConfig {
    /// Creates a size from units of 1024 bytes.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Creates a size from units of 1024 * 1024 bytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The size as a `usize`, saturated at `usize::MAX`.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<DurationConfig> for std::time::Duration {
    fn from(duration: DurationConfig) -> Self {
        duration.0
    }
}

impl FromStr for DurationConfig {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let nanos = parse_with_unit(text, TIME_UNITS, UnitError::Duration)?;
        let second = u128::from(SECOND);
        let seconds = u64::try_from(nanos / second).map_err(|_| UnitError::TooLarge(text.to_owned()))?;
        Ok(Self(std::time::Duration::new(seconds, (nanos % second) as u32)))
    }
}

impl FromStr for BytesConfig {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let count = parse_with_unit(text, SIZE_UNITS, UnitError::Bytes)?;
        u64::try_from(count).map(Self).map_err(|_| UnitError::TooLarge(text.to_owned()))
    }
}

impl FromStr for PercentConfig {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let part = parse_with_unit(text, &[("%", 1)], UnitError::Percent)?;
        let part = u8::try_from(part).ok().filter(|part| *part <= 100);
        part.map(Self).ok_or_else(|| UnitError::Percent(text.to_owned()))
    }
}

impl FromStr for PerTime {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Rate(text.to_owned());
        let (count, span) = split_rate(text).ok_or_else(wrong)?;
        let count = parse_with_unit(count, &[("", 1)], UnitError::Rate)
            .ok()
            .and_then(|count| u64::try_from(count).ok());
        Ok(Self { count: count.filter(|count| *count > 0).ok_or_else(wrong)?, span })
    }
}

impl FromStr for CpuPerTime {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Rate(text.to_owned());
        let (cpu, span) = split_rate(text).ok_or_else(wrong)?;
        let cpu = cpu.parse::<DurationConfig>().ok().filter(|cpu| !cpu.0.is_zero());
        Ok(Self { cpu: cpu.ok_or_else(wrong)?.0, span })
    }
}

impl fmt::Display for DurationConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_with_unit(out, self.0.as_nanos(), TIME_UNITS, "s")
    }
}

impl fmt::Display for BytesConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_with_unit(out, self.0.into(), SIZE_UNITS, "")
    }
}

impl fmt::Display for PercentConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0)
    }
}

impl fmt::Display for PerTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = DurationConfig(self.span).to_string();
        write!(out, "{}/{}", self.count, span.trim_start_matches('1'))
    }
}

impl fmt::Display for CpuPerTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = DurationConfig(self.span).to_string();
        write!(out, "{}/{}", DurationConfig(self.cpu), span.trim_start_matches('1'))
    }
}

/// A string that may also be written as a plain number.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum NumberOrText {
    Number(u64),
    Text(String),
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Text(text) => text.fmt(out),
        }
    }
}

/// Implements config traits for a type: deserialization through its `FromStr`, serialization through its
/// `Display`, and the given schema. `$in_file` is the type in the file, `String` or [`NumberOrText`].
macro_rules! written {
    ($type:ident as $in_file:ty, $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let written = <$in_file>::deserialize(from)?.to_string();
                written.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

pub(super) use written;

written!(DurationConfig as String, {
    "type": "string",
    "pattern": "^[0-9]+(ns|us|ms|s|m|h)$",
    "description": "A duration: a whole number and one of ns, us, ms, s, m, h, as in `50ms`.",
});

written!(BytesConfig as NumberOrText, {
    "type": ["string", "integer"],
    "minimum": 0,
    "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)?$",
    "description": "A size: a whole number of bytes, alone or with one of the units B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `16MiB`.",
});

written!(PercentConfig as String, {
    "type": "string",
    "pattern": "^0*([0-9]{1,2}|100)%$",
    "description": "A percentage, as in `20%`.",
});

written!(PerTime as String, {
    "type": "string",
    "pattern": "^0*[1-9][0-9]{0,11}/(s|m|h)$",
    "description": "A rate per second, minute or hour, as in `100/s`.",
});

written!(CpuPerTime as String, {
    "type": "string",
    "pattern": "^0*[1-9][0-9]{0,11}(us|ms|s|m)/(s|m|h)$",
    "description": "CPU time per second, minute or hour, as in `500ms/s`.",
});
