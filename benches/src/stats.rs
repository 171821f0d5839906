//! Summary statistics.

/// The median, or the mean of the two values in the middle; 0 without values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, Some(value)) => *value,
        _ => 0.0,
    }
}

/// The smallest value that is at least as large as `percent` percent of the values; 0 without values.
#[must_use]
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    sorted(values).get(rank - 1).copied().unwrap_or(0.0)
}

/// The range from the smallest to the largest value.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    sorted.last().unwrap_or(&0.0) - sorted.first().unwrap_or(&0.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_values_does_not_matter() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[4.0, 1.0, 2.0]), 3.0);
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 99), 99.0);
        assert_eq!(percentile(&hundred, 100), 100.0);
        assert_eq!(percentile(&hundred, 1), 1.0);
    }

    #[test]
    fn statistics_of_no_values_are_zero() {
        assert_eq!((median(&[]), percentile(&[], 99), spread(&[])), (0.0, 0.0, 0.0));
    }
}
