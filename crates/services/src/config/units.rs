//! Time, size, parts and rates as people write them: `50ms`, `16MiB`, `20%`, `100/s`.
//!
//! All sections of the config use them, and all are read here: a whole number and a unit out of a table. Reading and
//! writing are inverses of each other, and the schema refuses with a pattern and a description what the parser would
//! refuse, so that `orfa check` finds `50 bananas` with its line.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A span of time as it is written: `50ms`, `2s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

/// A number of bytes as it is written: `64KiB`, `16MiB`, `1GiB`, `4kB`, or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A part of a hundred as it is written: `20%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u8);

/// A number of times in a span: `100/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerTime {
    /// How many.
    pub count: u64,
    /// In how much time.
    pub span: std::time::Duration,
}

/// CPU time in a span of time: `500ms/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPerTime {
    /// How much.
    pub cpu: std::time::Duration,
    /// In how much time.
    pub span: std::time::Duration,
}

/// Why a text is none of the above.
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
    /// It is not a whole number up to 100 followed by `%`.
    #[error("`{0}` is no part of a hundred: write it as in `20%`")]
    Percent(String),
    /// It is nothing, or nothing by which a gateway could count.
    #[error("`{0}` is no rate: write 100/s, or 500ms/s of CPU time")]
    Rate(String),
    /// The number is beyond what can be counted.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// Units by name, and what each stands for, in the order of preference when writing.
type Units = [(&'static str, u64)];

const TIMES: &Units =
    &[("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

const SECOND: u64 = 1_000_000_000;

/// Each kind of thousand on its own.
const SIZES: &Units = &[
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

/// A whole number times its unit; of an error, the variant for what is no such thing.
fn read(text: &str, units: &Units, wrong: fn(String) -> UnitError) -> Result<u128, UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = units.iter().find(|(name, _)| digits > 0 && *name == unit);
    let (_, each) = unit.ok_or_else(|| wrong(text.to_owned()))?;
    let count: u64 = number.parse().map_err(|_| UnitError::TooLarge(text.to_owned()))?;
    Ok(u128::from(count) * u128::from(*each))
}

/// In the first unit that leaves a whole number; nothing at all is so in any, and is said in this one.
fn write(out: &mut fmt::Formatter<'_>, amount: u128, units: &Units, of_nothing: &str) -> fmt::Result {
    let whole = |(_, each): &&(&str, u64)| amount > 0 && amount.is_multiple_of(u128::from(*each));
    let (unit, each) = units.iter().find(whole).copied().unwrap_or((of_nothing, 1));
    write!(out, "{}{unit}", amount / u128::from(each))
}

/// What stands before the slash of a rate, and the second, minute or hour behind it.
fn halves(text: &str) -> Option<(&str, std::time::Duration)> {
    let (amount, unit) = text.split_once('/')?;
    let (_, nanos) = TIMES.iter().find(|(name, nanos)| *name == unit && *nanos >= SECOND)?;
    Some((amount, std::time::Duration::from_nanos(*nanos)))
}

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

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let nanos = read(text, TIMES, UnitError::Duration)?;
        let second = u128::from(SECOND);
        let seconds = u64::try_from(nanos / second).map_err(|_| UnitError::TooLarge(text.to_owned()))?;
        Ok(Self(std::time::Duration::new(seconds, (nanos % second) as u32)))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let count = read(text, SIZES, UnitError::Bytes)?;
        u64::try_from(count).map(Self).map_err(|_| UnitError::TooLarge(text.to_owned()))
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let part = read(text, &[("%", 1)], UnitError::Percent)?;
        let part = u8::try_from(part).ok().filter(|part| *part <= 100);
        part.map(Self).ok_or_else(|| UnitError::Percent(text.to_owned()))
    }
}

impl FromStr for PerTime {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Rate(text.to_owned());
        let (count, span) = halves(text).ok_or_else(wrong)?;
        let count = read(count, &[("", 1)], UnitError::Rate).ok().and_then(|count| u64::try_from(count).ok());
        Ok(Self { count: count.filter(|count| *count > 0).ok_or_else(wrong)?, span })
    }
}

impl FromStr for CpuPerTime {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Rate(text.to_owned());
        let (cpu, span) = halves(text).ok_or_else(wrong)?;
        let cpu = cpu.parse::<Duration>().ok().filter(|cpu| !cpu.0.is_zero());
        Ok(Self { cpu: cpu.ok_or_else(wrong)?.0, span })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, self.0.as_nanos(), TIMES, "s")
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, self.0.into(), SIZES, "")
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0)
    }
}

impl fmt::Display for PerTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration(self.span).to_string();
        write!(out, "{}/{}", self.count, span.trim_start_matches('1'))
    }
}

impl fmt::Display for CpuPerTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration(self.span).to_string();
        write!(out, "{}/{}", Duration(self.cpu), span.trim_start_matches('1'))
    }
}

/// What is a text, but may be written as a plain number.
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

/// Has the config read a type by its `FromStr` and write it by its `Display`: what it is in the file (a `String` or a
/// [`NumberOrText`]), and its schema.
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

written!(Duration as String, {
    "type": "string",
    "pattern": "^[0-9]+(ns|us|ms|s|m|h)$",
    "description": "A span of time: a whole number and one of ns, us, ms, s, m, h, as in `50ms`.",
});

written!(Bytes as NumberOrText, {
    "type": ["string", "integer"],
    "minimum": 0,
    "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)?$",
    "description": "A size: a whole number of bytes, or one with a unit out of B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `16MiB`.",
});

written!(Percent as String, {
    "type": "string",
    "pattern": "^0*([0-9]{1,2}|100)%$",
    "description": "A part of a hundred, as in `20%`.",
});

written!(PerTime as String, {
    "type": "string",
    "pattern": "^0*[1-9][0-9]{0,11}/(s|m|h)$",
    "description": "A number in a second, a minute or an hour, as in `100/s`.",
});

written!(CpuPerTime as String, {
    "type": "string",
    "pattern": "^0*[1-9][0-9]{0,11}(us|ms|s|m)/(s|m|h)$",
    "description": "CPU time in a second, a minute or an hour, as in `500ms/s`.",
});
