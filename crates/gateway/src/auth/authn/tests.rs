//! Tests of the identification of callers and of invalid credentials.

mod issuer;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use services::ToProblem;

use super::*;
use crate::config::api_key::hash_key;
use crate::config::read_text;
use issuer::{JwksServer, JwksServerResponse, TestIssuer, claims};

const KEY: &str = "a-long-and-random-key-of-the-shop";

fn key_hash(key: &str) -> String {
    let hash = hash_key(key).unwrap();
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn build_identity(yaml: &str, folder: &Path) -> IdentityProviders {
    let config = read_text(&format!("routes: []\n{yaml}"), &folder.join("orfa.yaml")).unwrap();
    IdentityProviders::new(&config, None).unwrap()
}

fn identity_with_keys(yaml: &str) -> IdentityProviders {
    build_identity(
        &format!("{yaml}\ncallers: {{ shop: {{ key: '{}', groups: [partners] }} }}", key_hash(KEY)),
        Path::new(""),
    )
}

/// An identity whose issuer's keys are in a file.
fn identity_with_file(issuer: &TestIssuer, more: &str) -> IdentityProviders {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.json"), issuer.keys("ec")).unwrap();
    let jwt = "issuer: 'https://login.example', audience: shop, jwks: keys.json";
    build_identity(&format!("auth: {{ jwt: {{ {jwt} }} }}\n{more}"), folder.path())
}

/// An identity that fetches the issuer's keys.
fn identity_with_server(server: &JwksServer) -> IdentityProviders {
    let jwt =
        format!("issuer: 'https://login.example', audience: shop, jwks: 'http://{}/keys'", server.address);
    build_identity(&format!("auth: {{ jwt: {{ {jwt} }} }}"), Path::new(""))
}

fn header_map(headers: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn bearer_headers(token: &str) -> HeaderMap {
    header_map(&[("authorization", &format!("Bearer {token}"))])
}

async fn expect_refusal(identity: &IdentityProviders, headers: &HeaderMap) -> AuthenticationError {
    identity.identify(headers, None).await.expect_err("no caller should be identified")
}

fn named_caller(name: &str) -> CallerId {
    CallerId::Named(name.into())
}

#[tokio::test]
async fn identifies_callers_by_key() {
    let identity = identity_with_keys("");
    let principal = identity.identify(&header_map(&[("x-api-key", KEY)]), None).await.unwrap();
    assert_eq!((&principal.caller, &*principal.groups[0]), (&named_caller("shop"), "partners"));
    let identity = identity_with_keys("auth: { keys: { header: authorization } }");
    for scheme in ["Bearer", "bearer", "BEARER "] {
        let headers = header_map(&[("authorization", &format!("{scheme} {KEY}"))]);
        assert_eq!(identity.identify(&headers, None).await.unwrap().caller, named_caller("shop"));
    }
}

#[tokio::test]
async fn refuses_unknown_keys() {
    let identity = identity_with_keys("");
    for key in ["", "wrong", &KEY[1..], &format!("{KEY}x"), &key_hash(KEY)] {
        let refusal = expect_refusal(&identity, &header_map(&[("x-api-key", key)])).await;
        assert_eq!((refusal.code(), refusal.status()), ("key-unknown", StatusCode::UNAUTHORIZED), "{key}");
        assert!(refusal.headers()["www-authenticate"].to_str().unwrap().contains("header=\"x-api-key\""));
        assert!(key.is_empty() || !refusal.to_string().contains(key));
    }
}

#[tokio::test]
async fn ignores_keys_in_other_headers() {
    let identity = identity_with_keys("");
    for other in [header_map(&[("x-key", KEY)]), bearer_headers(KEY), header_map(&[("authorization", KEY)])] {
        assert_eq!(identity.identify(&other, None).await.unwrap().caller, CallerId::Anonymous);
    }
}

#[tokio::test]
async fn refuses_several_credentials() {
    let issuer = TestIssuer::new();
    let token = format!("Bearer {}", issuer.valid_token());
    let identity =
        identity_with_file(&issuer, &format!("callers: {{ shop: {{ key: '{}' }} }}", key_hash(KEY)));
    for (two, what) in [
        (header_map(&[("x-api-key", KEY), ("authorization", &token)]), "a key and a bearer token"),
        (
            header_map(&[("authorization", &token), ("authorization", &token)]),
            "the header `authorization` twice",
        ),
        (header_map(&[("authorization", &token), ("authorization", "Basic x")]), "`authorization` twice"),
        (header_map(&[("x-api-key", KEY), ("x-api-key", KEY)]), "the header `x-api-key` twice"),
    ] {
        let refusal = expect_refusal(&identity, &two).await;
        assert_eq!((refusal.code(), refusal.status()), ("credentials-several", StatusCode::BAD_REQUEST));
        assert!(refusal.to_string().contains(what), "{refusal}");
        assert!(refusal.headers()["www-authenticate"].to_str().unwrap().contains("invalid_request"));
    }
}

#[tokio::test]
async fn identifies_callers_and_groups_by_token() {
    let issuer = TestIssuer::new();
    let identity = identity_with_file(&issuer, "");
    for token in [issuer.valid_token(), issuer.valid_token_by("ec"), issuer.valid_token()] {
        let principal = identity.identify(&bearer_headers(&token), None).await.unwrap();
        assert_eq!(
            (&principal.caller, &*principal.groups[0]),
            (&CallerId::Subject("ann".into()), "partners")
        );
    }
    let providers = identity_with_file(&issuer, "callers: { boss: { subject: ann, groups: [admins] } }");
    let who = providers.identify(&bearer_headers(&issuer.valid_token()), None).await.unwrap();
    assert_eq!((&who.caller, who.groups.len()), (&named_caller("boss"), 2));
}

#[tokio::test]
async fn accepts_a_token_with_the_latest_end() {
    let issuer = TestIssuer::new();
    let identity = identity_with_file(&issuer, "");
    let token =
        issuer.token(&json!({ "alg": "RS256", "kid": "rsa" }), &claims_with("exp", u64::MAX.into()), b"");
    for _ in 0..2 {
        assert!(identity.identify(&bearer_headers(&token), None).await.is_ok());
    }
}

#[tokio::test]
async fn a_tokens_subject_is_not_a_configured_callers_name() {
    let issuer = TestIssuer::new();
    let identity =
        identity_with_file(&issuer, &format!("callers: {{ ann: {{ key: '{}' }} }}", key_hash(KEY)));
    let principal = identity.identify(&bearer_headers(&issuer.valid_token()), None).await.unwrap();
    assert_ne!(principal.caller, named_caller("ann"));
}

fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

#[tokio::test]
async fn refuses_invalid_tokens() {
    let issuer = TestIssuer::new();
    let identity = identity_with_file(&issuer, "");
    let rs = json!({ "alg": "RS256", "kid": "rsa" });
    let now = jsonwebtoken::get_current_timestamp();
    let signed = |claims: Value| issuer.token(&rs, &claims, b"");
    let headed = |header: Value| issuer.token(&header, &claims(), issuer.rsa_key());
    let good = issuer.valid_token();
    let (unsigned, other) = (good.rsplit_once('.').unwrap().0, signed(claims_with("sub", "eve".into())));
    let mut endless = claims();
    endless.as_object_mut().unwrap().remove("exp");
    let cases = [
        ("none", headed(json!({ "alg": "none", "kid": "rsa" })), BadToken::Malformed),
        ("no signature", format!("{unsigned}."), BadToken::Signature),
        ("RSA's key as a secret", headed(json!({ "alg": "HS256", "kid": "rsa" })), BadToken::Algorithm),
        ("another key's algorithm", headed(json!({ "alg": "ES256", "kid": "rsa" })), BadToken::UnknownKey),
        ("an algorithm not accepted", headed(json!({ "alg": "RS512", "kid": "rsa" })), BadToken::Algorithm),
        (
            "another's signature",
            format!("{unsigned}.{}", other.rsplit_once('.').unwrap().1),
            BadToken::Signature,
        ),
        ("another audience", signed(claims_with("aud", "bank".into())), BadToken::Audience),
        ("another issuer", signed(claims_with("iss", "https://evil.example".into())), BadToken::Issuer),
        ("several issuers", signed(claims_with("iss", json!(["https://login.example"]))), BadToken::Issuer),
        ("expired", signed(claims_with("exp", (now - 3600).into())), BadToken::Expired),
        ("not yet valid", signed(claims_with("nbf", (now + 3600).into())), BadToken::NotYetValid),
        (
            "not yet valid, as text",
            signed(claims_with("nbf", (now + 3600).to_string().into())),
            BadToken::Malformed,
        ),
        (
            "an end as text",
            signed(claims_with("exp", "never".into())),
            BadToken::MissingClaim("exp".to_owned()),
        ),
        ("no end", signed(endless), BadToken::MissingClaim("exp".to_owned())),
        ("no caller", signed(claims_with("sub", "".into())), BadToken::MissingCaller),
        ("a caller that is not text", signed(claims_with("sub", json!(["ann"]))), BadToken::Malformed),
        ("an unknown key", headed(json!({ "alg": "RS256", "kid": "other" })), BadToken::UnknownKey),
        (
            "an extension",
            headed(json!({ "alg": "RS256", "kid": "rsa", "crit": ["exp"] })),
            BadToken::UnsupportedExtension,
        ),
        ("garbage", "garbage".to_owned(), BadToken::Malformed),
        ("nothing", String::new(), BadToken::Malformed),
        ("dots", "..".to_owned(), BadToken::Malformed),
        ("four parts", format!("{good}.x"), BadToken::Malformed),
        ("no base64", "!.!.!".to_owned(), BadToken::Malformed),
        ("no JSON", "Zm9v.YmFy.YmF6".to_owned(), BadToken::Malformed),
        ("huge", format!("{good}{}", "x".repeat(50_000)), BadToken::TooLong(8 << 10)),
    ];
    for (what, token, reason) in cases {
        let refusal = expect_refusal(&identity, &bearer_headers(&token)).await;
        assert_eq!(refusal, AuthenticationError::Token(reason), "{what}");
        assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED);
        let challenge = refusal.headers()["www-authenticate"].to_str().unwrap().to_owned();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
    assert!(identity.identify(&bearer_headers(&good), None).await.is_ok());
}

#[tokio::test]
async fn accepts_tokens_without_key_id_if_only_one_key_fits() {
    let issuer = TestIssuer::new();
    let providers = identity_with_file(&issuer, "");
    let nameless = issuer.token(&json!({ "alg": "RS256" }), &claims(), b"");
    assert!(providers.identify(&bearer_headers(&nameless), None).await.is_ok());
    let folder = tempfile::tempdir().unwrap();
    let mut keys: Value = serde_json::from_str(&issuer.keys("ec")).unwrap();
    let (mut value, all) = (keys["keys"][1].clone(), keys["keys"].as_array_mut().unwrap());
    value["kid"] = "again".into();
    all.push(value);
    std::fs::write(folder.path().join("keys.json"), keys.to_string()).unwrap();
    let jwt = "issuer: 'https://login.example', audience: shop, jwks: keys.json, groups: /realm_access/roles";
    let several = build_identity(&format!("auth: {{ jwt: {{ {jwt} }} }}"), folder.path());
    assert_eq!(
        expect_refusal(&several, &bearer_headers(&nameless)).await,
        AuthenticationError::Token(BadToken::AmbiguousKey)
    );
    let principal = several.identify(&bearer_headers(&issuer.valid_token()), None).await.unwrap();
    assert_eq!(&*principal.groups[0], "admins");
}

#[tokio::test]
async fn a_shared_secret_is_used_for_hmac_only() {
    let issuer = TestIssuer::new();
    let secret = "a-secret-of-at-least-32-random-bytes";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), secret).unwrap();
    let jwt = "issuer: 'https://login.example', audience: shop, secret: '${file:secret}'";
    let identity = build_identity(&format!("auth: {{ jwt: {{ {jwt} }} }}"), folder.path());
    let token = |secret: &str| issuer.token(&json!({ "alg": "HS256" }), &claims(), secret.as_bytes());
    assert!(identity.identify(&bearer_headers(&token(secret)), None).await.is_ok());
    assert_eq!(
        expect_refusal(&identity, &bearer_headers(&token("other"))).await,
        AuthenticationError::Token(BadToken::Signature)
    );
    assert_eq!(
        expect_refusal(&identity, &bearer_headers(&issuer.valid_token())).await,
        AuthenticationError::Token(BadToken::Algorithm)
    );
}

/// Returns a client certificate with this subject and these alternative names.
fn certificate(subject: &[(rcgen::DnType, &str)], names: &[rcgen::SanType]) -> PeerCertificate {
    certificate_with(subject, names, |_| {})
}

fn certificate_with(
    subject: &[(rcgen::DnType, &str)],
    names: &[rcgen::SanType],
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> PeerCertificate {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    subject.iter().for_each(|(kind, text)| params.distinguished_name.push(kind.clone(), *text));
    params.subject_alt_names = names.to_vec();
    change(&mut params);
    let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    PeerCertificate::parse(certificate.der()).unwrap()
}

/// Whether the certificate identifies the caller whose config has this text.
fn identifies_certificate(text: &str, certificate: &PeerCertificate) -> bool {
    let identity =
        build_identity(&format!("callers: {{ warehouse: {{ certificate: '{text}' }} }}"), Path::new(""));
    identity.identify_by_certificate(Some(certificate), SystemTime::now()).unwrap().is_some()
}

#[tokio::test]
async fn identifies_callers_by_certificate_without_other_credentials() {
    let issuer = TestIssuer::new();
    let identity =
        identity_with_file(&issuer, "callers: { warehouse: { certificate: 'dns:warehouse.example' } }");
    let bearer = |host: &str| certificate(&[], &[rcgen::SanType::DnsName(host.try_into().unwrap())]);
    let (ours, other) = (bearer("Warehouse.example"), bearer("other.example"));
    let ours = identity.identify_by_certificate(Some(&ours), SystemTime::now()).unwrap();
    let none = HeaderMap::new();
    assert_eq!(identity.identify(&none, ours).await.unwrap().caller, named_caller("warehouse"));
    let other = identity.identify_by_certificate(Some(&other), SystemTime::now()).unwrap();
    assert_eq!(identity.identify(&none, other).await.unwrap().caller, CallerId::Anonymous);
    let principal = identity.identify(&bearer_headers(&issuer.valid_token()), ours).await.unwrap();
    assert_eq!(principal.caller, CallerId::Subject("ann".into()));
}

#[test]
fn refuses_expired_client_certificates() {
    let identity =
        build_identity("callers: { warehouse: { certificate: 'dns:warehouse.example' } }", Path::new(""));
    let expired = |host: &str| {
        certificate_with(&[], &[rcgen::SanType::DnsName(host.try_into().unwrap())], |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        })
    };
    let valid_at = SystemTime::UNIX_EPOCH + Duration::from_secs(991_400_000);
    for (host, is_known) in [("warehouse.example", true), ("other.example", false)] {
        let certificate = expired(host);
        assert_eq!(
            identity.identify_by_certificate(Some(&certificate), valid_at).unwrap().is_some(),
            is_known
        );
        for now in [SystemTime::now(), SystemTime::UNIX_EPOCH] {
            let refusal = identity.identify_by_certificate(Some(&certificate), now).unwrap_err();
            assert_eq!((refusal.code(), refusal.status()), ("certificate-expired", StatusCode::UNAUTHORIZED));
        }
    }
    assert_eq!(identity.identify_by_certificate(None, SystemTime::now()), Ok(None));
}

#[test]
fn hints_at_the_configured_kinds_of_credentials() {
    let jwt = "auth: { jwt: { issuer: 'https://x', audience: a } }";
    let key = format!("callers: {{ shop: {{ key: '{}' }} }}", key_hash(KEY));
    let certificate = "callers: { shop: { certificate: 'dns:shop.example' } }".to_owned();
    for (yaml, expected) in [
        (key.clone(), "send a key as `x-api-key`"),
        (jwt.to_owned(), "send a token as `Authorization: Bearer`"),
        (
            format!("auth: {{ keys: {{ header: authorization }} }}\n{key}"),
            "send a token as `Authorization: Bearer`",
        ),
        (certificate.clone(), "send a client certificate in the TLS handshake"),
        (
            format!("{jwt}\n{certificate}"),
            "send a token as `Authorization: Bearer`, or a client certificate in the TLS handshake",
        ),
        (format!("{jwt}\n{key}"), "send a key as `x-api-key`, or a token as `Authorization: Bearer`"),
    ] {
        assert_eq!(build_identity(&yaml, Path::new("")).missing_credentials().hint(), expected, "{yaml}");
    }
}

#[test]
fn finds_common_names_by_structure_and_not_in_other_attributes() {
    use rcgen::DnType::{CommonName, OrganizationName};
    for (subject, is_ours) in [
        (&[(CommonName, "warehouse")][..], true),
        (&[(OrganizationName, "Shop, CN=warehouse")], false),
        (&[(OrganizationName, "x,CN=warehouse,O=y"), (CommonName, "evil")], false),
        (&[(CommonName, "evil, CN=warehouse")], false),
        (&[(CommonName, "warehouse,O=x")], false),
        (&[(CommonName, "warehouse\0")], false),
        (&[(CommonName, "Warehouse")], false),
        (&[(CommonName, "ware house")], false),
    ] {
        let certificate = certificate(subject, &[]);
        for text in ["warehouse", "cn:warehouse"] {
            assert_eq!(identifies_certificate(text, &certificate), is_ours, "{subject:?} as {text}");
        }
    }
    let comma = certificate(&[(CommonName, "Shop, Inc. = warehouse+1")], &[]);
    assert!(identifies_certificate("cn:Shop, Inc. = warehouse+1", &comma));
}

#[test]
fn names_match_only_with_their_kind() {
    use rcgen::DnType::CommonName;
    use rcgen::SanType::{DnsName, IpAddress, Rfc822Name, URI};
    let ia5 = |text: &str| text.try_into().unwrap();
    let host = "warehouse.example";
    let kinds = [
        ("dns:warehouse.example", certificate(&[], &[DnsName(ia5(host))])),
        ("uri:warehouse:example", certificate(&[], &[URI(ia5("warehouse:example"))])),
        ("email:warehouse@example", certificate(&[], &[Rfc822Name(ia5("warehouse@EXAMPLE"))])),
        ("ip:192.0.2.7", certificate(&[], &[IpAddress("192.0.2.7".parse().unwrap())])),
        ("ip:2001:db8::7", certificate(&[], &[IpAddress("2001:db8::7".parse().unwrap())])),
        ("cn:warehouse.example", certificate(&[(CommonName, host)], &[DnsName(ia5("other.example"))])),
        ("dns:other.example", certificate(&[], &[URI(ia5(host)), DnsName(ia5("other.example"))])),
    ];
    for (at, (text, ours)) in kinds.iter().enumerate() {
        assert!(identifies_certificate(text, ours), "{text}");
        for (_, (other, _)) in kinds.iter().enumerate().filter(|(index, _)| *index != at) {
            let same = *other == "dns:other.example" && *text == "cn:warehouse.example";
            assert!(same || !identifies_certificate(other, ours), "{text} for {other}");
        }
    }
    let by_uri = certificate(&[], &[URI(ia5(host)), Rfc822Name(ia5("a@warehouse.example"))]);
    assert!(!identifies_certificate(host, &by_uri), "a bare name is a host's");
    let peer_certificate = certificate(&[(CommonName, host)], &[URI(ia5("spiffe://shop/x"))]);
    assert!(
        !identifies_certificate(host, &peer_certificate),
        "a common name beside alternative names does not count"
    );
    assert!(
        identifies_certificate("192.0.2.7", &kinds[3].1)
            && identifies_certificate("warehouse@example", &kinds[2].1)
    );
}

#[test]
fn wildcards_identify_no_client() {
    let all = certificate(&[], &[rcgen::SanType::DnsName("*.example".try_into().unwrap())]);
    assert!(!identifies_certificate("dns:warehouse.example", &all));
    assert!(!identifies_certificate("*.example", &all));
    assert!(CertificateName::parse_config_names("dns:*.example").is_err());
    for text in ["dns:", "dns:a b", "uri:x", "email:x", "email:@x", "ip:x", "ip:10.0.0.0/8", "cn:", "cn:a\0"]
    {
        assert!(CertificateName::parse_config_names(text).is_err(), "{text:?}");
    }
}

#[test]
fn strips_credentials_unless_the_service_forwards_them() {
    let identity = identity_with_keys("auth: { jwt: { issuer: 'https://x', audience: a } }");
    let both = [("x-api-key", "k"), ("authorization", "Bearer t"), ("accept", "*/*")];
    let names = |mut map: HeaderMap, forwarded: &[HeaderName]| {
        identity.strip_credentials(&mut map, forwarded);
        map.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(header_map(&both), &[]), "accept");
    assert_eq!(names(header_map(&both), &[AUTHORIZATION]), "accept authorization");
    assert_eq!(names(header_map(&[("authorization", "Basic dTpw")]), &[]), "authorization");
}

#[tokio::test]
async fn fetches_keys_once_and_keeps_them_while_the_issuer_is_down() {
    let issuer = TestIssuer::new();
    let server = JwksServer::new(JwksServerResponse::Text(issuer.keys("old"))).await;
    let identity = identity_with_server(&server);
    assert!(identity.identify(&bearer_headers(&issuer.valid_token_by("old")), None).await.is_ok());
    server.set_response(JwksServerResponse::Status(500));
    wait_for_cooldown().await;
    for kid in 0..100 {
        let token = issuer.valid_token_by(&format!("made up {kid}"));
        assert_eq!(
            expect_refusal(&identity, &bearer_headers(&token)).await,
            AuthenticationError::Token(BadToken::UnknownKey)
        );
    }
    assert_eq!(server.request_count(), 2, "strangers' tokens cause one fetch");
    assert!(identity.identify(&bearer_headers(&issuer.valid_token_by("old")), None).await.is_ok());
    server.set_response(JwksServerResponse::Text(issuer.keys("new")));
    wait_for_cooldown().await;
    assert!(identity.identify(&bearer_headers(&issuer.valid_token_by("new")), None).await.is_ok());
    assert!(
        expect_refusal(&identity, &bearer_headers(&issuer.valid_token_by("old"))).await.status()
            == StatusCode::UNAUTHORIZED
    );
}

/// Advances the time so far that keys may be fetched again.
async fn wait_for_cooldown() {
    tokio::time::pause();
    tokio::time::advance(jwks::COOLDOWN + Duration::from_secs(1)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn refuses_only_tokens_while_keys_are_missing() {
    let issuer = TestIssuer::new();
    for answer in [
        JwksServerResponse::Status(500),
        JwksServerResponse::Status(302),
        JwksServerResponse::Text("garbage".to_owned()),
        JwksServerResponse::Text(r#"{"keys":[]}"#.to_owned()),
        JwksServerResponse::Text(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}]}"#.to_owned()),
        JwksServerResponse::Endless,
    ] {
        let server = JwksServer::new(answer).await;
        let identity = identity_with_server(&server);
        let refusal = expect_refusal(&identity, &bearer_headers(&issuer.valid_token())).await;
        assert_eq!(
            (refusal.code(), refusal.status()),
            ("token-keys-missing", StatusCode::SERVICE_UNAVAILABLE)
        );
        assert_eq!(refusal.headers()["retry-after"], "5");
        assert_eq!(identity.identify(&HeaderMap::new(), None).await.unwrap().caller, CallerId::Anonymous);
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_keys_only_up_to_a_timeout() {
    let issuer = TestIssuer::new();
    let server = JwksServer::new(JwksServerResponse::Never).await;
    let refusal =
        expect_refusal(&identity_with_server(&server), &bearer_headers(&issuer.valid_token())).await;
    assert_eq!(refusal, AuthenticationError::KeysUnavailable);
}

#[tokio::test]
async fn discovers_the_keys_of_an_issuer() {
    let issuer = TestIssuer::new();
    let server = JwksServer::new(JwksServerResponse::Text(issuer.keys("ec"))).await;
    let url = format!("http://{}", server.address);
    let identity =
        build_identity(&format!("auth: {{ jwt: {{ issuer: '{url}', audience: shop }} }}"), Path::new(""));
    // The content of `/.well-known/openid-configuration` is not such a document, so the default location is
    // used.
    let token =
        issuer.token(&json!({ "alg": "RS256", "kid": "rsa" }), &claims_with("iss", url.as_str().into()), b"");
    assert!(identity.identify(&bearer_headers(&token), None).await.is_ok());
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn a_reload_with_the_same_issuer_reuses_its_keys() {
    let issuer = TestIssuer::new();
    let server = JwksServer::new(JwksServerResponse::Text(issuer.keys("ec"))).await;
    let first = identity_with_server(&server);
    assert!(first.identify(&bearer_headers(&issuer.valid_token()), None).await.is_ok());
    server.set_response(JwksServerResponse::Status(500));
    let jwt =
        format!("issuer: 'https://login.example', audience: [shop], jwks: 'http://{}/keys'", server.address);
    let config =
        read_text(&format!("routes: []\nauth: {{ jwt: {{ {jwt} }} }}"), Path::new("orfa.yaml")).unwrap();
    let second = IdentityProviders::new(&config, Some(&first)).unwrap();
    assert!(second.identify(&bearer_headers(&issuer.valid_token()), None).await.is_ok());
    assert_eq!(server.request_count(), 1);
}
