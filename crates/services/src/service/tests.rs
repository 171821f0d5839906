//! Mistakes in configs that the schema cannot detect.

use std::collections::BTreeMap;

use diagnostics::Diagnostic;

use crate::ServiceSet;
use crate::config::{DurationConfig, HealthConfig, OneOrMany, ServiceConfig, StatusRange};
use crate::path::DECODED_PATH_COUNT;

fn problems(services: Vec<(&str, ServiceConfig)>) -> Vec<Diagnostic> {
    let config: BTreeMap<String, ServiceConfig> =
        services.into_iter().map(|(name, config)| (name.to_owned(), config)).collect();
    ServiceSet::new(&config).err().unwrap_or_default()
}

fn pointers(problems: &[Diagnostic]) -> Vec<&str> {
    problems.iter().map(|problem| problem.location.pointer()).collect()
}

#[test]
fn finds_a_service_by_the_authority_of_its_targets() {
    let config = BTreeMap::from([
        ("a".to_owned(), ServiceConfig::with_url("http://a.example")),
        ("b".to_owned(), ServiceConfig::with_url("https://[::1]:8443/base")),
    ]);
    let services = ServiceSet::new(&config).expect("a good config");
    let name = |authority: &str| services.find_by_authority(authority).map_or("", |service| service.name());
    assert_eq!(["a.example", "A.example:80", "[::1]:8443"].map(name), ["a", "a", "b"]);
    assert_eq!(["a.example:81", "a.example:x", "[::1]", "b", ""].map(name), [""; 5]);
}

#[test]
fn decodes_a_path_once_for_all_patterns() {
    let mut config = ServiceConfig::with_url("http://a.example");
    config.paths = (0..100).map(|number| format!("/{number}")).chain(["/*".to_owned()]).collect();
    let services = ServiceSet::new(&BTreeMap::from([("a".to_owned(), config)])).expect("a good config");
    let service = services.get("a").expect("a service");
    for (path, times) in [("/plain", 1), ("/with;parameters", 2)] {
        let before = DECODED_PATH_COUNT.get();
        assert_eq!(service.check_path(path), Ok(()));
        assert_eq!(DECODED_PATH_COUNT.get() - before, times, "{path}");
    }
}

#[test]
fn a_path_below_the_base_path_is_a_program_s_path() {
    let config = BTreeMap::from([("a".to_owned(), ServiceConfig::with_url("http://a.example/api/v1/"))]);
    let services = ServiceSet::new(&config).expect("a good config");
    let service = services.get("a").expect("a service");
    assert_eq!(service.base_path(), "/api/v1");
    for (path, below) in [("/api/v1/x?q", Some("/x?q")), ("/api/v1", Some("")), ("/api/v1?q", Some("?q"))] {
        assert_eq!(service.strip_base_path(path), below, "{path}");
    }
    assert_eq!(["/api/v11", "/x", "/"].map(|path| service.strip_base_path(path)), [None; 3]);
}

#[test]
fn accepts_valid_urls() {
    for url in [
        "http://a",
        "https://a.example/",
        "http://a:8080/api/v1/",
        "http://[::1]:80",
        "http://127.0.0.1:1",
        "HTTP://a",
    ] {
        assert_eq!(problems(vec![("a", ServiceConfig::with_url(url))]), [], "{url}");
    }
}

#[test]
fn rejects_invalid_urls() {
    for url in [
        "",
        "a",
        "a:80",
        "/a",
        "ftp://a",
        "http://",
        "http://:80",
        "http://a:0",
        "http://a:99999",
        "http://a:b",
        "http://u:secret@a",
        "http://@a",
        "http://a?x",
        "http://a/#x",
        "http://a/../b",
        "http://a b",
    ] {
        let diagnostics = problems(vec![("a", ServiceConfig::with_url(url))]);
        assert_eq!(pointers(&diagnostics), ["/a/url"], "{url}");
        assert!(
            !diagnostics[0].message.contains("secret") && diagnostics[0].hint.is_some(),
            "{}",
            diagnostics[0].message
        );
    }
}

#[test]
fn reports_all_mistakes_at_once() {
    let mut config = ServiceConfig::with_url("");
    config.url = OneOrMany::Many(vec!["http://a".into(), "nothing".into()]);
    config.timeout = DurationConfig::from_secs(0);
    config.forward = vec!["authorization".into(), "no header".into(), "Host".into()];
    config.headers = BTreeMap::from([("x-key".into(), "secret\n".into()), ("a/b c".into(), "x".into())]);
    config.paths = vec!["/fine".into(), "wrong".into()];
    let diagnostics = problems(vec![("bad name", ServiceConfig::with_url("http://a")), ("catalog", config)]);
    assert_eq!(
        pointers(&diagnostics),
        [
            "/bad name",
            "/catalog/url/1",
            "/catalog/timeout",
            "/catalog/forward/1",
            "/catalog/forward/2",
            "/catalog/headers/a~1b c",
            "/catalog/headers/x-key",
            "/catalog/paths/1",
        ]
    );
    assert!(diagnostics.iter().all(|problem| !problem.message.contains("secret")));
}

#[test]
fn reports_settings_without_effect() {
    let mut config = ServiceConfig::with_url("http://a");
    config.dns_refresh_rate = DurationConfig::from_secs(0);
    config.first_byte_timeout = Some(config.timeout);
    config.idle_timeout = DurationConfig::from_secs(0);
    config.upgrade_idle_timeout = DurationConfig::from_secs(0);
    config.retries.attempts = 11;
    config.health = Some(HealthConfig {
        path: "healthz".into(),
        interval: DurationConfig::from_secs(0),
        timeout: DurationConfig::from_secs(0),
        status: StatusRange::default(),
        healthy_threshold: 0,
        unhealthy_threshold: 0,
    });
    let diagnostics = problems(vec![("a", config)]);
    assert_eq!(
        pointers(&diagnostics),
        [
            "/a/dns_refresh_rate",
            "/a/first_byte_timeout",
            "/a/idle_timeout",
            "/a/upgrade_idle_timeout",
            "/a/retries/attempts",
            "/a/health/healthy_threshold",
            "/a/health/unhealthy_threshold",
            "/a/health/interval",
            "/a/health/timeout",
            "/a/health/path",
        ]
    );
    assert!(diagnostics.iter().all(|problem| problem.hint.is_some()));
}

#[test]
fn rejects_duplicate_targets() {
    let mut twice = ServiceConfig::with_url("");
    twice.url = OneOrMany::Many(vec!["http://a".into(), "http://b".into(), "http://A/".into()]);
    assert_eq!(pointers(&problems(vec![("a", twice)])), ["/a/url/2"]);
}

#[test]
fn rejects_missing_targets_and_duplicate_names() {
    let mut none = ServiceConfig::with_url("");
    none.url = OneOrMany::Many(Vec::new());
    let diagnostics = problems(vec![
        ("Shop", ServiceConfig::with_url("http://a")),
        ("none", none),
        ("shop", ServiceConfig::with_url("http://a")),
    ]);
    assert_eq!(pointers(&diagnostics), ["/none/url", "/shop"]);
}
