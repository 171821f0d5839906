//! The diagnostics for mistakes in a config.

use std::path::Path;

use diagnostics::Diagnostic;

use super::{GatewayConfig, read_text, schema};

fn config_mistakes(text: &str) -> Vec<String> {
    let mistakes = read_text(text, Path::new("orfa.yaml")).err().unwrap_or_default();
    mistakes.iter().map(Diagnostic::to_string).collect()
}

#[track_caller]
fn assert_mistakes(text: &str, expected: &[&str]) {
    let told = config_mistakes(text);
    assert_eq!(told, expected, "\n{}\n", told.join("\n"));
}

const GOOD: &str = "
services:
  catalog: { url: http://127.0.0.1:3000, timeout: 2s }
cors: { origins: ['https://shop.example.org', 'http://localhost:*'], max_age: 2h }
drain: { timeout: 5s }
log: { access: false }
routes:
  - path: /query
    query: { services: [catalog] }
  - { path: '/catalog/*', proxy: catalog, limits: { request_body: 1MiB, timeout: 5s } }
  - { path: '/whole/*', proxy: { service: catalog, keep_prefix: true }, cors: { origins: ['*'] } }
";

#[test]
fn a_good_config_is_read_with_its_defaults() {
    let config = read_text(GOOD, Path::new("orfa.yaml")).unwrap();
    assert_eq!(config.listen.addresses().collect::<Vec<_>>(), ["127.0.0.1:8080"]);
    assert_eq!(config.drain.timeout.0.as_secs(), 5);
    assert_eq!(config.routes[0].limits.request_body.0, 64 << 20);
    assert_eq!(config.routes[1].limits.request_body.0, 1 << 20);
    assert!(!config.log.access);
}

/// The file that `reports_every_mistake_with_its_position` expects the mistakes of.
const INVALID_CONFIG: &str = r#"listen: everywhere
lissten: 127.0.0.1:8080
services:
  catalog:
    url: http://catalog:8080
    timeout: 50 bananas
  profile: { url: [], forward: 7 }
cors: { origins: [shop.example.org] }
routes:
  - path: query
    query: { services: [catalogg], limits: { cpu: 0ms } }
  - path: /a/*/b
    proxy: [catalog]
  - path: /c
  - { path: /c, proxy: catalog, query: { services: [] } }
  - { proxy: "${env:ORFA_TEST_IS_NOT_SET}" }
  - { path: /d, proxy: catalog, limits: { request_body: much, timeou: 3s } }
log: { access: "yes", access: 3 }
drain:
"#;

#[test]
fn reports_every_mistake_with_its_position() {
    assert_mistakes(
        INVALID_CONFIG,
        &[
            "orfa.yaml:1:9: listen: `everywhere` is not an address (hint: write 127.0.0.1:8080 or [::]:8080)",
            "orfa.yaml:2:1: lissten: unknown key `lissten` (hint: did you mean `listen`?)",
            "orfa.yaml:6:14: services.catalog.timeout: \"50 bananas\" is not a time span (hint: write 50ms, 2s or 5m)",
            "orfa.yaml:7:19: services.profile.url: the list is too short: it needs at least 1",
            "orfa.yaml:7:32: services.profile.forward: has to be a list, not 7",
            "orfa.yaml:8:19: cors.origins[0]: `shop.example.org` is not an origin (hint: write https://shop.example.org, http://localhost:* or *, with no path)",
            "orfa.yaml:10:11: routes[0].path: `query` does not start with `/`",
            "orfa.yaml:11:25: routes[0].query.services[0]: there is no service `catalogg` (hint: did you mean `catalog`?)",
            "orfa.yaml:11:51: routes[0].query.limits.cpu: a limit of zero allows nothing",
            "orfa.yaml:12:11: routes[1].path: `/a/*/b` has a `*` in its middle (hint: a wildcard is the last segment: /catalog/*)",
            "orfa.yaml:13:12: routes[1].proxy: has to be a text or a map, not a list",
            "orfa.yaml:14:5: routes[2]: the route has no handler (hint: a route has exactly one of query, script, aggregate, graphql or proxy)",
            "orfa.yaml:15:13: routes[3].path: `/c` is taken already by routes[2]",
            "orfa.yaml:15:24: routes[3].proxy: the route has query and proxy at once (hint: a route has exactly one of query, script, aggregate, graphql or proxy)",
            "orfa.yaml:15:52: routes[3].query.services: the list is too short: it needs at least 1",
            "orfa.yaml:16:5: routes[4]: `path` is missing",
            "orfa.yaml:16:14: routes[4].proxy: the environment variable `ORFA_TEST_IS_NOT_SET` is not set (hint: set ORFA_TEST_IS_NOT_SET before the start)",
            "orfa.yaml:17:57: routes[5].limits.request_body: \"much\" is not a number of bytes (hint: write 64KiB, 16MiB or 1GiB)",
            "orfa.yaml:17:63: routes[5].limits.timeou: unknown key `timeou` (hint: did you mean `timeout`?)",
            "orfa.yaml:18:23: log.access: the key `access` occurs twice",
            "orfa.yaml:18:31: log.access: has to be true or false, not 3",
            "orfa.yaml:19:6: drain: has to be a map, not nothing",
        ],
    );
}

#[test]
fn reports_invalid_yaml_with_its_line() {
    let expected =
        "orfa.yaml:3:1: this is not YAML: while parsing a node, did not find expected node content";
    assert_mistakes("routes:\n  - path: [\n", &[expected]);
}

#[test]
fn rejects_extra_documents_and_unrepresentable_numbers() {
    let expected = "orfa.yaml:3:1: this is not YAML: another document begins here; a file may have only one";
    assert_mistakes(&format!("{{}}\n# the first\n---{GOOD}"), &[expected]);
    let long = GOOD.replace("timeout: 2s", "timeout: 12345678901234567890123");
    let expected = "orfa.yaml:3:51: services.catalog.timeout: the number has more digits than can be represented (hint: write it in quotes, if a string will do)";
    assert!(config_mistakes(&long).contains(&expected.to_owned()), "{:?}", config_mistakes(&long));
    assert!(config_mistakes(&format!("---{GOOD}...\n")).is_empty());
}

#[test]
fn empty_config_reports_missing_routes() {
    assert_mistakes("", &["orfa.yaml: `routes` is missing"]);
}

#[test]
fn substitutes_secrets_and_never_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "hunter2\n").unwrap();
    let file = folder.path().join("orfa.yaml");
    let good =
        "services: { a: { url: http://a, headers: { x-api-key: 'key ${file:secret} $${x}' } } }\nroutes: []";
    let config = read_text(good, &file).unwrap();
    assert_eq!(config.services["a"].headers["x-api-key"], "key hunter2 ${x}");
    for bad in [
        "listen: '${file:secret}'\nroutes: []",
        "services: { a: { url: http://a, timeout: '${file:secret}' } }\nroutes: []",
        "services: { a: { url: '${file:secret}' } }\nroutes: []",
        "services: { a: { url: http://a, headers: { x: \"${file:secret}\\n\" } } }\nroutes: []",
        "routes: [{ path: '${file:secret}', proxy: '${file:secret}' }]",
        "cors: { origins: ['${file:secret}'] }\nlog: { access: '${file:secret}' }\nroutes: []",
    ] {
        let mistakes = read_text(bad, &file).expect_err(bad);
        assert!(mistakes.iter().all(|mistake| !mistake.to_string().contains("hunter2")), "{mistakes:?}");
    }
}

#[test]
fn reports_contradictory_limits() {
    assert_mistakes(
        "services: { a: { url: http://a } }
routes:
  - { path: /q, query: { services: [a], limits: { cpu: 3s, timeout: 2s, calls: 4, concurrency: 8 } } }
",
        &[
            "orfa.yaml:3:56: routes[0].query.limits.cpu: more CPU time than the timeout allows (hint: the timeout ends a run before this much CPU time can pass)",
            "orfa.yaml:3:96: routes[0].query.limits.concurrency: more than the limit of 4 calls in total",
        ],
    );
}

#[test]
fn rejects_cors_rules_that_browsers_ignore() {
    assert_mistakes(
        "cors: { origins: ['*', 'null'], credentials: true, headers: ['*'], expose: ['x y'] }\nroutes: []",
        &[
            "orfa.yaml:1:46: cors.credentials: `*` and `null` never send credentials (hint: list the origins whose credentials count)",
            "orfa.yaml:1:62: cors.headers[0]: `*` is not a header name (hint: list them one by one)",
            "orfa.yaml:1:77: cors.expose[0]: `x y` is not a header name (hint: list them one by one)",
        ],
    );
}

#[test]
fn resolves_aliases_up_to_a_limit() {
    let text = "services: { a: &a { url: http://a }, b: *a }\nroutes: []";
    assert_eq!(read_text(text, Path::new("x")).unwrap().services.len(), 2);
    let mut bomb = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
    for n in 1..12 {
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(",")));
    }
    assert!(config_mistakes(&bomb)[0].contains("the aliases expand to too many values"));
    assert!(config_mistakes(&"[".repeat(100_000))[0].contains("recursion limit"));
    assert!(
        config_mistakes(&format!("{}{}", "[".repeat(100), "]".repeat(100)))[0].contains("nested too deep")
    );
}

#[test]
fn builds_a_config_from_the_dev_command_line() {
    let services = [("catalog".to_owned(), "http://localhost:3002".to_owned())];
    let config = GatewayConfig::dev(&services, 9000).unwrap();
    assert_eq!(config.listen.addresses().collect::<Vec<_>>(), ["127.0.0.1:9000"]);
    assert_eq!(config.routes[0].path, "/query");
    let diagnostics =
        GatewayConfig::dev(&[("catalog".to_owned(), "localhost:3002".to_owned())], 9000).unwrap_err();
    assert!(
        diagnostics[0].to_string().starts_with("command line: services.catalog.url: "),
        "{}",
        diagnostics[0]
    );
}

#[test]
fn schema_forbids_unknown_keys_and_describes_every_field() {
    fn walk(schema: &serde_json::Value, at: &str) {
        if let Some(properties) = schema.get("properties").and_then(|properties| properties.as_object()) {
            assert_eq!(schema["additionalProperties"], false, "{at} lets unknown keys in");
            for (name, property) in properties {
                assert!(property.get("description").is_some(), "{at}.{name} has no description");
            }
        }
    }
    let schema = schema();
    walk(&schema, "config");
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        walk(definition, name);
    }
    assert!(!schema.to_string().contains("\"null\""), "null is not a config value");
}

#[test]
fn rejects_endless_files() {
    let mistakes = read_text("listen: '${file:/dev/zero}'\nroutes: []", Path::new("orfa.yaml")).unwrap_err();
    assert!(mistakes.iter().any(|mistake| mistake.to_string().contains("larger than 1 MiB")), "{mistakes:?}");
}

#[test]
fn accepts_one_or_several_listen_addresses() {
    let addresses = |listen: &str| {
        let config = read_text(&format!("listen: {listen}\nroutes: []"), Path::new("orfa.yaml")).unwrap();
        config.listen.addresses().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(addresses("127.0.0.1:80"), ["127.0.0.1:80"]);
    assert_eq!(addresses("{ address: '[::1]:80' }"), ["[::1]:80"]);
    assert_eq!(addresses("['0.0.0.0:80', { address: 0.0.0.0:81 }]"), ["0.0.0.0:80", "0.0.0.0:81"]);
    assert_mistakes(
        "listen: ['localhost:80', { address: 0.0.0.0:81 }, '0.0.0.0:81', { adress: 1 }]\nroutes: []",
        &[
            "orfa.yaml:1:10: listen[0]: `localhost:80` is not an address (hint: write 127.0.0.1:8080 or [::]:8080)",
            "orfa.yaml:1:51: listen[2]: `0.0.0.0:81` is taken already by listen[1].address (hint: one address can be listened on once)",
            "orfa.yaml:1:65: listen[3]: `address` is missing",
            "orfa.yaml:1:67: listen[3].adress: unknown key `adress` (hint: did you mean `address`?)",
        ],
    );
}

#[test]
fn lists_every_named_file_even_if_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orfa.yaml");
    std::fs::write(folder.path().join("there"), "secret\n").unwrap();
    let text = |key: &str| {
        format!(
            "services:\n  a: {{ url: 'http://a', openapi: a.yaml, headers: {{ k: '${{file:{key}}}' }} }}\nroutes: []\n"
        )
    };
    let names = |reading: &super::ConfigReadResult| -> Vec<String> {
        let name = |file: &std::path::PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
        reading.files.iter().map(name).collect()
    };
    std::fs::write(&file, text("there")).unwrap();
    let reading = super::read_watched(&file);
    assert_eq!(names(&reading), ["orfa.yaml", "there", "a.yaml"]);
    assert_eq!(reading.config.unwrap().source.digest().len(), 64);
    std::fs::write(&file, text("missing")).unwrap();
    let reading = super::read_watched(&file);
    assert!(reading.config.is_err());
    assert_eq!(names(&reading), ["orfa.yaml", "missing"]);
}

/// A config with every mistake in callers and rights.
const INVALID_CALLERS: &str = r#"auth:
  keys: { header: "co okie" }
  jwt: { issuer: login, audience: [], algorithms: [none, HS256, RS256], leeway: 1h, secret: hunter2, caller: "" }
callers:
  shop: { key: hunter2, groups: [partners] }
  robot: { key: ["sha256:abc", "${env:ORFA_TEST_IS_NOT_SET}"] }
  nobody: {}
  partners: { certificate: x }
  others: { subject: y }
  one: { key: "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8" }
  two: { key: "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8", certificate: x }
rights:
  anonymous: { routes: [/catalogs/*, "x"], rate: {} }
  partners: { services: [catalogg], methods: [get], limits: { cpu: 0ms, memory: 1GB/s } }
  shop: { rate: { requests: 0/s, cpu: 500/s, burst: 0, max_in_flight: -1, speed: 3 } }
  robot: { rate: { burst: 5 } }
shed: { delay: soon, max_in_flight: 0, automatic: maybe }
services: { catalog: { url: http://catalog } }
routes:
  - { path: /catalog/*, proxy: catalog, auth: sometimes }
"#;

#[test]
fn reports_every_mistake_in_callers_and_rights_with_its_position() {
    assert_mistakes(
        INVALID_CALLERS,
        &[
            "orfa.yaml:2:19: auth.keys.header: `co okie` is not a header for keys (hint: write x-api-key or authorization)",
            "orfa.yaml:3:35: auth.jwt.audience: the list is too short: it needs at least 1",
            "orfa.yaml:3:52: auth.jwt.algorithms[0]: \"none\" is none of the allowed values (hint: write RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 or HS512)",
            "orfa.yaml:3:65: auth.jwt.algorithms[2]: `RS256` does not fit the keys (hint: HS256, HS384 and HS512 go with a `secret`, all others with public keys)",
            "orfa.yaml:3:81: auth.jwt.leeway: the leeway is too long (hint: write at most 10m)",
            "orfa.yaml:3:93: auth.jwt.secret: the secret is in the file in plain text (hint: write ${file:PATH} or ${env:NAME}, and take another secret)",
            "orfa.yaml:3:110: auth.jwt.caller: the text must not be empty",
            "orfa.yaml:5:16: callers.shop.key: the key is in the file in plain text (hint: write ${env:NAME}, ${file:PATH} or sha256:HASH, and take another key)",
            "orfa.yaml:6:18: callers.robot.key[0]: the hash is incomplete (hint: write sha256: and 64 hexadecimal digits)",
            "orfa.yaml:6:32: callers.robot.key[1]: the environment variable `ORFA_TEST_IS_NOT_SET` is not set (hint: set ORFA_TEST_IS_NOT_SET before the start)",
            "orfa.yaml:7:11: callers.nobody: nothing identifies this caller (hint: give it a `key`, a `certificate` or a `subject`)",
            "orfa.yaml:7:11: callers.nobody: `rights` has no row for `nobody`, so it may do nothing (hint: give it, one of its groups, or `others` a row)",
            "orfa.yaml:8:13: callers.partners: `partners` is a caller and a group (hint: rename one of them)",
            "orfa.yaml:9:11: callers.others: `others` can't be the name of a caller (hint: it is a row of `rights`)",
            "orfa.yaml:9:11: callers.others: `rights` has no row for `others`, so it may do nothing (hint: give it, one of its groups, or `others` a row)",
            "orfa.yaml:10:8: callers.one: `rights` has no row for `one`, so it may do nothing (hint: give it, one of its groups, or `others` a row)",
            "orfa.yaml:11:8: callers.two: `rights` has no row for `two`, so it may do nothing (hint: give it, one of its groups, or `others` a row)",
            "orfa.yaml:11:15: callers.two.key: `one` has the same key (hint: a key belongs to one caller)",
            "orfa.yaml:11:103: callers.two.certificate: `partners` has the same certificate (hint: a certificate belongs to one caller)",
            "orfa.yaml:13:25: rights.anonymous.routes[0]: `/catalogs/*` matches no route (hint: did you mean `/catalog/*`?)",
            "orfa.yaml:13:38: rights.anonymous.routes[1]: `x` is not a route pattern: a path pattern begins with `/` (hint: write it as a route's path: /catalog/*)",
            "orfa.yaml:13:50: rights.anonymous.rate: the rate limits nothing (hint: write requests, cpu or max_in_flight)",
            "orfa.yaml:14:26: rights.partners.services[0]: there is no service `catalogg` (hint: did you mean `catalog`?)",
            "orfa.yaml:14:47: rights.partners.methods[0]: `get` is not a method for calls to services (hint: write GET, POST or another HTTP method)",
            "orfa.yaml:14:68: rights.partners.limits.cpu: a limit of zero allows nothing",
            "orfa.yaml:14:81: rights.partners.limits.memory: \"1GB/s\" is not a number of bytes (hint: write 64KiB, 16MiB or 1GiB)",
            "orfa.yaml:15:29: rights.shop.rate.requests: \"0/s\" is not a rate (hint: write 100/s, 6000/m or 10/h)",
            "orfa.yaml:15:39: rights.shop.rate.cpu: \"500/s\" is not a rate of CPU time (hint: write 500ms/s or 2s/m)",
            "orfa.yaml:15:53: rights.shop.rate.burst: 0 is less than 1",
            "orfa.yaml:15:71: rights.shop.rate.max_in_flight: -1 is less than 1",
            "orfa.yaml:15:75: rights.shop.rate.speed: unknown key `speed` (hint: known here: requests, burst, cpu, max_in_flight)",
            "orfa.yaml:16:27: rights.robot.rate.burst: a burst without a rate (hint: write `requests` too)",
            "orfa.yaml:17:16: shed.delay: \"soon\" is not a time span (hint: write 50ms, 2s or 5m)",
            "orfa.yaml:17:37: shed.max_in_flight: 0 is less than 1",
            "orfa.yaml:17:51: shed.automatic: has to be true or false, not \"maybe\"",
            "orfa.yaml:20:47: routes[0].auth: \"sometimes\" is none of the allowed values (hint: write required or optional)",
        ],
    );
}

#[test]
fn rejects_recordings_for_unknown_callers_and_keys() {
    assert_mistakes(
        r#"services: { c: { url: http://c } }
callers:
  tester: { key: "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8" }
  anyone: { certificate: x }
trust: {}
routes:
  - { path: /open, query: { services: [c], recordings: { callers: [anyone] } } }
  - { path: /query, query: { services: [c], recordings: { callers: [tester, testr, boss], keys: [app] } } }
"#,
        &[
            "orfa.yaml:4:11: callers.anyone: `anyone` can't be the name of a caller (hint: it means all callers in `recordings`)",
            "orfa.yaml:8:77: routes[1].query.recordings.callers[1]: there is no caller `testr` (hint: did you mean `tester`?)",
            "orfa.yaml:8:84: routes[1].query.recordings.callers[2]: there is no caller `boss` (hint: write it under `callers:`)",
            "orfa.yaml:8:98: routes[1].query.recordings.keys[0]: there is no key `app` (hint: write it under `trust:`)",
        ],
    );
}

#[test]
fn rejects_tokens_that_cannot_be_verified() {
    let hint = "(hint: write its URL, or name the location of its keys with `jwks`)";
    assert_mistakes(
        "auth: { jwt: { issuer: login, audience: shop } }\nroutes: []",
        &[&format!("orfa.yaml:1:24: auth.jwt.issuer: `login` is not a URL, so no keys can be found {hint}")],
    );
    assert_mistakes(
        "rights: { shop: {} }\nservices: { c: { url: http://c } }\nroutes: [{ path: /, proxy: c, auth: required }]",
        &[
            "orfa.yaml:1:17: rights.shop: there is no caller or group `shop` (hint: write it under `callers:`)",
            "orfa.yaml:3:37: routes[0].auth: no caller can have credentials for this route (hint: write `callers` or `auth.jwt`)",
        ],
    );
}
