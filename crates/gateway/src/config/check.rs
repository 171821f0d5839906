//! Checks that a schema can't express: references to names, conflicting paths, contradictory limits.
//!
//! The checks read the JSON value instead of the structs, so that one mistake that prevents deserialisation
//! doesn't hide the others. Values of the wrong type are skipped, since the schema validation reports them.

mod callers;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use services::config::did_you_mean;
use services::{BytesConfig, ServiceConfig, ServiceSet};

use super::mistake::{ConfigMistake, any_of};
use super::source::{FieldPositions, field};
use super::{GatewayConfig, TracesConfig};
use crate::{cors, hosts, trusted};

/// The kinds of handlers; a route has exactly one.
const WAYS: [&str; 5] = ["query", "script", "aggregate", "graphql", "proxy"];

struct ConfigChecker<'a> {
    root: &'a Value,
    source: &'a FieldPositions,
    mistakes: Vec<ConfigMistake>,
    warnings: Vec<ConfigMistake>,
}

/// Returns the mistakes in the value beyond those against its schema, and warnings.
pub(super) fn check(root: &Value, source: &FieldPositions) -> (Vec<ConfigMistake>, Vec<ConfigMistake>) {
    let mut checker = ConfigChecker { root, source, mistakes: Vec::new(), warnings: Vec::new() };
    checker.listen();
    checker.hosts();
    checker.trusted_proxies();
    checker.client_ip_header();
    checker.proxy_headers();
    checker.services();
    checker.cors("/cors");
    checker.routes();
    checker.callers();
    checker.jwt();
    checker.rights();
    checker.recordings();
    checker.traces();
    (checker.mistakes, checker.warnings)
}

impl ConfigChecker<'_> {
    fn wrong(&mut self, pointer: &str, message: impl Into<String>, hint: &str) {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        self.mistakes.push(self.source.mistake(pointer, message, hint));
    }

    fn text(&self, pointer: &str) -> Option<String> {
        self.root.pointer(pointer)?.as_str().map(str::to_owned)
    }

    fn count(&self, pointer: &str) -> usize {
        self.root.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// The text, redacted if it must not be printed.
    fn shown(&self, pointer: &str, text: &str) -> String {
        if self.source.is_hidden(pointer) { "the value".to_owned() } else { format!("`{text}`") }
    }

    fn listen(&mut self) {
        let mut pointers =
            ["/listen", "/listen/address", "/admin", "/admin/address"].map(str::to_owned).to_vec();
        for index in 0..self.count("/listen") {
            pointers.extend([format!("/listen/{index}"), format!("/listen/{index}/address")]);
        }
        let mut taken: HashMap<SocketAddr, String> = HashMap::new();
        for pointer in pointers {
            let Some(listen) = self.text(&pointer) else { continue };
            if pointer.starts_with("/admin") && listen == GatewayConfig::ADMIN_OFF {
                continue;
            }
            let shown = self.shown(&pointer, &listen);
            let Ok(address) = listen.parse::<SocketAddr>() else {
                let hint = "write 127.0.0.1:8080 or [::]:8080";
                self.wrong(&pointer, format!("{shown} is not an address"), hint);
                continue;
            };
            if let Some(first) = taken.insert(address, pointer.clone()).filter(|_| address.port() != 0) {
                let hint = "one address can be listened on once";
                self.wrong(&pointer, format!("{shown} is taken already by {}", field(&first)), hint);
            }
        }
    }

    /// Checks the hosts of the listeners.
    fn hosts(&mut self) {
        let listeners = (0..self.count("/listen")).map(|index| format!("/listen/{index}"));
        let alone = ["/listen", "/admin"].map(str::to_owned);
        for listener in alone.into_iter().chain(listeners).collect::<Vec<_>>() {
            for index in 0..self.count(&format!("{listener}/hosts")) {
                let pointer = format!("{listener}/hosts/{index}");
                let Some(text) = self.text(&pointer) else { continue };
                if let Err(reason) = hosts::check(&text) {
                    let shown = self.shown(&pointer, &text);
                    let hint = "write shop.example.org, *.shop.example.org or shop.example.org:8443";
                    self.wrong(&pointer, format!("{shown} is not a valid host: {reason}"), hint);
                }
            }
        }
    }

    fn trusted_proxies(&mut self) {
        for index in 0..self.count("/trusted_proxies") {
            let pointer = format!("/trusted_proxies/{index}");
            let Some(text) = self.text(&pointer) else { continue };
            if trusted::network(&text).is_none() {
                let shown = self.shown(&pointer, &text);
                self.wrong(&pointer, format!("{shown} is not a network"), "write 10.0.0.0/8 or 10.1.2.3");
            }
        }
    }

    fn client_ip_header(&mut self) {
        const POINTER: &str = "/client_ip_header";
        let Some(text) = self.text(POINTER) else { return };
        let shown = self.shown(POINTER, &text);
        if !trusted::is_address_header(&text) {
            let hint = "write x-forwarded-for, forwarded, or the one that the proxy writes";
            self.wrong(POINTER, format!("{shown} is not a header for client addresses"), hint);
        } else if self.count("/trusted_proxies") == 0 {
            let hint = "write `trusted_proxies` too: the header is read from trusted proxies only";
            self.wrong(POINTER, "no proxy is trusted, so the header is never read", hint);
        }
    }

    fn proxy_headers(&mut self) {
        for index in 0..self.count("/proxy_headers") {
            let pointer = format!("/proxy_headers/{index}");
            let Some(text) = self.text(&pointer) else { continue };
            if !trusted::is_proxy_header(&text) {
                let shown = self.shown(&pointer, &text);
                let hint =
                    "write x-forwarded-prefix, client-cert, or another that the gateway doesn't rewrite";
                self.wrong(&pointer, format!("{shown} can't be passed on from a proxy"), hint);
            }
        }
    }

    /// Applies the services' own checks to each service that can be deserialised.
    fn services(&mut self) {
        let Some(Value::Object(services)) = self.root.get("services") else { return };
        let whole = |value: &Value| serde_json::from_value::<ServiceConfig>(value.clone()).ok();
        let whole: BTreeMap<String, ServiceConfig> =
            services.iter().filter_map(|(name, value)| Some((name.clone(), whole(value)?))).collect();
        for problem in ServiceSet::load(&whole, self.source.folder()).err().unwrap_or_default() {
            let pointer = format!("/services{}", problem.pointer);
            let message =
                if self.source.is_hidden(&pointer) { "the value is wrong".into() } else { problem.message };
            self.wrong(&pointer, message, &problem.hint);
        }
    }

    fn traces(&mut self) {
        let traces = self.root.get("traces").and_then(|traces| serde_json::from_value(traces.clone()).ok());
        let traces: Option<TracesConfig> = traces;
        for wrong in traces.iter().flat_map(TracesConfig::mistakes) {
            self.wrong(&format!("/traces{}", wrong.field), wrong.message, wrong.hint);
        }
    }

    fn cors(&mut self, pointer: &str) {
        for index in 0..self.count(&format!("{pointer}/origins")) {
            let pointer = format!("{pointer}/origins/{index}");
            let Some(origin) = self.text(&pointer) else { continue };
            if !cors::config::is_pattern(&origin) {
                let shown = self.shown(&pointer, &origin);
                let hint = "write https://shop.example.org, http://localhost:* or *, with no path";
                self.wrong(&pointer, format!("{shown} is not an origin"), hint);
            }
        }
        self.cors_credentials(pointer);
        for list in ["headers", "expose"].map(|list| format!("{pointer}/{list}")) {
            for index in 0..self.count(&list) {
                let pointer = format!("{list}/{index}");
                let Some(name) = self.text(&pointer) else { continue };
                if !cors::config::is_header(&name) {
                    let shown = self.shown(&pointer, &name);
                    self.wrong(&pointer, format!("{shown} is not a header name"), "list them one by one");
                }
            }
        }
    }

    /// Rejects credentials that no listed origin can send: an unnamed origin never gets them.
    fn cors_credentials(&mut self, pointer: &str) {
        let Some(cors) = self.root.pointer(pointer) else { return };
        let asked = cors.get("credentials") == Some(&Value::Bool(true));
        let origins = cors.get("origins").and_then(Value::as_array);
        let unnamed = |origin: &Value| matches!(origin.as_str(), Some("*" | "null"));
        if asked && origins.is_some_and(|origins| !origins.is_empty() && origins.iter().all(unnamed)) {
            let hint = "list the origins whose credentials count";
            self.wrong(&format!("{pointer}/credentials"), "`*` and `null` never send credentials", hint);
        }
    }

    fn routes(&mut self) {
        let mut taken = HashMap::new();
        for index in 0..self.count("/routes") {
            let route = format!("/routes/{index}");
            self.path(&route, index, &mut taken);
            self.ways(&route);
            self.names(&route);
            self.cors(&format!("{route}/cors"));
            self.limits(&format!("{route}/limits"));
            self.limits(&format!("{route}/query/limits"));
            self.limits(&format!("{route}/script/limits"));
            self.limits(&format!("{route}/aggregate/limits"));
            self.limits(&format!("{route}/graphql/limits"));
            self.graphql(&format!("{route}/graphql"));
        }
    }

    fn path(&mut self, route: &str, index: usize, taken: &mut HashMap<String, usize>) {
        let pointer = format!("{route}/path");
        let Some(path) = self.text(&pointer) else { return };
        let shown = self.shown(&pointer, &path);
        if !path.starts_with('/') {
            self.wrong(&pointer, format!("{shown} does not start with `/`"), "");
        }
        if path.strip_suffix("/*").unwrap_or(&path).contains('*') {
            let hint = "a wildcard is the last segment: /catalog/*";
            self.wrong(&pointer, format!("{shown} has a `*` in its middle"), hint);
        }
        if path.contains(['?', '#']) {
            self.wrong(&pointer, format!("{shown} has a query or a fragment"), "routes match the path alone");
        }
        if let Some(first) = taken.insert(path, index) {
            self.wrong(&pointer, format!("{shown} is taken already by routes[{first}]"), "");
        }
    }

    fn ways(&mut self, route: &str) {
        let Some(Value::Object(members)) = self.root.pointer(route) else { return };
        let ways: Vec<&str> = WAYS.into_iter().filter(|way| members.contains_key(*way)).collect();
        let hint = format!("a route has exactly one of {}", any_of(&WAYS.map(str::to_owned)));
        match ways.as_slice() {
            [_] => {}
            [] => self.wrong(route, "the route has no handler", &hint),
            [.., last] => {
                let message = format!("the route has {} at once", ways.join(" and "));
                self.wrong(&format!("{route}/{last}"), message, &hint);
            }
        }
    }

    fn names(&mut self, route: &str) {
        self.name(&format!("{route}/proxy"));
        self.name(&format!("{route}/proxy/service"));
        for services in [format!("{route}/query/services"), format!("{route}/graphql/services")] {
            for index in 0..self.count(&services) {
                self.name(&format!("{services}/{index}"));
            }
        }
    }

    /// Checks the source of a GraphQL schema: services or a supergraph.
    fn graphql(&mut self, pointer: &str) {
        let Some(Value::Object(members)) = self.root.pointer(pointer) else { return };
        let has_services = self.count(&format!("{pointer}/services")) > 0;
        match members.get("supergraph") {
            None if !has_services => {
                let hint = "name the services of the schema, or a supergraph";
                self.wrong(pointer, "the schema has no source", hint);
            }
            Some(_) if has_services || members.contains_key("links") => {
                let hint = "a supergraph already specifies its services and links";
                self.wrong(
                    &format!("{pointer}/supergraph"),
                    "a supergraph beside `services` or `links`",
                    hint,
                );
            }
            _ => {}
        }
    }

    fn name(&mut self, pointer: &str) {
        let Some(name) = self.text(pointer) else { return };
        let services = self.root.get("services").and_then(Value::as_object);
        let known: Vec<&str> = services.into_iter().flat_map(|all| all.keys()).map(String::as_str).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            return;
        }
        let hint = did_you_mean(&name, known).unwrap_or_else(|| "write it under `services:`".to_owned());
        let shown = self.shown(pointer, &name);
        self.wrong(pointer, format!("there is no service {shown}"), &hint);
    }

    fn limits(&mut self, pointer: &str) {
        let Some(Value::Object(limits)) = self.root.pointer(pointer) else { return };
        // Zero is valid only for this lower bound, where it disables the check.
        for (name, value) in limits.iter().filter(|(name, _)| *name != "min_request_body_rate") {
            if is_nothing(value) {
                self.wrong(&format!("{pointer}/{name}"), "a limit of zero allows nothing", "");
            }
        }
        if let (Some(cpu), Some(timeout)) = (span(limits.get("cpu")), span(limits.get("timeout")))
            && cpu > timeout
        {
            let hint = "the timeout ends a run before this much CPU time can pass".to_owned();
            let message = "more CPU time than the timeout allows";
            let mistake = self.source.mistake(&format!("{pointer}/cpu"), message, Some(hint));
            // Version 0.1 allowed this on script routes.
            let is_script = pointer.starts_with("/routes/") && pointer.ends_with("/script/limits");
            let findings = if is_script { &mut self.warnings } else { &mut self.mistakes };
            findings.push(mistake);
        }
        let number = |name| limits.get(name).and_then(Value::as_u64);
        if let (Some(concurrency), Some(calls)) = (number("concurrency"), number("calls"))
            && concurrency > calls
        {
            self.wrong(
                &format!("{pointer}/concurrency"),
                format!("more than the limit of {calls} calls in total"),
                "",
            );
        }
    }
}

fn span(value: Option<&Value>) -> Option<Duration> {
    serde_json::from_value::<services::DurationConfig>(value?.clone()).ok().map(|span| span.0)
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => {
            text.parse() == Ok(BytesConfig(0)) || text.parse() == Ok(services::DurationConfig::default())
        }
        _ => false,
    }
}
