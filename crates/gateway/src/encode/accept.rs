//! What a client says it takes (RFC 9110, section 12).

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName};

use super::coding::Coding;

/// One of the things that a client takes, as `br;q=0.8`.
struct Item<'a> {
    name: &'a str,
    /// In thousandths. One that can't be read stands for nothing: the plain form is never wrong.
    weight: u16,
}

/// The coding to use: of those that the client likes best, the first.
pub(super) fn coding(codings: &[Coding], headers: &HeaderMap) -> Option<Coding> {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return None;
    }
    let weight = |names: &[&str]| weight(headers, ACCEPT_ENCODING, names);
    let others = weight(&["*"]).unwrap_or(0);
    let mut best = (weight(&["identity"]).unwrap_or(0).max(1), None);
    for &coding in codings {
        let said = match coding {
            Coding::Gzip => weight(&["gzip", "x-gzip"]),
            coding => weight(&[coding.name()]),
        };
        let weight = said.unwrap_or(others);
        // On a par with the plain form, the client leaves it to us.
        if weight > best.0 || (weight == best.0 && best.1.is_none()) {
            best = (weight, Some(coding));
        }
    }
    best.1
}

/// What a list says of a thing, by any of its names.
pub(super) fn weight(headers: &HeaderMap, list: HeaderName, names: &[&str]) -> Option<u16> {
    let is_it = |item: &Item<'_>| names.iter().any(|name| item.name.eq_ignore_ascii_case(name));
    items(headers, list).find(is_it).map(|item| item.weight)
}

/// What stands in a list of weighted things.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Item<'_>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
        Item { name, weight: weight.map_or(1000, thousandths) }
    })
}

/// `0.8` as 800.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.trim().split_once('.').unwrap_or((weight.trim(), ""));
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

    use super::*;

    fn chosen(accept: &str) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(accept).unwrap());
        coding(&[Coding::Zstd, Coding::Brotli, Coding::Gzip], &headers).map(Coding::name)
    }

    #[test]
    fn the_clients_weights_decide_and_then_our_order() {
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, deflate, br", Some("br")),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("gzip ; Q = 0.001", Some("gzip")),
            ("*", Some("zstd")),
            ("*;q=0.5, br;q=0.4", Some("zstd")),
            ("identity;q=0, *;q=0.1", Some("zstd")),
            ("gzip, identity", Some("gzip")),
            ("identity, gzip;q=0.5", None),
            ("identity", None),
            ("deflate, compress", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000, *;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=0.0001", None),
            ("gzip;q=-1, br;q=x", None),
            ("", None),
        ] {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
    }

    #[test]
    fn who_says_nothing_gets_it_plain() {
        assert_eq!(coding(&[Coding::Gzip], &HeaderMap::new()), None);
    }
}
