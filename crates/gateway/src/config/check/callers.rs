//! Checks of callers, their credentials and their rights that a schema can't express.

use std::collections::{BTreeSet, HashMap};

use http::header::{self, HeaderName};
use json::pointer::append_step;
use query::ANYONE;
use serde_json::{Map, Value};
use services::config::did_you_mean;
use services::path::PathGlob;

use super::{ConfigChecker, is_zero, parse_span};
use crate::config::api_key::{self, BadKey};
use crate::config::auth::is_url;
use crate::config::certificate_name::CertificateName;
use crate::config::rights::{ANONYMOUS, OTHERS_ROW, covers};

/// The headers that must not contain keys.
const FORBIDDEN_KEY_HEADERS: [HeaderName; 5] =
    [header::COOKIE, header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];
/// The minimum length of a shared secret (RFC 7518, section 3.2).
const MIN_SECRET_LENGTH: usize = 32;
/// The maximum tolerance of clock differences.
const MAX_LEEWAY: std::time::Duration = std::time::Duration::from_secs(600);

impl ConfigChecker<'_> {
    fn map_at(&self, pointer: &str) -> Map<String, Value> {
        self.root.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The strings of a field that is a string or a list of strings, each with its pointer.
    fn texts_at(&self, pointer: &str) -> Vec<(String, String)> {
        let one = self.text_at(pointer).map(|text| (pointer.to_owned(), text));
        let many = (0..self.array_len(pointer)).filter_map(|index| {
            let pointer = format!("{pointer}/{index}");
            Some((pointer.clone(), self.text_at(&pointer)?))
        });
        one.into_iter().chain(many).collect()
    }

    pub(super) fn check_callers(&mut self) {
        self.check_key_header();
        let mut taken = HashMap::new();
        let groups: BTreeSet<String> = self.caller_groups();
        for (name, caller) in self.map_at("/callers") {
            let pointer = append_step("/callers", &name);
            if name == ANONYMOUS || name == OTHERS_ROW || name.is_empty() {
                self.add_mistake(
                    &pointer,
                    format!("`{name}` can't be the name of a caller"),
                    "it is a row of `rights`",
                );
            }
            if name == ANYONE {
                let message = format!("`{name}` can't be the name of a caller");
                self.add_mistake(&pointer, message, "it means all callers in `recordings`");
            }
            if groups.contains(&name) {
                self.add_mistake(&pointer, format!("`{name}` is a caller and a group"), "rename one of them");
            }
            let means = ["key", "certificate", "subject"];
            if caller.as_object().is_some_and(|caller| !means.iter().any(|means| caller.contains_key(*means)))
            {
                let hint = "give it a `key`, a `certificate` or a `subject`";
                self.add_mistake(&pointer, "nothing identifies this caller", hint);
            }
            self.check_keys(&name, &format!("{pointer}/key"), &mut taken);
            self.check_caller_identifiers(&name, &pointer, &mut taken);
        }
    }

    fn check_key_header(&mut self) {
        const POINTER: &str = "/auth/keys/header";
        let Some(text) = self.text_at(POINTER) else { return };
        let name = HeaderName::from_bytes(text.as_bytes()).ok();
        if name.is_none_or(|name| FORBIDDEN_KEY_HEADERS.contains(&name)) {
            let shown = self.redacted_text(POINTER, &text);
            self.add_mistake(
                POINTER,
                format!("{shown} is not a header for keys"),
                "write x-api-key or authorization",
            );
        }
    }

    fn check_keys(&mut self, name: &str, pointer: &str, taken: &mut HashMap<Vec<u8>, String>) {
        for (pointer, text) in self.texts_at(pointer) {
            if !self.source.is_hidden(&pointer) && !text.starts_with("sha256:") {
                let hint = "write ${env:NAME}, ${file:PATH} or sha256:HASH, and take another key";
                self.add_mistake(&pointer, "the key is in the file in plain text", hint);
                continue;
            }
            let hash = match api_key::hash_key(&text) {
                Ok(hash) => hash,
                Err(bad) => {
                    let (message, hint) = key_mistake(bad);
                    self.add_mistake(&pointer, message, &hint);
                    continue;
                }
            };
            self.check_unique(name, &pointer, "key", hash.to_vec(), taken);
        }
    }

    fn check_caller_identifiers(&mut self, name: &str, caller: &str, taken: &mut HashMap<Vec<u8>, String>) {
        for means in ["certificate", "subject"] {
            let pointer = format!("{caller}/{means}");
            let Some(text) = self.text_at(&pointer) else { continue };
            if text.is_empty() {
                self.add_mistake(&pointer, "the text must not be empty", "");
            } else if means == "certificate"
                && let Err(reason) = CertificateName::parse_config_names(&text)
            {
                let shown = self.redacted_text(&pointer, &text);
                let hint = "write it as in dns:shop.example, uri:spiffe://shop/checkout or cn:checkout";
                self.add_mistake(
                    &pointer,
                    format!("{shown} can't be the name of one client: {reason}"),
                    hint,
                );
            }
            // `dns:a.example` and `a.example` are the same name.
            let certified =
                CertificateName::parse_config_names(&text).ok().filter(|_| means == "certificate");
            let first = certified.and_then(|names| names.into_iter().next());
            let value = first.map_or_else(|| format!("{means} {text}"), |name| format!("{means} {name:?}"));
            self.check_unique(name, &pointer, means, value.into_bytes(), taken);
        }
        let subject = format!("{caller}/subject");
        if self.text_at(&subject).is_some() && self.root.pointer("/auth/jwt").is_none() {
            self.add_mistake(&subject, "a subject without tokens", "write `auth.jwt`");
        }
    }

    fn check_unique(
        &mut self,
        name: &str,
        pointer: &str,
        what: &str,
        value: Vec<u8>,
        taken: &mut HashMap<Vec<u8>, String>,
    ) {
        if let Some(other) = taken.insert(value, name.to_owned()) {
            let message = match other == name {
                true => format!("this {what} occurs twice"),
                false => format!("`{other}` has the same {what}"),
            };
            self.add_mistake(pointer, message, &format!("a {what} belongs to one caller"));
        }
    }

    /// The groups of the callers in the config.
    fn caller_groups(&self) -> BTreeSet<String> {
        let callers = self.map_at("/callers");
        let groups = callers
            .keys()
            .flat_map(|name| self.texts_at(&format!("{}/groups", append_step("/callers", name))));
        groups.map(|(_, group)| group).collect()
    }

    pub(super) fn check_jwt(&mut self) {
        const JWT: &str = "/auth/jwt";
        let jwt = self.map_at(JWT);
        let at = |name: &str| format!("{JWT}/{name}");
        if let Some(issuer) = self.text_at(&at("issuer")) {
            let needs_url = !jwt.contains_key("jwks") && !jwt.contains_key("secret");
            if issuer.is_empty() || (needs_url && !is_url(&issuer)) {
                let hint = "write its URL, or name the location of its keys with `jwks`";
                let shown = self.redacted_text(&at("issuer"), &issuer);
                self.add_mistake(
                    &at("issuer"),
                    format!("{shown} is not a URL, so no keys can be found"),
                    hint,
                );
            }
        }
        for (pointer, audience) in self.texts_at(&at("audience")) {
            if audience.is_empty() {
                self.add_mistake(&pointer, "the text must not be empty", "");
            }
        }
        if jwt.contains_key("jwks") && jwt.contains_key("secret") {
            let hint = "keys are public or shared, not both";
            self.add_mistake(&at("secret"), "`jwks` and `secret` exclude each other", hint);
        }
        self.check_secret(&at("secret"));
        self.check_algorithms(&jwt, &at("algorithms"));
        if parse_span(jwt.get("leeway")).is_some_and(|leeway| leeway > MAX_LEEWAY) {
            self.add_mistake(&at("leeway"), "the leeway is too long", "write at most 10m");
        }
        for name in ["caller", "groups"] {
            if self.text_at(&at(name)).is_some_and(|claim| claim.is_empty()) {
                self.add_mistake(&at(name), "the text must not be empty", "");
            }
        }
    }

    fn check_secret(&mut self, pointer: &str) {
        let Some(secret) = self.text_at(pointer) else { return };
        if !self.source.is_hidden(pointer) {
            let hint = "write ${file:PATH} or ${env:NAME}, and take another secret";
            self.add_mistake(pointer, "the secret is in the file in plain text", hint);
        } else if secret.len() < MIN_SECRET_LENGTH {
            self.add_mistake(pointer, "the secret is too short", "take at least 32 random bytes");
        }
    }

    fn check_algorithms(&mut self, jwt: &Map<String, Value>, pointer: &str) {
        if self.root.pointer(pointer).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            self.add_mistake(
                pointer,
                "without algorithms no token is valid",
                "leave it out for the defaults",
            );
        }
        let is_secret = jwt.contains_key("secret");
        for (pointer, name) in self.texts_at(pointer) {
            let is_shared = name.starts_with("HS");
            if is_shared != is_secret && name.len() == 5 {
                let hint = "HS256, HS384 and HS512 go with a `secret`, all others with public keys";
                self.add_mistake(&pointer, format!("`{name}` does not fit the keys"), hint);
            }
        }
    }

    pub(super) fn check_rights(&mut self) {
        let (rows, callers, groups) = (self.map_at("/rights"), self.map_at("/callers"), self.caller_groups());
        let has_tokens = self.root.pointer("/auth/jwt").is_some();
        for name in rows.keys() {
            let known = callers.keys().chain(&groups).map(String::as_str).chain([ANONYMOUS, OTHERS_ROW]);
            let is_known = known.clone().any(|known| known == name);
            // A token may contain any group.
            if !is_known && !has_tokens {
                let hint =
                    did_you_mean(name, known).unwrap_or_else(|| "write it under `callers:`".to_owned());
                self.add_mistake(
                    &append_step("/rights", name),
                    format!("there is no caller or group `{name}`"),
                    &hint,
                );
            }
            self.check_row(&append_step("/rights", name));
        }
        if rows.is_empty() || rows.contains_key(OTHERS_ROW) {
            return self.check_required_auth(has_tokens || !callers.is_empty());
        }
        for name in callers.keys() {
            let pointer = append_step("/callers", name);
            let in_group =
                self.texts_at(&format!("{pointer}/groups")).iter().any(|(_, group)| rows.contains_key(group));
            if !rows.contains_key(name) && !in_group {
                let hint = "give it, one of its groups, or `others` a row";
                self.add_mistake(
                    &pointer,
                    format!("`rights` has no row for `{name}`, so it may do nothing"),
                    hint,
                );
            }
        }
        self.check_required_auth(has_tokens || !callers.is_empty());
    }

    /// Checks that the callers and keys of `recordings` exist.
    pub(super) fn check_recordings(&mut self) {
        let (callers, keys) = (self.map_at("/callers"), self.map_at("/trust"));
        for index in 0..self.array_len("/routes") {
            let recordings = format!("/routes/{index}/query/recordings");
            let known = callers.keys().map(String::as_str).chain([ANYONE]);
            self.check_references(&format!("{recordings}/callers"), known, "caller", "callers");
            self.check_references(
                &format!("{recordings}/keys"),
                keys.keys().map(String::as_str),
                "key",
                "trust",
            );
        }
    }

    /// Checks a list of references to names.
    fn check_references<'a>(
        &mut self,
        list: &str,
        known: impl Iterator<Item = &'a str> + Clone,
        what: &str,
        place: &str,
    ) {
        for (pointer, name) in self.texts_at(list) {
            if known.clone().any(|known| known == name) {
                continue;
            }
            let hint = did_you_mean(&name, known.clone());
            let hint = hint.unwrap_or_else(|| format!("write it under `{place}:`"));
            let shown = self.redacted_text(&pointer, &name);
            self.add_mistake(&pointer, format!("there is no {what} {shown}"), &hint);
        }
    }

    /// Checks for routes that require credentials although none can exist.
    fn check_required_auth(&mut self, knows_callers: bool) {
        for index in 0..self.array_len("/routes") {
            let pointer = format!("/routes/{index}/auth");
            if self.text_at(&pointer).is_some_and(|rule| rule == "required") && !knows_callers {
                let hint = "write `callers` or `auth.jwt`";
                self.add_mistake(&pointer, "no caller can have credentials for this route", hint);
            }
        }
    }

    fn check_row(&mut self, row: &str) {
        for (pointer, pattern) in self.texts_at(&format!("{row}/routes")) {
            self.check_route_pattern(&pointer, &pattern);
        }
        for (pointer, _) in self.texts_at(&format!("{row}/services")) {
            self.check_service_name(&pointer);
        }
        for (pointer, method) in self.texts_at(&format!("{row}/methods")) {
            let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
            if !is_method || method == "CONNECT" || method == "TRACE" {
                let shown = self.redacted_text(&pointer, &method);
                self.add_mistake(
                    &pointer,
                    format!("{shown} is not a method for calls to services"),
                    "write GET, POST or another HTTP method",
                );
            }
        }
        self.check_limits(&format!("{row}/limits"));
        self.check_rate(&format!("{row}/rate"));
    }

    fn check_route_pattern(&mut self, pointer: &str, pattern: &str) {
        let shown = self.redacted_text(pointer, pattern);
        match PathGlob::parse(pattern) {
            Err(reason) => {
                let hint = "write it as a route's path: /catalog/*";
                self.add_mistake(pointer, format!("{shown} is not a route pattern: {reason}"), hint);
            }
            Ok(glob) => {
                let routes = 0..self.array_len("/routes");
                let paths: Vec<String> =
                    routes.filter_map(|index| self.text_at(&format!("/routes/{index}/path"))).collect();
                if !paths.iter().any(|path| covers(&glob, path)) {
                    let hint = did_you_mean(pattern, paths.iter().map(String::as_str));
                    self.add_mistake(pointer, format!("{shown} matches no route"), &hint.unwrap_or_default());
                }
            }
        }
    }

    fn check_rate(&mut self, pointer: &str) {
        let rate = self.map_at(pointer);
        if self.root.pointer(pointer).is_some_and(Value::is_object) && rate.is_empty() {
            self.add_mistake(pointer, "the rate limits nothing", "write requests, cpu or max_in_flight");
        }
        if rate.contains_key("burst") && !rate.contains_key("requests") {
            self.add_mistake(&format!("{pointer}/burst"), "a burst without a rate", "write `requests` too");
        }
        for (name, value) in &rate {
            if name != "burst" && name != "max_in_flight" && is_zero(value) {
                self.add_mistake(&format!("{pointer}/{name}"), "a rate of zero allows nothing", "");
            }
        }
    }
}

fn key_mistake(bad: BadKey) -> (&'static str, String) {
    match bad {
        BadKey::Hash => ("the hash is incomplete", "write sha256: and 64 hexadecimal digits".to_owned()),
        BadKey::TooShort => {
            ("the key is too short", format!("take at least {} random characters", api_key::MIN_KEY_LENGTH))
        }
        BadKey::InvalidCharacters => (
            "the key has characters that a header can't contain",
            "use ASCII letters, digits and punctuation without spaces".to_owned(),
        ),
    }
}
