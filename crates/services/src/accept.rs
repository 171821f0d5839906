//! What a client says it takes: lists of weighted things (RFC 9110, section 12).

use http::{HeaderMap, HeaderName};

/// One of the things that a client takes, as `br;q=0.8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// What it is called.
    pub name: &'a str,
    /// In thousandths. One that can't be read stands for nothing: the plain form is never wrong.
    pub weight: u16,
    /// What else stands there, `;` between: `q` as well.
    pub parameters: &'a str,
}

/// What a list says of a thing, by any of its names.
#[must_use]
pub fn weight(headers: &HeaderMap, list: HeaderName, names: &[&str]) -> Option<u16> {
    let is_it = |item: &Item<'_>| names.iter().any(|name| item.name.eq_ignore_ascii_case(name));
    items(headers, list).find(is_it).map(|item| item.weight)
}

/// What stands in a list of weighted things.
pub fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Item<'_>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|item| {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameter(parameters, "q").map_or(1000, thousandths);
        Item { name: name.trim(), weight, parameters }
    })
}

/// A parameter of what stands behind a name: `charset` of `charset=utf-8; q=1`.
#[must_use]
pub fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|part| {
        let (known, value) = part.split_once('=')?;
        known.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

/// `0.8` as 800.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let is_weight = fraction.len() <= 3 && fraction.bytes().all(|digit| digit.is_ascii_digit());
    if !is_weight {
        return 0;
    }
    let digits = fraction.bytes().chain(*b"000").take(3);
    let fraction = digits.fold(0, |sum, digit| 10 * sum + u16::from(digit - b'0'));
    match (whole, fraction) {
        ("1", 0) => 1000,
        ("0", fraction) => fraction,
        _ => 0,
    }
}
