//! Checks that a schema can't express: references to names, conflicting paths, contradictory limits.
//!
//! The checks read the JSON value instead of the structs, so that one mistake that prevents deserialisation
//! doesn't hide the others. Values of the wrong type are skipped, since the schema validation reports them.

mod callers;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use diagnostics::Diagnostic;
use serde_json::Value;
use services::config::did_you_mean;
use services::{BytesConfig, ServiceConfig, ServiceSet};

use super::schema::join_alternatives;
use super::source::{FieldPositions, field_path};
use super::{GatewayConfig, TracesConfig};
use super::{cors, host_names, trusted_proxies};

/// The kinds of handlers; a route has exactly one.
const HANDLERS: [&str; 5] = ["query", "script", "aggregate", "graphql", "proxy"];

struct ConfigChecker<'a> {
    root: &'a Value,
    source: &'a FieldPositions,
    mistakes: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

/// Returns the mistakes in the value beyond those against its schema, and warnings.
pub(super) fn check(root: &Value, source: &FieldPositions) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let mut checker = ConfigChecker { root, source, mistakes: Vec::new(), warnings: Vec::new() };
    checker.check_listen();
    checker.check_hosts();
    checker.check_trusted_proxies();
    checker.check_client_ip_header();
    checker.check_proxy_headers();
    checker.check_services();
    checker.check_cors("/cors");
    checker.check_routes();
    checker.check_callers();
    checker.check_jwt();
    checker.check_rights();
    checker.check_recordings();
    checker.check_traces();
    (checker.mistakes, checker.warnings)
}

impl ConfigChecker<'_> {
    fn add_mistake(&mut self, pointer: &str, message: impl Into<String>, hint: &str) {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        self.mistakes.push(self.source.mistake(pointer, message, hint));
    }

    fn text_at(&self, pointer: &str) -> Option<String> {
        self.root.pointer(pointer)?.as_str().map(str::to_owned)
    }

    fn array_len(&self, pointer: &str) -> usize {
        self.root.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// The text, redacted if it must not be printed.
    fn redacted_text(&self, pointer: &str, text: &str) -> String {
        if self.source.is_hidden(pointer) { "the value".to_owned() } else { format!("`{text}`") }
    }

    fn check_listen(&mut self) {
        let mut pointers =
            ["/listen", "/listen/address", "/admin", "/admin/address"].map(str::to_owned).to_vec();
        for index in 0..self.array_len("/listen") {
            pointers.extend([format!("/listen/{index}"), format!("/listen/{index}/address")]);
        }
        let mut taken: HashMap<SocketAddr, String> = HashMap::new();
        for pointer in pointers {
            let Some(listen) = self.text_at(&pointer) else { continue };
            if pointer.starts_with("/admin") && listen == GatewayConfig::ADMIN_OFF {
                continue;
            }
            let shown = self.redacted_text(&pointer, &listen);
            let Ok(address) = listen.parse::<SocketAddr>() else {
                let hint = "write 127.0.0.1:8080 or [::]:8080";
                self.add_mistake(&pointer, format!("{shown} is not an address"), hint);
                continue;
            };
            if let Some(first) = taken.insert(address, pointer.clone()).filter(|_| address.port() != 0) {
                let hint = "one address can be listened on once";
                self.add_mistake(
                    &pointer,
                    format!("{shown} is taken already by {}", field_path(&first)),
                    hint,
                );
            }
        }
    }

    /// Checks the hosts of the listeners.
    fn check_hosts(&mut self) {
        let listeners = (0..self.array_len("/listen")).map(|index| format!("/listen/{index}"));
        let alone = ["/listen", "/admin"].map(str::to_owned);
        for listener in alone.into_iter().chain(listeners).collect::<Vec<_>>() {
            for index in 0..self.array_len(&format!("{listener}/hosts")) {
                let pointer = format!("{listener}/hosts/{index}");
                let Some(text) = self.text_at(&pointer) else { continue };
                if let Err(reason) = host_names::check_pattern(&text) {
                    let shown = self.redacted_text(&pointer, &text);
                    let hint = "write shop.example.org, *.shop.example.org or shop.example.org:8443";
                    self.add_mistake(&pointer, format!("{shown} is not a valid host: {reason}"), hint);
                }
            }
        }
    }

    fn check_trusted_proxies(&mut self) {
        for index in 0..self.array_len("/trusted_proxies") {
            let pointer = format!("/trusted_proxies/{index}");
            let Some(text) = self.text_at(&pointer) else { continue };
            if trusted_proxies::parse_network(&text).is_none() {
                let shown = self.redacted_text(&pointer, &text);
                self.add_mistake(
                    &pointer,
                    format!("{shown} is not a network"),
                    "write 10.0.0.0/8 or 10.1.2.3",
                );
            }
        }
    }

    fn check_client_ip_header(&mut self) {
        const POINTER: &str = "/client_ip_header";
        let Some(text) = self.text_at(POINTER) else { return };
        let shown = self.redacted_text(POINTER, &text);
        if !trusted_proxies::is_address_header(&text) {
            let hint = "write x-forwarded-for, forwarded, or the one that the proxy writes";
            self.add_mistake(POINTER, format!("{shown} is not a header for client addresses"), hint);
        } else if self.array_len("/trusted_proxies") == 0 {
            let hint = "write `trusted_proxies` too: the header is read from trusted proxies only";
            self.add_mistake(POINTER, "no proxy is trusted, so the header is never read", hint);
        }
    }

    fn check_proxy_headers(&mut self) {
        for index in 0..self.array_len("/proxy_headers") {
            let pointer = format!("/proxy_headers/{index}");
            let Some(text) = self.text_at(&pointer) else { continue };
            if !trusted_proxies::is_proxy_header(&text) {
                let shown = self.redacted_text(&pointer, &text);
                let hint =
                    "write x-forwarded-prefix, client-cert, or another that the gateway doesn't rewrite";
                self.add_mistake(&pointer, format!("{shown} can't be passed on from a proxy"), hint);
            }
        }
    }

    /// Applies the services' own checks to each service that can be deserialised.
    fn check_services(&mut self) {
        let Some(Value::Object(services)) = self.root.get("services") else { return };
        let whole = |value: &Value| serde_json::from_value::<ServiceConfig>(value.clone()).ok();
        let whole: BTreeMap<String, ServiceConfig> =
            services.iter().filter_map(|(name, value)| Some((name.clone(), whole(value)?))).collect();
        for problem in ServiceSet::load(&whole, self.source.folder()).err().unwrap_or_default() {
            let pointer = format!("/services{}", problem.location.pointer());
            let message =
                if self.source.is_hidden(&pointer) { "the value is wrong".into() } else { problem.message };
            self.add_mistake(&pointer, message, problem.hint.as_deref().unwrap_or_default());
        }
    }

    fn check_traces(&mut self) {
        let traces = self.root.get("traces").and_then(|traces| serde_json::from_value(traces.clone()).ok());
        let traces: Option<TracesConfig> = traces;
        for error in traces.iter().flat_map(TracesConfig::mistakes) {
            self.add_mistake(&format!("/traces{}", error.field), error.message, error.hint);
        }
    }

    fn check_cors(&mut self, pointer: &str) {
        for index in 0..self.array_len(&format!("{pointer}/origins")) {
            let pointer = format!("{pointer}/origins/{index}");
            let Some(origin) = self.text_at(&pointer) else { continue };
            if !cors::is_origin_pattern(&origin) {
                let shown = self.redacted_text(&pointer, &origin);
                let hint = "write https://shop.example.org, http://localhost:* or *, with no path";
                self.add_mistake(&pointer, format!("{shown} is not an origin"), hint);
            }
        }
        self.check_cors_credentials(pointer);
        for list in ["headers", "expose"].map(|list| format!("{pointer}/{list}")) {
            for index in 0..self.array_len(&list) {
                let pointer = format!("{list}/{index}");
                let Some(name) = self.text_at(&pointer) else { continue };
                if !cors::is_header_name(&name) {
                    let shown = self.redacted_text(&pointer, &name);
                    self.add_mistake(
                        &pointer,
                        format!("{shown} is not a header name"),
                        "list them one by one",
                    );
                }
            }
        }
    }

    /// Rejects credentials that no listed origin can send: an unnamed origin never gets them.
    fn check_cors_credentials(&mut self, pointer: &str) {
        let Some(cors) = self.root.pointer(pointer) else { return };
        let asked = cors.get("credentials") == Some(&Value::Bool(true));
        let origins = cors.get("origins").and_then(Value::as_array);
        let unnamed = |origin: &Value| matches!(origin.as_str(), Some("*" | "null"));
        if asked && origins.is_some_and(|origins| !origins.is_empty() && origins.iter().all(unnamed)) {
            let hint = "list the origins whose credentials count";
            self.add_mistake(
                &format!("{pointer}/credentials"),
                "`*` and `null` never send credentials",
                hint,
            );
        }
    }

    fn check_routes(&mut self) {
        let mut taken = HashMap::new();
        for index in 0..self.array_len("/routes") {
            let route = format!("/routes/{index}");
            self.check_path(&route, index, &mut taken);
            self.check_handler(&route);
            self.check_service_names(&route);
            self.check_cors(&format!("{route}/cors"));
            self.check_limits(&format!("{route}/limits"));
            self.check_limits(&format!("{route}/query/limits"));
            self.check_limits(&format!("{route}/script/limits"));
            self.check_limits(&format!("{route}/aggregate/limits"));
            self.check_limits(&format!("{route}/graphql/limits"));
            self.check_graphql(&format!("{route}/graphql"));
        }
    }

    fn check_path(&mut self, route: &str, index: usize, taken: &mut HashMap<String, usize>) {
        let pointer = format!("{route}/path");
        let Some(path) = self.text_at(&pointer) else { return };
        let shown = self.redacted_text(&pointer, &path);
        if !path.starts_with('/') {
            self.add_mistake(&pointer, format!("{shown} does not start with `/`"), "");
        }
        if path.strip_suffix("/*").unwrap_or(&path).contains('*') {
            let hint = "a wildcard is the last segment: /catalog/*";
            self.add_mistake(&pointer, format!("{shown} has a `*` in its middle"), hint);
        }
        if path.contains(['?', '#']) {
            self.add_mistake(
                &pointer,
                format!("{shown} has a query or a fragment"),
                "routes match the path alone",
            );
        }
        if let Some(first) = taken.insert(path, index) {
            self.add_mistake(&pointer, format!("{shown} is taken already by routes[{first}]"), "");
        }
    }

    fn check_handler(&mut self, route: &str) {
        let Some(Value::Object(members)) = self.root.pointer(route) else { return };
        let ways: Vec<&str> = HANDLERS.into_iter().filter(|way| members.contains_key(*way)).collect();
        let hint = format!("a route has exactly one of {}", join_alternatives(&HANDLERS.map(str::to_owned)));
        match ways.as_slice() {
            [_] => {}
            [] => self.add_mistake(route, "the route has no handler", &hint),
            [.., last] => {
                let message = format!("the route has {} at once", ways.join(" and "));
                self.add_mistake(&format!("{route}/{last}"), message, &hint);
            }
        }
    }

    fn check_service_names(&mut self, route: &str) {
        self.check_service_name(&format!("{route}/proxy"));
        self.check_service_name(&format!("{route}/proxy/service"));
        for services in [format!("{route}/query/services"), format!("{route}/graphql/services")] {
            for index in 0..self.array_len(&services) {
                self.check_service_name(&format!("{services}/{index}"));
            }
        }
    }

    /// Checks the source of a GraphQL schema: services or a supergraph.
    fn check_graphql(&mut self, pointer: &str) {
        let Some(Value::Object(members)) = self.root.pointer(pointer) else { return };
        let has_services = self.array_len(&format!("{pointer}/services")) > 0;
        match members.get("supergraph") {
            None if !has_services => {
                let hint = "name the services of the schema, or a supergraph";
                self.add_mistake(pointer, "the schema has no source", hint);
            }
            Some(_) if has_services || members.contains_key("links") => {
                let hint = "a supergraph already specifies its services and links";
                self.add_mistake(
                    &format!("{pointer}/supergraph"),
                    "a supergraph beside `services` or `links`",
                    hint,
                );
            }
            _ => {}
        }
    }

    fn check_service_name(&mut self, pointer: &str) {
        let Some(name) = self.text_at(pointer) else { return };
        let services = self.root.get("services").and_then(Value::as_object);
        let known: Vec<&str> = services.into_iter().flat_map(|all| all.keys()).map(String::as_str).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            return;
        }
        let hint = did_you_mean(&name, known).unwrap_or_else(|| "write it under `services:`".to_owned());
        let shown = self.redacted_text(pointer, &name);
        self.add_mistake(pointer, format!("there is no service {shown}"), &hint);
    }

    fn check_limits(&mut self, pointer: &str) {
        let Some(Value::Object(limits)) = self.root.pointer(pointer) else { return };
        // Zero is valid only for this lower bound, where it disables the check.
        for (name, value) in limits.iter().filter(|(name, _)| *name != "min_request_body_rate") {
            if is_zero(value) {
                self.add_mistake(&format!("{pointer}/{name}"), "a limit of zero allows nothing", "");
            }
        }
        if let (Some(cpu), Some(timeout)) = (parse_span(limits.get("cpu")), parse_span(limits.get("timeout")))
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
            self.add_mistake(
                &format!("{pointer}/concurrency"),
                format!("more than the limit of {calls} calls in total"),
                "",
            );
        }
    }
}

fn parse_span(value: Option<&Value>) -> Option<Duration> {
    serde_json::from_value::<services::DurationConfig>(value?.clone()).ok().map(|span| span.0)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => {
            text.parse() == Ok(BytesConfig(0)) || text.parse() == Ok(services::DurationConfig::default())
        }
        _ => false,
    }
}
