//! Fuzz tests of untrusted paths and path patterns: see `fuzz/src/lib.rs`.

use std::str::from_utf8;

use super::{PathGlob, check_path, is_service_name, lenient_path, parse_target};

#[test]
fn a_target_stays_below_its_service() {
    let words =
        &["http://", "up", "/", "..", ".", "%2e", "%2F", "%5c", "\\", "?", "#", "@", ":80", ";", "//", "%00"];
    ::fuzz::run("call_targets", words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        let _ = (check_path(text), lenient_path(text));
        let Ok(target) = parse_target(text) else { return };
        let path = target.path_and_query.path();
        assert!(is_service_name(&target.service), "{text}");
        assert!(path.starts_with('/') && path.split('/').all(|segment| segment != ".."), "{text}");
        assert_eq!(check_path(path), Ok(()), "{text}");
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
