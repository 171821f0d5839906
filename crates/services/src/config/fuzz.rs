//! Fuzz test of numbers with units: see `fuzz/src/lib.rs`.

use std::fmt::{Debug, Display};
use std::str::{FromStr, from_utf8};

use super::{BytesConfig, CpuPerTime, DurationConfig, PerTime, PercentConfig, StatusRange};

#[test]
fn numbers_with_units_round_trip() {
    fn is_kept<T: FromStr<Err: Debug + PartialEq> + Display + Debug + PartialEq>(text: &str) {
        if let Ok(read) = text.parse::<T>() {
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
    }
    let words = &[
        "0",
        "9",
        "18446744073709551615",
        "ns",
        "us",
        "ms",
        "s",
        "m",
        "h",
        "B",
        "kB",
        "KiB",
        "TiB",
        "%",
        "/",
        "-",
    ];
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        is_kept::<DurationConfig>(text);
        is_kept::<BytesConfig>(text);
        is_kept::<PercentConfig>(text);
        is_kept::<PerTime>(text);
        is_kept::<CpuPerTime>(text);
        is_kept::<StatusRange>(text);
    });
}
