//! The config, whoever wrote it, and what pages and proxies say of themselves. See `fuzz/src/lib.rs`.

use std::path::Path;

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, header};
use services::{Caller, Problem};

use crate::config::{self, CorsConfig, CpuPerTime, PerTime};
use crate::cors::{self, Origins};
use crate::identity::Identity;
use crate::trusted::{TrustedProxies, network};

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
    ::fuzz::check(words, |text: &[u8]| {
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
    ::fuzz::check(words, |text: &[u8]| {
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

#[test]
fn a_rate_is_read_or_refused() {
    let words = &["0", "1", "18446744073709551615", "/", "s", "m", "h", "ms", "us", "ns", "-", "."];
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let rate: Result<PerTime, _> = text.parse();
        assert!(rate.is_err() || rate.is_ok_and(|rate| rate.count > 0 && !rate.span.is_zero()), "{text}");
        let rate: Result<CpuPerTime, _> = text.parse();
        assert!(
            rate.is_err() || rate.is_ok_and(|rate| !rate.cpu.is_zero() && !rate.span.is_zero()),
            "{text}"
        );
    });
}

#[test]
fn nobody_is_somebody_without_the_secret() {
    let text = "
routes: []
auth: { jwt: { issuer: login, audience: shop, secret: '${file:secret}' } }
callers: { batch: { key: 'sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8' } }
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "a secret that is as long as one has to be").unwrap();
    let config = config::read_text(text, &folder.path().join("orfa.yaml")).unwrap();
    let identity = Identity::new(&config, None).unwrap();
    let words = &[
        "Bearer ",
        ".",
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJhbGciOiJub25lIn0",
        "eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ",
        "eyJpc3MiOiJsb2dpbiIsImF1ZCI6InNob3AiLCJleHAiOjk5OTk5OTk5OTksInN1YiI6ImJhdGNoIn0",
        "=",
        "-",
        "_",
        "batch",
    ];
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(value) = HeaderValue::from_bytes(text) else { return };
        for name in ["authorization", "x-api-key"] {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.clone())]);
            match identity.identify(&headers, None).now_or_never().expect("the secret is known") {
                Ok(who) => assert_eq!(who.caller, Caller::Anonymous, "{value:?}"),
                Err(refused) => assert!(refused.status().is_client_error(), "{value:?}"),
            }
        }
    });
}

#[test]
fn whoever_is_not_trusted_speaks_for_nobody() {
    let words = &[
        "for=",
        "FOR=",
        "\"",
        "[",
        "]",
        "2001:db8::1",
        "10.0.0.1",
        "198.51.100.7",
        ":",
        "4711",
        ",",
        ";",
        "by=",
        "_hidden",
        "/8",
        "unknown",
        "%",
        "proto=https",
        " ",
    ];
    let trusted = TrustedProxies::new(&["10.0.0.0/8".to_owned(), "2001:db8::1".to_owned()]);
    let [stranger, proxy] = ["192.0.2.1", "10.0.0.1"].map(|text| text.parse().unwrap());
    ::fuzz::check(words, |text: &[u8]| {
        let _ = std::str::from_utf8(text).ok().and_then(network);
        let Ok(value) = HeaderValue::from_bytes(text) else { return };
        for name in ["forwarded", "x-forwarded-for"] {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.clone())]);
            assert_eq!(trusted.client(stranger, &headers), stranger);
            let _ = trusted.client(proxy, &headers);
        }
    });
}
