//! Fuzz tests of parsers for untrusted service names, paths, headers and numbers: see `fuzz/src/lib.rs`.

use std::fmt::{Debug, Display};
use std::str::{FromStr, from_utf8};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::{
    BytesConfig, CpuPerTime, DurationConfig, PerTime, PercentConfig, ServiceConfig, StatusRange,
};
use crate::path::{self, PathGlob};
use crate::{PermittedHosts, ServiceSet, headers};

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

#[test]
fn a_target_stays_below_its_service() {
    let words =
        &["http://", "up", "/", "..", ".", "%2e", "%2F", "%5c", "\\", "?", "#", "@", ":80", ";", "//", "%00"];
    ::fuzz::run("call_targets", words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        let _ = (path::check_path(text), path::lenient_path(text));
        let Ok(target) = path::parse_target(text) else { return };
        let path = target.path_and_query.path();
        assert!(path::is_service_name(&target.service), "{text}");
        assert!(path.starts_with('/') && path.split('/').all(|segment| segment != ".."), "{text}");
        assert_eq!(path::check_path(path), Ok(()), "{text}");
    });
}

#[test]
fn a_glob_matches_itself_in_bounded_time() {
    let words = &["/", "*", "**", "a", "ab", "/*", "/**/", "%2e", "."];
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        let (pattern, path) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let Ok(glob) = PathGlob::parse(pattern) else { return };
        let _ = glob.matches(path);
        assert!(pattern.contains('*') || glob.matches(pattern), "{pattern}");
    });
}

#[test]
fn host_names_round_trip() {
    let words =
        &["a", ".", "*", "example.org", ":", "80", "[", "]", "::1", "10.0.0.1", "/8", "ffff:", "@", "-"];
    let all = PermittedHosts::new(&["*".to_owned()]).unwrap();
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        let _ = PermittedHosts::new(&[text.to_owned()]);
        let Some(host) = all.find_service(text, false) else { return };
        let again = all.find_service(host.name(), false).unwrap();
        assert!(Arc::ptr_eq(&host, &again), "{text}");
    });
}

#[test]
fn headers_from_outside_are_checked_and_stripped() {
    let words = &[
        "connection",
        "te",
        "cdn-loop",
        "forwarded",
        "via",
        "host",
        "orfa-input",
        "x-forwarded-for",
        "keep-alive",
        "\n",
        ":",
        ", ",
        "for=",
        "\"",
        "_",
        "orfa;v=1",
        "close",
    ];
    ::fuzz::run("request_headers", words, |text: &[u8]| {
        let mut map = HeaderMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            let mut halves = line.splitn(2, |byte| *byte == b':');
            let name = halves.next().and_then(|name| HeaderName::from_bytes(name).ok());
            let value = halves.next().and_then(|value| HeaderValue::from_bytes(value).ok());
            if let (Some(name), Some(value)) = (name, value) {
                map.append(name, value);
            }
        }
        let _ = (headers::check_program_headers(&map), headers::count_hops(&map));
        headers::strip_hop_by_hop(&mut map);
        assert!(!map.contains_key(http::header::CONNECTION));
        let mut head = http::Request::new(()).into_parts().0;
        head.headers = map;
        headers::mark_forwarded(&mut head, None);
    });
}

#[test]
fn invalid_service_configs_are_refused_with_a_message() {
    let words =
        &["http://", "https://", "a", ":80", "/", "%2e", "x-api-key", "*", "..", "@", "[::1]", "\r\n"];
    ::fuzz::check(words, |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let mut config = ServiceConfig::with_url(text.clone());
        config.paths = vec![text.clone()];
        config.forward = vec![text.clone()];
        config.headers = [(text.clone(), text.clone())].into();
        let problems = ServiceSet::new(&[(text, config)].into()).err().unwrap_or_default();
        assert!(problems.iter().all(|problem| !problem.message.is_empty()));
    });
}
