//! Content negotiation: weighted lists in request headers (RFC 9110, section 12).

use http::{HeaderMap, HeaderName};

use super::MAX_MEMBERS;

/// The number of parameters of an item that are read.
const MAX_PARAMETERS: usize = 16;

/// An item of a weighted list, such as `br;q=0.8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptItem<'a> {
    /// The name, without parameters.
    pub name: &'a str,
    /// The weight in thousandths; 0 if it is malformed, since the identity form is always acceptable.
    pub weight: u16,
    /// All parameters, separated by `;`, including `q`.
    pub parameters: &'a str,
}

/// Returns the weight of the first item with one of the given names.
#[must_use]
pub fn item_weight(headers: &HeaderMap, list: HeaderName, names: &[&str]) -> Option<u16> {
    let is_it = |item: &AcceptItem<'_>| names.iter().any(|name| item.name.eq_ignore_ascii_case(name));
    weighted_items(headers, list).find(is_it).map(|item| item.weight)
}

/// Returns the first [`MAX_MEMBERS`] items of a weighted list.
pub fn weighted_items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = AcceptItem<'_>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).take(MAX_MEMBERS).map(|item| {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = find_parameter(parameters, "q").map_or(1000, parse_weight);
        AcceptItem { name: name.trim(), weight, parameters }
    })
}

/// Returns a parameter from the part after a name: `charset` from `charset=utf-8; q=1`. Only the first
/// parameters are read.
#[must_use]
pub fn find_parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').take(MAX_PARAMETERS).find_map(|part| {
        let (known, value) = part.split_once('=')?;
        known.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

/// Parses a weight into thousandths: `0.8` is 800.
fn parse_weight(weight: &str) -> u16 {
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn reads_a_bounded_number_of_items_and_parameters() {
        let behind = |items: usize| {
            let list = "a,".repeat(items) + "text/html";
            HeaderMap::from_iter([(ACCEPT, HeaderValue::try_from(list).unwrap())])
        };
        assert_eq!(weighted_items(&behind(30_000), ACCEPT).count(), MAX_MEMBERS);
        assert_eq!(item_weight(&behind(MAX_MEMBERS - 1), ACCEPT, &["text/html"]), Some(1000));
        assert_eq!(item_weight(&behind(MAX_MEMBERS), ACCEPT, &["text/html"]), None);
        let many = |parameters: usize| "a;".repeat(parameters) + "q=1";
        assert_eq!(find_parameter(&many(MAX_PARAMETERS - 1), "q"), Some("1"));
        assert_eq!(find_parameter(&many(MAX_PARAMETERS), "q"), None);
    }
}
