//! Fuzz targets for the config, for credentials, and for the headers of pages and proxies. See
//! `fuzz/src/lib.rs`.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, header};
use services::{CallerId, ToProblem};

use crate::auth::authn::{IdentityProviders, KeySet};
use crate::config::cors::is_origin_pattern;
use crate::config::trusted_proxies::parse_network;
use crate::config::{self, CorsConfig};
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::cors::AllowedOrigins;
use crate::http_semantics::trusted_proxies::TrustedProxies;

#[test]
fn every_config_is_read_or_has_described_mistakes() {
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
        "deadline: ",
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
fn never_allows_unlisted_origins() {
    let words =
        &["http://", "https://", "a.example", ":", "80", "443", "*", ":*", "null", "[::1]", "@", "/", "evil"];
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let (pattern, origin) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let _ = is_origin_pattern(text);
        let request =
            Request::get("/").header(header::HOST, "gateway.example").header(header::ORIGIN, origin);
        let Ok(request) = request.body(()) else { return };
        if !is_origin_pattern(pattern) || pattern.contains('*') || pattern == "null" {
            return;
        }
        let client = ClientInfo::for_tests();
        let origins = AllowedOrigins::new(Some(&CorsConfig::with_origins([pattern])), &Arc::default());
        let mut headers = HeaderMap::new();
        origins.set_response_headers(
            origins.classify(&request, &client),
            request.headers().get(header::ORIGIN),
            &mut headers,
        );
        let bare = |text: &str| text.trim_end_matches(":80").trim_end_matches(":443").to_ascii_lowercase();
        let allowed = headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        assert!(!allowed || bare(pattern) == bare(origin), "{origin} by {pattern}");
    });
}

#[test]
fn key_set_is_parsed_or_rejected_without_shared_secrets() {
    use jsonwebtoken::Algorithm::{ES256, EdDSA, HS256, PS256, RS256};
    let words = &[
        r#"{"keys":["#,
        "]}",
        "{",
        "}",
        ",",
        r#""kty":"EC""#,
        r#""kty":"RSA""#,
        r#""kty":"OKP""#,
        r#""kty":"oct""#,
        r#""crv":"P-256""#,
        r#""crv":"Ed25519""#,
        r#""k":"c2VjcmV0""#,
        r#""n":"AQAB""#,
        r#""e":"AQAB""#,
        r#""x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU""#,
        r#""y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#,
        r#""use":"sig""#,
        r#""use":"enc""#,
        r#""key_ops":["verify"]"#,
        r#""alg":"HS256""#,
        r#""alg":"ES256""#,
        r#""kid":"a""#,
        "null",
        "[",
        "\\u0000",
    ];
    ::fuzz::check(words, |text: &[u8]| match KeySet::parse(text, &[ES256, EdDSA, HS256, PS256, RS256]) {
        Ok(keys) => assert!(keys.find(None, HS256).is_err(), "anybody may read a key set"),
        Err(reason) => assert!(!reason.is_empty()),
    });
}

/// The public key of RFC 7515, A.3.
const PUBLIC: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a",
    "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// Authentication with tokens of the issuer, whose keys are in this field and file, or with a key.
fn identity(field: &str, keys: &str) -> IdentityProviders {
    let text = format!(
        "
routes: []
auth: {{ jwt: {{ issuer: login, audience: shop, {field} }} }}
callers: {{ batch: {{ key: 'sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8' }} }}
"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), keys).unwrap();
    let config = config::read_text(&text, &folder.path().join("orfa.yaml")).unwrap();
    IdentityProviders::new(&config, None).unwrap()
}

#[test]
fn never_authenticates_without_the_secret() {
    let secret = "a secret that is as long as one has to be";
    let by = [identity("secret: '${file:keys}'", secret), identity("jwks: keys", PUBLIC)];
    let words = &[
        "Bearer ",
        ".",
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJhbGciOiJub25lIn0",
        "eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ",
        "eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ",
        "eyJpc3MiOiJsb2dpbiIsImF1ZCI6InNob3AiLCJleHAiOjk5OTk5OTk5OTksInN1YiI6ImJhdGNoIn0",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        "=",
        "-",
        "_",
        "batch",
    ];
    ::fuzz::run("credentials", words, |text: &[u8]| {
        let Ok(value) = HeaderValue::from_bytes(text) else { return };
        for (name, identity) in
            ["authorization", "x-api-key"].iter().flat_map(|name| by.iter().map(move |by| (*name, by)))
        {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.clone())]);
            match identity.identify(&headers, None).now_or_never().expect("the keys are known") {
                Ok(principal) => assert_eq!(principal.caller, CallerId::Anonymous, "{value:?}"),
                Err(refused) => assert!(refused.status().is_client_error(), "{value:?}"),
            }
        }
    });
}

#[test]
fn ignores_forwarding_headers_of_untrusted_peers() {
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
    let networks = ["10.0.0.0/8".to_owned(), "2001:db8::1".to_owned()];
    let [stranger, proxy] = ["192.0.2.1", "10.0.0.1"].map(|text| text.parse().unwrap());
    ::fuzz::run("forwarded_headers", words, |text: &[u8]| {
        let _ = std::str::from_utf8(text).ok().and_then(parse_network);
        let Ok(value) = HeaderValue::from_bytes(text) else { return };
        for name in ["forwarded", "x-forwarded-for"] {
            let trusted = TrustedProxies::new(&networks, name);
            let mut request = Request::new(());
            request.headers_mut().insert(name, value.clone());
            assert_eq!(trusted.proxied_client(stranger, false, request.headers()), None);
            let client = trusted.proxied_client(proxy, false, request.headers()).expect("a trusted peer");
            trusted.write_forwarded(&client, &mut request);
        }
    });
}
