//! Human-readable times and sizes.

use std::time::Duration;

/// Formats `0.31 ms`, `12.3 ms`, `1204 ms`, with three significant digits.
pub(crate) fn format_milliseconds(time: Duration) -> String {
    format!("{} ms", format_significant(time.as_secs_f64() * 1000.0))
}

/// `312 B`, `1.1 kB`, `2.4 MB`.
pub(crate) fn format_bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
    let count_in = |unit: u64| format_significant(count as f64 / unit as f64);
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{} kB", count_in(1_000)),
        _ => format!("{} MB", count_in(1_000_000)),
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn format_count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

fn format_significant(number: f64) -> String {
    match number {
        number if number < 0.995 => format!("{number:.2}"),
        number if number < 99.95 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_three_digits() {
        let times = [0, 310, 12_345, 1_204_000].map(|us| format_milliseconds(Duration::from_micros(us)));
        assert_eq!(times, ["0.00 ms", "0.31 ms", "12.3 ms", "1204 ms"]);
        let sizes = [312, 1_100, 2_449_000].map(format_bytes);
        assert_eq!(sizes, ["312 B", "1.1 kB", "2.4 MB"]);
        assert_eq!([0, 1, 2].map(|n| format_count(n, "call")), ["0 calls", "1 call", "2 calls"]);
    }
}
