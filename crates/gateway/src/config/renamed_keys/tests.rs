//! Old keys are accepted with a warning each, and never together with the new ones.

use std::path::Path;

use diagnostics::Diagnostic;

use super::super::{FieldPositions, GatewayConfig, companion_files, read_document, read_text, schema, yaml};
use super::{CONFIG, DECLARATION, find_schemas};

/// A config with every old key, each on a line of its own that ends with its new name.
const OLD: &str = "\
services:
  a:
    url: http://a
    dns: 7s # dns_refresh_rate
    health:
      path: /healthz
      every: 7s # interval
      healthy: 7 # healthy_threshold
      unhealthy: 7 # unhealthy_threshold
callers:
  shop: { certificate: x }
rights:
  shop:
    limits:
      deadline: 7s # timeout
      parallel: 7 # concurrency
      received: 7KiB # upstream_bytes
      output: 7KiB # response_body
    rate:
      at_once: 7 # max_in_flight
trust:
  app:
    public: x # public_key
    limits:
      deadline: 7s # timeout
      parallel: 7 # concurrency
      received: 7KiB # upstream_bytes
      output: 7KiB # response_body
runtime:
  folder: x # cache_dir
  folder_size: 7MiB # cache_dir_size
scripts:
  state: x # state_dir
routes:
  - path: /query
    query:
      services: [a]
      limits:
        deadline: 7s # timeout
        parallel: 7 # concurrency
        received: 7KiB # upstream_bytes
        output: 7KiB # response_body
        program: 7KiB # program_bytes
        body: 7KiB # request_body
    limits:
      deadline: 7s # timeout
      body: 7KiB # request_body
      body_rate: 7B # min_request_body_rate
    filters:
      - wasm: x.wasm
        limits:
          time: 7ms # cpu
          start: 7ms # startup_cpu
  - path: /script
    script:
      file: x.sjs
      limits:
        time: 7ms # cpu
        wall: 7s # timeout
        parallel: 7 # concurrency
        received: 7KiB # upstream_bytes
        body: 7KiB # request_body
      workers:
        least: 7 # min
        most: 7 # max
      resources:
        most: 7 # max
  - path: /aggregate
    aggregate:
      file: x.yaml
      limits:
        deadline: 7s # timeout
        parallel: 7 # concurrency
        received: 7KiB # upstream_bytes
        body: 7KiB # request_body
  - path: /graphql
    graphql:
      services: [a]
      persisted: false # apq
      limits:
        deadline: 7s # timeout
        parallel: 7 # concurrency
        received: 7KiB # upstream_bytes
        body: 7KiB # request_body
";

/// A line with an old key: its number, the column of the key, the old and the new key.
type OldLine = (usize, usize, &'static str, &'static str);

fn old_lines() -> Vec<OldLine> {
    let line = |(index, line): (usize, &'static str)| {
        let (setting, new) = line.split_once(" # ")?;
        let (old, _) = setting.trim_start().split_once(':')?;
        Some((index + 1, setting.find(old)? + 1, old, new))
    };
    OLD.lines().enumerate().filter_map(line).collect()
}

/// Returns each line with its old and new key, if it has them.
fn split_old_and_new(line: &str) -> (String, Option<String>) {
    let Some((setting, new)) = line.split_once(" # ") else { return (line.to_owned(), None) };
    let (old, value) = setting.trim_start().split_once(':').unwrap();
    let indent = &setting[..setting.find(old).unwrap()];
    (setting.to_owned(), Some(format!("{indent}{new}:{value}")))
}

fn parse_config(text: &str) -> Result<GatewayConfig, Vec<Diagnostic>> {
    read_text(text, Path::new("orfa.yaml"))
}

fn config_warnings(text: &str) -> Vec<String> {
    parse_config(text).unwrap().source.warnings().iter().map(Diagnostic::to_string).collect()
}

fn config_mistakes(text: &str) -> Vec<String> {
    parse_config(text).err().unwrap_or_default().iter().map(Diagnostic::to_string).collect()
}

/// Formats a config without the positions in its file.
fn debug_settings(config: GatewayConfig) -> String {
    format!("{:?}", GatewayConfig { source: FieldPositions::default(), ..config })
}

#[test]
fn accepts_every_old_key_with_a_warning_at_its_position() {
    let config = parse_config(OLD).unwrap();
    let warned: Vec<_> = config.source.warnings().to_vec();
    let lines = old_lines();
    assert_eq!(lines.len(), CONFIG.iter().map(|renamed| renamed.keys.len()).sum::<usize>());
    assert_eq!(warned.len(), lines.len(), "{warned:#?}");
    for ((line, column, old, new), warning) in lines.into_iter().zip(warned) {
        assert_eq!(warning.location.line_and_column(), (line, column), "{warning}");
        assert!(warning.location.field().ends_with(&format!(".{old}")), "{warning}");
        assert_eq!(warning.message, format!("the key `{old}` is deprecated"));
        assert_eq!(warning.hint, Some(format!("write `{new}`")));
    }
}

#[test]
fn new_keys_have_the_same_meaning_without_a_warning() {
    let new =
        OLD.lines().map(split_old_and_new).map(|(line, new)| new.unwrap_or(line) + "\n").collect::<String>();
    let config = parse_config(&new).unwrap();
    assert!(config.source.warnings().is_empty(), "{:#?}", config.source.warnings());
    assert_eq!(debug_settings(config), debug_settings(parse_config(OLD).unwrap()));
}

#[test]
fn rejects_an_old_key_beside_the_new_one() {
    let both = OLD.lines().map(split_old_and_new);
    let both: String = both.map(|(line, new)| [line, new.unwrap_or_default()].join("\n") + "\n").collect();
    let mistakes = parse_config(&both).unwrap_err();
    let lines = old_lines();
    assert_eq!(mistakes.len(), lines.len(), "{mistakes:#?}");
    for ((_, column, old, new), mistake) in lines.into_iter().zip(mistakes) {
        assert_eq!(mistake.message, format!("`{old}` is the old name of `{new}`, which is set too"));
        assert_eq!(mistake.location.line_and_column().1, column);
        assert!(mistake.location.field().ends_with(&format!(".{old}")), "{mistake}");
    }
}

#[test]
fn a_config_with_mistakes_has_its_warnings_too() {
    let text = "services: { a: { url: http://a, dns: 7s } }\nroutes: [{ path: / }]";
    let reading = read_document(text, Path::new("orfa.yaml"));
    assert_eq!((reading.config.unwrap_err().len(), reading.warnings.len()), (1, 1));
}

#[test]
fn reports_mistakes_in_old_settings_where_they_are() {
    assert_eq!(
        config_mistakes(
            "services: { a: { url: http://a } }\nroutes:\n  - { path: /, proxy: a, limits: { body: much } }"
        ),
        [
            "orfa.yaml:3:42: routes[0].limits.request_body: \"much\" is not a number of bytes (hint: write 64KiB, 16MiB or 1GiB)"
        ]
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "hunter2\n").unwrap();
    let text = "services: { a: { url: http://a, dns: '${file:secret}' } }\nroutes: []";
    let mistakes = read_text(text, &folder.path().join("orfa.yaml")).unwrap_err();
    assert!(mistakes.iter().all(|mistake| !mistake.to_string().contains("hunter2")), "{mistakes:?}");
}

#[test]
fn more_cpu_time_than_the_timeout_is_a_warning_on_script_routes() {
    let hint = "(hint: the timeout ends a run before this much CPU time can pass)";
    let script = "routes:\n  - { path: /s, script: { file: x.sjs, limits: { time: 3s, wall: 2s } } }";
    assert_eq!(
        config_warnings(script),
        [
            "orfa.yaml:2:50: routes[0].script.limits.time: the key `time` is deprecated (hint: write `cpu`)".to_owned(),
            format!(
                "orfa.yaml:2:56: routes[0].script.limits.cpu: more CPU time than the timeout allows {hint}"
            ),
            "orfa.yaml:2:60: routes[0].script.limits.wall: the key `wall` is deprecated (hint: write `timeout`)".to_owned(),
        ]
    );
    let query = "services: { a: { url: http://a } }\nroutes:\n  - { path: /q, query: { services: [a], limits: { cpu: 3s, deadline: 2s } } }";
    assert_eq!(
        config_mistakes(query),
        [format!("orfa.yaml:3:56: routes[0].query.limits.cpu: more CPU time than the timeout allows {hint}")]
    );
}

#[test]
fn the_schema_has_old_keys_as_deprecated() {
    let schema = schema();
    for renamed in CONFIG {
        let found = find_schemas(&schema, "", &renamed.steps());
        assert!(!found.is_empty(), "{} leads to no map", renamed.path);
        for pointer in found {
            let properties = schema.pointer(&format!("{pointer}/properties")).unwrap();
            for (old, new) in renamed.keys {
                assert_eq!(properties[old]["deprecated"], true, "{}.{old}", renamed.path);
                assert_eq!(properties[old]["description"], format!("Renamed to `{new}`."));
                assert_eq!(properties[new].get("deprecated"), None, "{}.{new}", renamed.path);
            }
        }
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    let document = yaml::read(OLD, Path::new("orfa.yaml")).unwrap();
    let errors: Vec<_> = validator.iter_errors(&document.value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn old_names_in_declarations_are_warnings_of_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let declaration = "\
input:
  ids:
    type: list
    of: integer
    values: [1, 2]
    longest: 5
answer: buyers
parts:
  buyers: { get: 'a/buyers?id={ids}' }
";
    std::fs::write(folder.path().join("buyers.yaml"), declaration).unwrap();
    let text = "services: { a: { url: http://a, dns: 7s } }\nroutes: [{ path: /b, aggregate: buyers.yaml }]";
    let config = read_text(text, &folder.path().join("orfa.yaml")).unwrap();
    let warned = config.source.warnings().iter();
    let warned: Vec<_> = warned
        .map(|warning| {
            let hint = warning.hint.as_deref().unwrap_or_default();
            (warning.location.line_and_column().0, warning.location.field(), hint)
        })
        .collect();
    assert_eq!(
        warned,
        [
            (1, "services.a.dns", "write `dns_refresh_rate`"),
            (3, "input.ids.type", "write `array`"),
            (4, "input.ids.of", "write `items`"),
            (5, "input.ids.values", "write `enum`"),
            (6, "input.ids.longest", "write `max_length`"),
            (7, "answer", "write `response`"),
        ]
    );
    let read = companion_files::read_companion::<aggregate::AggregateDeclaration>(
        declaration,
        Path::new("buyers.yaml"),
        DECLARATION,
    );
    let (read, source) = read.unwrap();
    assert_eq!((read.input["ids"].max_length, source.warnings().len()), (Some(5), 5));
}
