//! The cacheability of responses composed from services' responses (RFC 9111).
//!
//! A response without `Cache-Control` may be stored by any cache and served to any client. A composed
//! response would have none by itself. Each request therefore records the directives of its services, and its
//! response is at most as public as theirs.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

use http::header::{AGE, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, VARY};

use super::CallerId;
use crate::headers::MAX_MEMBERS;

/// The combined caching directives of a request's services. The strictest ones apply.
#[derive(Debug)]
pub struct CacheNotes {
    scope: AtomicU8,
    /// The seconds for which the responses may be used, if they are public.
    max_age: AtomicU32,
    /// The seconds for shared caches, which use `s-maxage` instead.
    shared_max_age: AtomicU32,
    /// Whether caches must not use stale responses.
    must_revalidate: AtomicBool,
}

/// The scope of caching, in ascending order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CachingScope {
    /// No service was called.
    Unknown,
    Public,
    Private,
    NoCache,
    NoStore,
}

/// The relevant directives of `Cache-Control`.
#[derive(Debug, Default)]
struct CacheDirectives {
    is_public: bool,
    is_private: bool,
    is_no_cache: bool,
    is_no_store: bool,
    must_revalidate: bool,
    max_age: Option<u32>,
    shared_max_age: Option<u32>,
}

impl Default for CacheNotes {
    fn default() -> Self {
        Self {
            scope: AtomicU8::new(CachingScope::Unknown as u8),
            max_age: AtomicU32::new(u32::MAX),
            shared_max_age: AtomicU32::new(u32::MAX),
            must_revalidate: AtomicBool::new(false),
        }
    }
}

impl CacheNotes {
    /// Records the directives of a service's response.
    pub fn record_response(&self, headers: &HeaderMap) {
        let directives = CacheDirectives::from_headers(headers);
        let varies = headers.get_all(VARY).iter().any(|value| value.as_bytes().contains(&b'*'));
        let scope = match &directives {
            CacheDirectives { is_no_store: true, .. } => CachingScope::NoStore,
            CacheDirectives { is_no_cache: true, .. } => CachingScope::NoCache,
            _ if varies => CachingScope::NoCache,
            CacheDirectives { is_private: false, is_public: true, .. } => CachingScope::Public,
            _ => CachingScope::Private,
        };
        let age = headers.get(AGE).and_then(|value| value.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
        let max_age = directives.max_age.unwrap_or(0);
        let shared = directives.shared_max_age.unwrap_or(max_age);
        self.must_revalidate.fetch_or(directives.must_revalidate, Relaxed);
        self.add_directives(scope, max_age.saturating_sub(age), shared.saturating_sub(age));
    }

    /// Records that a service failed: a response composed without it must not be stored.
    pub fn record_failure(&self) {
        self.add_directives(CachingScope::NoStore, 0, 0);
    }

    /// Records that the response depends on the client's identity.
    pub fn record_private(&self) {
        self.add_directives(CachingScope::Private, 0, 0);
    }

    /// Records all directives of another request whose response is shared by this one.
    pub fn record_all(&self, other: &Self) {
        self.scope.fetch_max(other.scope.load(Relaxed), Relaxed);
        self.max_age.fetch_min(other.max_age.load(Relaxed), Relaxed);
        self.shared_max_age.fetch_min(other.shared_max_age.load(Relaxed), Relaxed);
        self.must_revalidate.fetch_or(other.must_revalidate.load(Relaxed), Relaxed);
    }

    fn add_directives(&self, scope: CachingScope, max_age: u32, shared_max_age: u32) {
        self.scope.fetch_max(scope as u8, Relaxed);
        self.max_age.fetch_min(max_age, Relaxed);
        self.shared_max_age.fetch_min(shared_max_age, Relaxed);
    }

    /// Returns the `Cache-Control` of a response whose parts are all public.
    fn public_cache_control(&self) -> Option<HeaderValue> {
        let (max_age, shared) = (self.max_age.load(Relaxed), self.shared_max_age.load(Relaxed));
        let mut text = format!("public, max-age={max_age}");
        if shared != max_age {
            text = format!("{text}, s-maxage={shared}");
        }
        if self.must_revalidate.load(Relaxed) {
            text.push_str(", must-revalidate");
        }
        HeaderValue::try_from(text).ok()
    }

    /// Sets `Cache-Control` of a response to `GET` from the recorded directives, unless it is set already,
    /// and adds the client headers that were forwarded to services to `Vary`. Responses to authenticated
    /// callers are always private.
    pub fn set_cache_control<'n>(
        &self,
        headers: &mut HeaderMap,
        caller: &CallerId,
        forwarded: impl Iterator<Item = &'n HeaderName>,
    ) {
        let noted = self.scope.load(Relaxed);
        let is_known = !matches!(caller, CallerId::Anonymous);
        if noted == CachingScope::Unknown as u8 && !is_known {
            return;
        }
        if !headers.contains_key(CACHE_CONTROL) {
            let value = match noted {
                noted if noted == CachingScope::NoStore as u8 => {
                    Some(const { HeaderValue::from_static("no-store") })
                }
                noted if noted == CachingScope::NoCache as u8 => {
                    Some(const { HeaderValue::from_static("private, no-cache") })
                }
                noted if noted == CachingScope::Public as u8 && !is_known => self.public_cache_control(),
                _ => Some(const { HeaderValue::from_static("private") }),
            };
            headers.extend(value.map(|value| (CACHE_CONTROL, value)));
        }
        if noted != CachingScope::Unknown as u8 {
            add_vary(headers, forwarded);
        }
    }
}

/// Adds missing names to `Vary`.
pub fn add_vary<'n>(headers: &mut HeaderMap, names: impl Iterator<Item = &'n HeaderName>) {
    let has = |headers: &HeaderMap, name: &str| {
        let values = headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
        let mut words = values.flat_map(|value| value.split(',')).take(MAX_MEMBERS).map(str::trim);
        words.any(|word| word == "*" || word.eq_ignore_ascii_case(name))
    };
    for name in names {
        if !has(headers, name.as_str()) {
            headers.append(VARY, HeaderValue::from(name.clone()));
        }
    }
}

impl CacheDirectives {
    fn from_headers(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        // An unreadable line may contain `private`.
        let lines = headers.get_all(CACHE_CONTROL).iter().map(|line| line.to_str().unwrap_or("private"));
        let mut members = lines.flat_map(|line| line.split(','));
        for directive in members.by_ref().take(MAX_MEMBERS) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            // An unreadable value counts as stale; of repeated values the shortest applies (RFC 9111, section
            // 4.2.1).
            let seconds = || value.trim().trim_matches('"').parse().unwrap_or(0);
            let least = |before: Option<u32>| Some(before.map_or(seconds(), |before| before.min(seconds())));
            let name = name.trim();
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            directives.is_public |= is("public");
            directives.is_private |= is("private");
            directives.is_no_cache |= is("no-cache");
            directives.is_no_store |= is("no-store");
            directives.must_revalidate |= is("must-revalidate") || is("proxy-revalidate");
            if is("max-age") {
                directives.max_age = least(directives.max_age);
            } else if is("s-maxage") {
                directives.shared_max_age = least(directives.shared_max_age);
            }
        }
        // The directives that are not read may restrict caching.
        directives.is_no_store |= members.next().is_some();
        directives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the `Cache-Control` of a response composed from responses with these `Cache-Control` values.
    fn composed_cache_control(said: &[&'static str], caller: &CallerId) -> Option<String> {
        let notes = CacheNotes::default();
        for said in said {
            let mut headers = HeaderMap::new();
            if !said.is_empty() {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(said));
            }
            notes.record_response(&headers);
        }
        let mut headers = HeaderMap::new();
        notes.set_cache_control(&mut headers, caller, std::iter::empty());
        headers.get(CACHE_CONTROL).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_response_is_as_private_as_its_strictest_part() {
        for (said, expected) in [
            (&[][..], None),
            (&[""], Some("private")),
            (&["max-age=60"], Some("private")),
            (&["public, max-age=60"], Some("public, max-age=60")),
            (
                &["public, max-age=60", "Public, s-maxage=\"30\", max-age=90"],
                Some("public, max-age=60, s-maxage=30"),
            ),
            (
                &["public, max-age=5, s-maxage=3600, must-revalidate"],
                Some("public, max-age=5, s-maxage=3600, must-revalidate"),
            ),
            (
                &["public, max-age=5, s-maxage=3600", "public, max-age=60"],
                Some("public, max-age=5, s-maxage=60"),
            ),
            (&["public, max-age=60, s-maxage=60"], Some("public, max-age=60")),
            (&["public, s-maxage=60"], Some("public, max-age=0, s-maxage=60")),
            (&["public, max-age=60, max-age=5"], Some("public, max-age=5")),
            (&["public"], Some("public, max-age=0")),
            (&["public, max-age=60", ""], Some("private")),
            (&["public, private"], Some("private")),
            (&["public, private=\"x-name\""], Some("private")),
            (&["public, max-age=60", "no-cache"], Some("private, no-cache")),
            (&["no-store", "public, max-age=60"], Some("no-store")),
            (&["public, max-age=many"], Some("public, max-age=0")),
        ] {
            assert_eq!(composed_cache_control(said, &CallerId::Anonymous).as_deref(), expected, "{said:?}");
        }
        let caller_id = CallerId::Named("ann".into());
        assert_eq!(composed_cache_control(&[], &caller_id).as_deref(), Some("private"));
        assert_eq!(composed_cache_control(&["public, max-age=60"], &caller_id).as_deref(), Some("private"));
    }

    #[test]
    fn an_unreadable_cache_control_line_is_private() {
        let notes = CacheNotes::default();
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        headers.append(CACHE_CONTROL, HeaderValue::from_bytes(b"private=\"\xe9\"").unwrap());
        notes.record_response(&headers);
        let mut headers = HeaderMap::new();
        notes.set_cache_control(&mut headers, &CallerId::Anonymous, std::iter::empty());
        assert_eq!(headers[CACHE_CONTROL], "private");
    }

    #[test]
    fn a_response_with_too_many_directives_is_not_stored() {
        for (public, expected) in [(MAX_MEMBERS, "public, max-age=0"), (MAX_MEMBERS + 1, "no-store")] {
            let notes = CacheNotes::default();
            let control = vec!["public"; public].join(",");
            notes.record_response(&HeaderMap::from_iter([(
                CACHE_CONTROL,
                HeaderValue::try_from(control).unwrap(),
            )]));
            let mut headers = HeaderMap::new();
            notes.set_cache_control(&mut headers, &CallerId::Anonymous, std::iter::empty());
            assert_eq!(headers[CACHE_CONTROL], expected);
        }
    }

    #[test]
    fn forwarded_headers_are_added_to_vary_once() {
        let notes = CacheNotes::default();
        notes.record_failure();
        let mut headers = HeaderMap::new();
        headers.insert(VARY, HeaderValue::from_static("accept, Cookie"));
        let names = [http::header::COOKIE, http::header::ACCEPT_LANGUAGE, http::header::ACCEPT_LANGUAGE];
        notes.set_cache_control(&mut headers, &CallerId::Anonymous, names.iter());
        let vary: Vec<_> = headers.get_all(VARY).iter().collect();
        assert_eq!(vary, ["accept, Cookie", "accept-language"]);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
    }
}
