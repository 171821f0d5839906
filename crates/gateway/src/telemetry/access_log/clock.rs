//! Formats time as RFC 3339 in UTC with milliseconds, without allocating. Every request's line has a
//! timestamp, and most are within the same second as the line before.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends `2026-01-31T12:00:00.000Z`.
pub(super) fn write_timestamp(line: &mut Vec<u8>, at: SystemTime) {
    /// The last second that a thread formatted, and its text.
    type FormattedSecond = (u64, [u8; SECOND.len()]);
    thread_local!(static LAST: Cell<FormattedSecond> = const { Cell::new((0, SECOND)) });
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (before, mut text) = LAST.get();
    if before != since.as_secs() {
        text = format_second(since.as_secs());
        LAST.set((since.as_secs(), text));
    }
    line.extend_from_slice(&text);
    write_digits::<3>(line, since.subsec_millis().into());
    line.push(b'Z');
}

/// The text of the first second, up to the point before its milliseconds.
const SECOND: [u8; 20] = *b"1970-01-01T00:00:00.";

fn format_second(seconds: u64) -> [u8; SECOND.len()] {
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = SECOND;
    let parts =
        [(0..4, year), (5..7, month), (8..10, day), (11..13, hour), (14..16, minute), (17..19, second)];
    parts.into_iter().for_each(|(place, part)| fill_digits(&mut text[place], part));
    text
}

/// Appends the last `COUNT` digits of a number, leading zeros included.
pub(super) fn write_digits<const COUNT: usize>(line: &mut Vec<u8>, number: u64) {
    let mut digits = [0; COUNT];
    fill_digits(&mut digits, number);
    line.extend_from_slice(&digits);
}

fn fill_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Returns the year, month and day of a day number since 1970-01-01. Years are counted from March 1: the leap
/// day is then the last of a year, and months have a regular pattern of 153 days in five.
fn civil_date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_399_001, "2000-02-28T23:59:59.001Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_102_444_799_500, "2099-12-31T23:59:59.500Z"),
        ] {
            let mut line = Vec::new();
            super::write_timestamp(&mut line, UNIX_EPOCH + Duration::from_millis(millis));
            assert_eq!(String::from_utf8(line).unwrap(), text);
        }
    }
}
