//! The config, whoever wrote it, and what pages and proxies say of themselves. See `fuzz/src/lib.rs`.

use std::path::Path;

use http::{HeaderMap, Request, header};

use crate::config::{self, CorsConfig};
use crate::cors::{self, Origins};

#[test]
fn a_config_is_read_or_every_mistake_has_words() {
    let words = &[
        "listen: ",
        "127.0.0.1:80",
        "services:",
        "\n",
        " ",
        "  ",
        "- ",
        "{ ",
        "}",
        "[",
        "]",
        ", ",
        "a: ",
        "url: ",
        "http://a",
        "routes:",
        "path: ",
        "/a",
        "/*",
        "proxy: ",
        "query: ",
        "limits: ",
        "cpu: ",
        "50ms",
        "1KiB",
        "${",
        "env:",
        "file:",
        "PATH",
        "}",
        "$${",
        "&x ",
        "*x",
        "'",
        "\"",
        "|",
        ">",
        "#",
        "!!str ",
        "~",
        "true",
        "0x1f",
        ".inf",
        "? ",
        "<<: ",
        "---",
        "...",
        "cors: ",
        "origins: ",
        "'*'",
        "null",
        "drain: ",
        "timeout: ",
        "runtime: ",
        "{ path: /a, ",
    ];
    ::fuzz::check!(words, |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        if let Err(mistakes) = config::read_text(text, Path::new("orfa.yaml")) {
            assert!(
                !mistakes.is_empty() && mistakes.iter().all(|mistake| !mistake.message.is_empty()),
                "{text}"
            );
        }
    });
}

#[test]
fn an_origin_without_leave_gets_none() {
    let words =
        &["http://", "https://", "a.example", ":", "80", "443", "*", ":*", "null", "[::1]", "@", "/", "evil"];
    ::fuzz::check!(words, |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let (pattern, origin) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let _ = cors::is_pattern(text);
        let request =
            Request::get("/").header(header::HOST, "gateway.example").header(header::ORIGIN, origin);
        let Ok(request) = request.body(()) else { return };
        if !cors::is_pattern(pattern) || pattern.contains('*') || pattern == "null" {
            return;
        }
        let origins = Origins::new(Some(&CorsConfig::of([pattern])), false);
        let mut headers = HeaderMap::new();
        origins.mark(origins.judge(&request), request.headers().get(header::ORIGIN), &mut headers);
        let bare = |text: &str| text.trim_end_matches(":80").trim_end_matches(":443").to_ascii_lowercase();
        let allowed = headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        assert!(!allowed || bare(pattern) == bare(origin), "{origin} by {pattern}");
    });
}
