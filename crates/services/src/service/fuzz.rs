//! Fuzz tests of the names of external hosts, and of the texts in a service's config: see `fuzz/src/lib.rs`.

use std::str::from_utf8;
use std::sync::Arc;

use super::PermittedHosts;
use crate::ServiceSet;
use crate::config::ServiceConfig;

#[test]
fn host_names_round_trip() {
    let words =
        &["a", ".", "*", "example.org", ":", "80", "[", "]", "::1", "10.0.0.1", "/8", "ffff:", "@", "-"];
    let all = PermittedHosts::new(&["*".to_owned()]).unwrap();
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(text) = from_utf8(text) else { return };
        let _ = PermittedHosts::new(&[text.to_owned()]);
        let Some(host) = all.find_service(text, false) else { return };
        let service = all.find_service(host.name(), false).unwrap();
        assert!(Arc::ptr_eq(&host, &service), "{text}");
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
