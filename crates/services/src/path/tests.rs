//! Properties of URLs and paths: accepted paths are sent unchanged, and never climb.

use super::{
    DecodedPath, PathError, PathGlob, check_path, check_start, has_dot_segment, is_safe_segment,
    lenient_path, normalize_target, parse_target, percent_encode,
};
use crate::ToProblem;
use proptest::prelude::*;

fn error_code(url: &str) -> &'static str {
    parse_target(url).map_or_else(|error| error.code(), |_| "ok")
}

#[test]
fn finds_dot_segments_in_any_encoding() {
    for path in ["/..", "/a/./b", "/%2e%2E", "/a/..;x=1", "/a%2F..", "/a%5C..", "/50%/.."] {
        assert!(has_dot_segment(path), "{path}");
    }
    for path in ["/", "/...", "/a..b", "/.a", "/a%zz", "/;..", "/%252e"] {
        assert!(!has_dot_segment(path), "{path}");
    }
}

#[test]
fn parses_a_url_into_service_and_path() {
    let target = parse_target("http://catalog/catalogs?buyer=7&sort=-created").unwrap();
    assert_eq!(target.service, "catalog");
    assert_eq!(target.path_and_query, "/catalogs?buyer=7&sort=-created");
    assert_eq!(parse_target("http://catalog").unwrap().path_and_query, "/");
    assert_eq!(parse_target("http://catalog?x=1").unwrap().path_and_query, "/?x=1");
    assert_eq!(parse_target("HTTP://a/b//c").unwrap().path_and_query, "/b//c");
}

#[test]
fn rejects_each_trick_with_its_own_code() {
    for (url, expected) in [
        ("/buyers", "url-invalid"),
        ("http:///buyers", "url-invalid"),
        ("http://pro file/", "url-invalid"),
        ("http://profile.evil.example/", "url-invalid"),
        ("http://[::1]/", "url-port"),
        ("http://profile/a b", "url-invalid"),
        ("http://profile/\u{e9}", "url-invalid"),
        ("http://profile/a\r\nb", "url-invalid"),
        ("https://profile/", "url-scheme"),
        ("file://profile/", "url-scheme"),
        ("http://admin@profile/", "url-userinfo"),
        ("http://profile:80@evil/", "url-userinfo"),
        ("http://profile:80/", "url-port"),
        ("http://profile/#x", "url-fragment"),
        ("http://profile/a/../b", "path-dot-segment"),
        ("http://profile/..", "path-dot-segment"),
        ("http://profile/./a", "path-dot-segment"),
        ("http://profile/%2e%2E/a", "path-dot-segment"),
        ("http://profile/.%2e/a", "path-dot-segment"),
        ("http://profile/%252e%252E/a", "path-dot-segment"),
        ("http://profile/a/..;x=1/b", "path-dot-segment"),
        ("http://profile/a/..%3Bx/b", "path-dot-segment"),
        ("http://profile/a%2f..%2fb", "path-dot-segment"),
        ("http://profile/a%5c..", "path-dot-segment"),
        ("http://profile/a%2Fb", "path-encoded-slash"),
        ("http://profile/a%5Cb", "path-backslash"),
        ("http://profile/a\\b", "path-backslash"),
        ("http://profile\\b", "path-backslash"),
        ("http://profile/a%00", "path-control-character"),
        ("http://profile/a%0d%0ab", "path-control-character"),
        ("http://profile/a%zz", "path-bad-escape"),
        ("http://profile/a%2", "path-bad-escape"),
    ] {
        assert_eq!(error_code(url), expected, "{url:?}");
    }
}

#[test]
fn accepts_unusual_but_harmless_paths() {
    for url in [
        "http://a/...",
        "http://a/.well-known/x",
        "http://a/x.json",
        "http://a/b;v=1",
        "http://a/b?path=../../c%2F%00",
        "http://a_1/b",
    ] {
        assert_eq!(error_code(url), "ok", "{url:?}");
    }
}

#[test]
fn globs_match_paths() {
    let open = |pattern: &str, path: &str| PathGlob::parse(pattern).unwrap().matches(path);
    for (pattern, path) in [
        ("/", "/"),
        ("/buyers", "/buyers"),
        ("/buyers", "//buyers"),
        ("/buyers", "/%62uyers"),
        ("/buyers/*", "/buyers/7"),
        ("/buyers/*", "/buyers/7/rating"),
        ("/buyers/*", "/buyers/"),
        ("/*", "/"),
        ("/*", "/a/b"),
        ("/v*/items", "/v12/items"),
        ("/buyers/*/rating", "/buyers/7/rating"),
        ("/**/rating", "/rating"),
        ("/**/rating", "/a/b/rating"),
        ("/a/**", "/a"),
        ("/**", "/"),
        ("/*.json", "/a.b.json"),
    ] {
        assert!(open(pattern, path), "{pattern} should match {path}");
    }
    for (pattern, path) in [
        ("/", "/a"),
        ("/buyers", "/buyers/"),
        ("/buyers", "/Buyers"),
        ("/buyers", "/buyersx"),
        ("/buyers/*", "/buyers"),
        ("/buyers/*/rating", "/buyers/7/8/rating"),
        ("/v*/items", "/v1/2/items"),
        ("/**/rating", "/rating/x"),
    ] {
        assert!(!open(pattern, path), "{pattern} should not match {path}");
    }
    let deep = |segments: usize| "/a".repeat(segments);
    assert!(open("/a/**", &deep(256)));
    assert!(!open("/a/**", &deep(257)));
    assert!(PathGlob::parse(&deep(256)).is_ok() && PathGlob::parse(&deep(257)).is_err());
}

#[test]
fn globs_match_paths_without_parameters() {
    let open = |pattern: &str, path: &str| {
        PathGlob::parse(pattern).unwrap().matches_decoded(&DecodedPath::without_parameters(path))
    };
    for (pattern, path) in [
        ("/files/secret", "/files/secret;.public"),
        ("/files/secret", "/files/secret%3b.public"),
        ("/files/secret", "/files;a;b/secret;c="),
        ("/files/*.public", "/files/a.public;v=1"),
        ("/tenants/public", "/tenants/;/public"),
        ("/tenants/", "/tenants/;x"),
        // Nothing is decoded twice, and characters that are not ASCII are decoded once.
        ("/caf\u{e9}", "/caf%C3%A9;v=1"),
        ("/a", "/a"),
    ] {
        assert!(open(pattern, path), "{pattern} should match {path}");
    }
    for (pattern, path) in [
        ("/files/*.public", "/files/secret;.public"),
        ("/tenants/*/public", "/tenants/;/public"),
        ("/a", "/a%253bx"),
        ("/a", "/a%zz;x"),
    ] {
        assert!(!open(pattern, path), "{pattern} should not match {path}");
    }
}

#[test]
fn rejects_invalid_globs() {
    for pattern in ["buyers", "", "/a?b", "/a%20b", "/a**b"] {
        assert!(PathGlob::parse(pattern).is_err(), "{pattern:?}");
    }
}

#[test]
fn matching_many_wildcards_is_fast() {
    let glob = PathGlob::parse(&"/**/a".repeat(20)).unwrap();
    assert!(!glob.matches(&format!("{}/b", "/a".repeat(5_000))));
}

/// Returns texts in which path tricks are likely.
fn tricky_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/"),
        Just("."),
        Just(".."),
        Just("%2e"),
        Just("%2F"),
        Just("%5c"),
        Just("%25"),
        Just("\\"),
        Just(";"),
        Just("?"),
        Just("#"),
        Just("@"),
        Just(":"),
        Just("a"),
        Just("%0a"),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn accepted_paths_never_climb(rest in tricky_text()) {
        if let Ok(target) = parse_target(&format!("http://a{rest}")) {
            let once = super::percent_decode(target.path_and_query.path()).unwrap();
            let text = String::from_utf8(once).unwrap();
            prop_assert!(text.split(['/', '\\']).all(|segment| segment != "." && segment != ".."));
            prop_assert_eq!(text.matches('/').count(), target.path_and_query.path().matches('/').count());
        }
    }

    #[test]
    fn accepted_urls_round_trip(rest in tricky_text()) {
        if let Ok(target) = parse_target(&format!("http://a{rest}")) {
            prop_assert_eq!(parse_target(&target.to_string()), Ok(target));
        }
    }

    #[test]
    fn parsing_never_panics(url: String) {
        let _ = parse_target(&url);
        let _: Result<(), PathError> = check_path(&url);
        if let Ok(glob) = PathGlob::parse(&url) {
            let _ = glob.matches(&url);
        }
    }
}

#[test]
fn reading_is_that_of_a_lenient_server() {
    let read = |path: &str| lenient_path(path).map(|reading| reading.unwrap_or_else(|| path.to_owned()));
    for (path, expected) in [
        ("/admin/x", "/admin/x"),
        ("/%61dmin/x", "/admin/x"),
        ("//admin///x", "/admin/x"),
        ("/admin;v=1/x;w", "/admin/x"),
        ("/a%2Fadmin", "/a/admin"),
        ("/a/", "/a/"),
        ("/x.json", "/x.json"),
        ("/caf%C3%A9;v=1/%20", "/caf%C3%A9/ "),
        ("/", "/"),
    ] {
        assert_eq!(read(path).unwrap(), expected, "{path}");
    }
    for path in [
        "/a/../b",
        "/a/%2e%2e/b",
        "/a/%252e%252e/b",
        "/%25zz/%252e%252e/b",
        "/%25zz%252f../b",
        "/a/..;/b",
        "/a%2f..%2fb",
    ] {
        assert_eq!(lenient_path(path), Err(PathError::DotSegment), "{path}");
    }
    assert_eq!(lenient_path("/a%5Cb"), Err(PathError::Backslash));
    assert_eq!(lenient_path("/a%00"), Err(PathError::ControlCharacter));
    assert_eq!(lenient_path("/a%zz"), Err(PathError::BadEscape));
}

#[test]
fn recognizes_values_that_can_be_segments() {
    for text in ["a", "a.b", "...", ".a", "..a;x", "a;..", "100%", "caf\u{e9}", " ", ";x", "%41"] {
        assert!(is_safe_segment(text), "{text}");
    }
    for text in ["", ".", "..", "..;x", ".;", "%2e%2e", "%2E;x", "a%2f..", "a/b", "a\\b", "a\0", "\u{85}"] {
        assert!(!is_safe_segment(text), "{text}");
    }
}

proptest! {
    #[test]
    fn segments_pass_the_path_checks(text in "[a.;%2e5/\\\\ ]{0,6}") {
        if is_safe_segment(&text) {
            let path = format!("/a/{}", percent_encode(&text));
            prop_assert_eq!(check_path(&path), Ok(()));
        }
    }
}

#[test]
fn rejects_an_empty_first_segment() {
    for path in [
        "//x",
        "//evil.example/x",
        "///x",
        "//",
        "/;/x",
        "/;a=b/x",
        "/;a//x",
        "/%2Fx",
        "/%2fevil.example/x",
        "/%3b/x",
        "/%3Ba=b/x",
        "/%5cx",
        "/%20/x",
        "/%252fx",
        "/%253b/x",
    ] {
        assert_eq!(check_start(path), Err(PathError::EmptySegment), "{path}");
    }
    for path in ["/", "/x", "/x//y", "/;a=b", "/%20", "/%20x/y", "/x;a//y", "/%252f", "/a%2fb"] {
        let expected = if path == "/%252f" { Err(PathError::EmptySegment) } else { Ok(()) };
        assert_eq!(check_start(path), expected, "{path}");
    }
}

#[test]
fn converts_targets_to_normal_form() {
    for (target, expected) in [
        ("/%61dmin/%7Eann/%2D%2e%5f%39", "/admin/~ann/-._9"),
        ("/a%2E%2e/%2e%2E/b", "/a../../b"),
        ("/caf\u{e9}/\u{85}\u{202e}?q=\u{9b}", "/caf%C3%A9/%C2%85%E2%80%AE?q=%C2%9B"),
        // The query is not normalized.
        ("/%61?b=%61&c=\u{e9}", "/a?b=%61&c=%C3%A9"),
    ] {
        assert_eq!(normalize_target(target).as_deref(), Some(expected), "{target}");
        assert_eq!(normalize_target(expected), None, "{expected}");
    }
    for target in ["/", "*", "/a?b", "/%2F%5c%00%25%3b%20", "/%252e%252e/x", "/%C3%A9", "/?%61"] {
        assert_eq!(normalize_target(target), None, "{target}");
    }
}

#[test]
fn a_malformed_escape_prevents_decoding() {
    for target in ["/%%32e%%32e/x", "/%2%35/%61", "/%61%", "/%6", "/%zz%61"] {
        assert_eq!(normalize_target(target), None, "{target}");
        assert_eq!(lenient_path(target), Err(PathError::BadEscape), "{target}");
    }
}

proptest! {
    #[test]
    fn the_normal_form_is_equivalent_and_idempotent(target in "/[a%.2eE5/?;\u{80}-\u{a0}\u{202e}]{0,16}") {
        let normal = normalize_target(&target).unwrap_or_else(|| target.clone());
        prop_assert!(normal.is_ascii());
        prop_assert_eq!(normalize_target(&normal), None);
        let decoded = |text: &str| text.split('?').next().map(super::percent_decode);
        prop_assert_eq!(decoded(&normal), decoded(&target));
    }
}
