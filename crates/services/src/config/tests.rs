//! Parsing of durations, sizes and rates, and the errors for invalid texts.

use std::time;

use super::{BytesConfig, CpuPerTime, DurationConfig, PerTime, PercentConfig, ServiceConfig, StatusRange};
use proptest::prelude::*;

#[test]
fn parses_durations_and_sizes() {
    for (text, millis) in [("50ms", 50), ("2s", 2_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)] {
        assert_eq!(text.parse(), Ok(DurationConfig::from_millis(millis)), "{text}");
    }
    for (text, count) in [("64KiB", 65_536), ("16MiB", 16 << 20), ("4kB", 4_000), ("7", 7), ("7B", 7)] {
        assert_eq!(text.parse(), Ok(BytesConfig(count)), "{text}");
    }
}

#[test]
fn errors_quote_the_text_and_suggest_the_right_form() {
    let time = "50 bananas".parse::<DurationConfig>().unwrap_err().to_string();
    assert!(time.contains("`50 bananas`") && time.contains("as in `50ms`"), "{time}");
    let size = "16mb".parse::<BytesConfig>().unwrap_err().to_string();
    assert!(size.contains("`16mb`") && size.contains("MiB"), "{size}");
    for text in ["", "ms", "-1s", "1.5s", " 1s", "1s ", "99999999999999999999s", "18446744073709551615h"] {
        assert!(text.parse::<DurationConfig>().is_err(), "{text}");
    }
    for text in ["", "MiB", "-1", "1.5MiB", "16777216TiB"] {
        assert!(text.parse::<BytesConfig>().is_err(), "{text}");
    }
}

#[test]
fn writes_durations_and_sizes_in_the_largest_exact_unit() {
    for text in ["0s", "1ns", "1500us", "90s", "61m", "1h", "1500ms"] {
        assert_eq!(text.parse::<DurationConfig>().unwrap().to_string(), text);
    }
    for text in ["0", "7", "1023", "4kB", "64KiB", "1025MiB"] {
        assert_eq!(text.parse::<BytesConfig>().unwrap().to_string(), text);
    }
    assert_eq!(DurationConfig::from_secs(7200).to_string(), "2h");
    assert_eq!(BytesConfig::kib(2048).to_string(), "2MiB");
}

#[test]
fn parses_rates() {
    let seconds = time::Duration::from_secs;
    for (text, count, span) in [("100/s", 100, 1), ("6000/m", 6000, 60), ("01/h", 1, 3600)] {
        assert_eq!(text.parse(), Ok(PerTime { count, span: seconds(span) }), "{text}");
    }
    for (text, millis, span) in [("500ms/s", 500, 1), ("2m/h", 120_000, 3600)] {
        let cpu = time::Duration::from_millis(millis);
        assert_eq!(text.parse(), Ok(CpuPerTime { cpu, span: seconds(span) }), "{text}");
    }
    for text in
        ["", "/s", "0/s", "+1/s", "-1/s", "1/", "1/ms", "1/2s", "1/s/s", "99999999999999999999/s", "1s/s"]
    {
        assert!(text.parse::<PerTime>().is_err(), "{text}");
    }
    for text in ["", "/s", "0ms/s", "1/s", "1ms/0s", "1ms/us", "1MiB/s", "1 ms/s"] {
        assert!(text.parse::<CpuPerTime>().is_err(), "{text}");
    }
    assert!("x".parse::<PerTime>().unwrap_err().to_string().contains("write 100/s"));
}

#[test]
fn parses_percentages_and_statuses() {
    for (text, part) in [("20%", 20), ("0%", 0), ("100%", 100), ("007%", 7)] {
        assert_eq!(text.parse(), Ok(PercentConfig(part)), "{text}");
    }
    for text in ["", "%", "20", "101%", "-1%", "+1%", "1.5%", "20 %", "256%"] {
        assert!(text.parse::<PercentConfig>().is_err(), "{text}");
    }
    for (text, from, to) in [("204", 204, 204), ("200-299", 200, 299), ("100-599", 100, 599)] {
        assert_eq!(text.parse(), Ok(StatusRange { from, to }), "{text}");
    }
    for text in ["", "-", "200-", "-299", "299-200", "99", "600", "200-299-300", "2xx", "+200"] {
        assert!(text.parse::<StatusRange>().is_err(), "{text}");
    }
    let plain = serde_json::from_str::<StatusRange>("204").unwrap();
    assert_eq!((plain.from, plain.to, plain.to_string().as_str()), (204, 204, "204"));
}

#[test]
fn only_the_url_is_required_and_unknown_keys_are_errors() {
    let config: ServiceConfig = serde_json::from_str(r#"{ "url": "http://a" }"#).unwrap();
    assert_eq!(config.timeout, DurationConfig::from_secs(10));
    assert_eq!(config.url.as_slice(), ["http://a"]);
    let typo = serde_json::from_str::<ServiceConfig>(r#"{ "url": "http://a", "timeuot": "1s" }"#);
    assert!(typo.unwrap_err().to_string().contains("timeuot"));
}

#[test]
fn the_schema_shows_defaults_and_patterns() {
    let schema = serde_json::to_value(schemars::schema_for!(ServiceConfig)).unwrap();
    assert_eq!(schema["properties"]["timeout"]["default"], "10s");
    assert_eq!(schema["$defs"]["DurationConfig"]["type"], "string");
    assert_eq!(schema["additionalProperties"], false);
}

proptest! {
    #[test]
    fn parsing_and_display_round_trip(
        count: u64, time in "ns|us|ms|s|m|h", size in "B|kB|KiB|MB|MiB|GB|GiB|TB|TiB|"
    ) {
        if let Ok(duration) = format!("{count}{time}").parse::<DurationConfig>() {
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
        if let Ok(bytes) = format!("{count}{size}").parse::<BytesConfig>() {
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
    }

    #[test]
    fn parsing_never_panics(text: String) {
        let _ = text.parse::<DurationConfig>();
        let _ = text.parse::<BytesConfig>();
    }
}
