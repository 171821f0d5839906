//! What an operator may write for a time or a size, and what is said about the rest.

use super::{Bytes, Duration, Percent, ServiceConfig, Statuses};
use proptest::prelude::*;

#[test]
fn times_and_sizes_read_as_written() {
    for (text, millis) in [("50ms", 50), ("2s", 2_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)] {
        assert_eq!(text.parse(), Ok(Duration::from_millis(millis)), "{text}");
    }
    for (text, count) in [("64KiB", 65_536), ("16MiB", 16 << 20), ("4kB", 4_000), ("7", 7), ("7B", 7)] {
        assert_eq!(text.parse(), Ok(Bytes(count)), "{text}");
    }
}

#[test]
fn a_wrong_word_is_named_with_what_to_write() {
    let time = "50 bananas".parse::<Duration>().unwrap_err().to_string();
    assert!(time.contains("`50 bananas`") && time.contains("as in `50ms`"), "{time}");
    let size = "16mb".parse::<Bytes>().unwrap_err().to_string();
    assert!(size.contains("`16mb`") && size.contains("MiB"), "{size}");
    for text in ["", "ms", "-1s", "1.5s", " 1s", "1s ", "99999999999999999999s", "18446744073709551615h"] {
        assert!(text.parse::<Duration>().is_err(), "{text}");
    }
    for text in ["", "MiB", "-1", "1.5MiB", "16777216TiB"] {
        assert!(text.parse::<Bytes>().is_err(), "{text}");
    }
}

#[test]
fn parts_and_statuses_read_as_written() {
    for (text, part) in [("20%", 20), ("0%", 0), ("100%", 100), ("007%", 7)] {
        assert_eq!(text.parse(), Ok(Percent(part)), "{text}");
    }
    for text in ["", "%", "20", "101%", "-1%", "+1%", "1.5%", "20 %", "256%"] {
        assert!(text.parse::<Percent>().is_err(), "{text}");
    }
    for (text, from, to) in [("204", 204, 204), ("200-299", 200, 299), ("100-599", 100, 599)] {
        assert_eq!(text.parse(), Ok(Statuses { from, to }), "{text}");
    }
    for text in ["", "-", "200-", "-299", "299-200", "99", "600", "200-299-300", "2xx", "+200"] {
        assert!(text.parse::<Statuses>().is_err(), "{text}");
    }
    let plain = serde_json::from_str::<Statuses>("204").unwrap();
    assert_eq!((plain.from, plain.to, plain.to_string().as_str()), (204, 204, "204"));
}

#[test]
fn a_service_needs_only_its_url_and_no_typo_is_silent() {
    let config: ServiceConfig = serde_json::from_str(r#"{ "url": "http://a" }"#).unwrap();
    assert_eq!(config.timeout, Duration::from_secs(10));
    assert_eq!(config.url.as_slice(), ["http://a"]);
    let typo = serde_json::from_str::<ServiceConfig>(r#"{ "url": "http://a", "timeuot": "1s" }"#);
    assert!(typo.unwrap_err().to_string().contains("timeuot"));
}

#[test]
fn the_schema_shows_defaults_and_patterns() {
    let schema = serde_json::to_value(schemars::schema_for!(ServiceConfig)).unwrap();
    assert_eq!(schema["properties"]["timeout"]["default"], "10s");
    assert_eq!(schema["$defs"]["Duration"]["type"], "string");
    assert_eq!(schema["additionalProperties"], false);
}

proptest! {
    #[test]
    fn what_is_read_is_written_so_that_it_reads_the_same(
        count: u64, time in "ns|us|ms|s|m|h", size in "B|kB|KiB|MB|MiB|GB|GiB|TB|TiB|"
    ) {
        if let Ok(duration) = format!("{count}{time}").parse::<Duration>() {
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
        if let Ok(bytes) = format!("{count}{size}").parse::<Bytes>() {
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
    }

    #[test]
    fn no_text_is_too_strange_for_an_answer(text: String) {
        let _ = text.parse::<Duration>();
        let _ = text.parse::<Bytes>();
    }
}
