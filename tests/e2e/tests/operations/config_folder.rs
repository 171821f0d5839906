//! Paths in a config that is named without a folder (`orfa.yaml`): they are relative to the config, and so to
//! the working directory.

use std::path::Path;
use std::process::Stdio;

use testkit::with_timeout;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::orfa_binary;

/// A config that references every kind of file.
const CONFIG: &str = r#"
listen: 127.0.0.1:0
admin: off
runtime: { secret: "${file:secrets/tokens}", cache_dir: cache }
callers: { shop: { key: "${file:secrets/key}" } }
rights: { anonymous: {}, shop: {} }
services:
  up: { url: "http://127.0.0.1:1", openapi: up.json }
scripts: { state_dir: state/s.db }
routes:
  - { path: /query, query: { services: [up], stored: [./queries/*, one.js] } }
  - { path: /here, query: { services: [up], stored: ["*.js"] } }
  - { path: /graphql, graphql: { services: [up], documents: ./documents/*.graphql } }
  - { path: /both, aggregate: both.yaml }
"#;
const FILES: &[(&str, &str)] = &[
    ("queries/two.js", "export default () => 2"),
    ("one.js", "export default () => 1"),
    ("secrets/tokens", "a-secret-that-is-as-long-as-it-has-to-be\n"),
    ("secrets/key", "a-key-that-is-as-long-as-a-key-has-to-be\n"),
    ("documents/Names.graphql", "query Names { names { id } }"),
    ("both.yaml", "parts: { names: { get: up/names } }\n"),
    (
        "up.json",
        r#"{"openapi":"3.1.0","info":{"title":"up","version":"1"},"paths":{"/names":{"get":{"operationId":"names","responses":{"200":{"description":"all","content":{"application/json":{"schema":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}}}}}}}}}}}}"#,
    ),
];

fn write_files(folder: &Path) {
    for (name, text) in FILES.iter().chain(&[("orfa.yaml", CONFIG)]) {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("written");
    }
}

/// Arguments that name the config, each with the working directory below the root.
const CONFIG_ARGUMENTS: &[(&str, &[&str])] = &[
    ("app", &["check"]),
    ("app", &["check", "orfa.yaml"]),
    ("app", &["check", "./orfa.yaml"]),
    ("", &["check", "app/orfa.yaml"]),
    ("app/queries", &["check", "../orfa.yaml"]),
];

#[tokio::test]
async fn paths_are_relative_to_the_config_however_it_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    write_files(&folder.path().join("app"));
    for (from, arguments) in CONFIG_ARGUMENTS {
        let mut check = Command::new(orfa_binary());
        let checked = check.current_dir(folder.path().join(from)).args(*arguments).output().await;
        let checked = checked.expect("orfa runs");
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.success(), "{arguments:?} in {from}: {said}");
    }
}

#[tokio::test]
async fn pattern_characters_in_a_folder_name_are_literal() {
    let folder = tempfile::tempdir().expect("a folder");
    let odd = folder.path().join("a[b]*?");
    write_files(&odd);
    for arguments in [&["check", "orfa.yaml"][..], &["check", odd.join("orfa.yaml").to_str().expect("UTF-8")]]
    {
        let checked =
            Command::new(orfa_binary()).current_dir(&odd).args(arguments).output().await.expect("orfa runs");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// A new program in a folder that a pattern names comes into force, because the folder is watched.
#[tokio::test]
async fn referenced_files_are_watched_however_the_config_is_named() {
    for (from, config, late) in [
        ("app", "orfa.yaml", "app/late.js"),
        ("app", "orfa.yaml", "app/queries/late.js"),
        ("", "app/orfa.yaml", "app/queries/late.js"),
        ("", "app/orfa.yaml", "app/late.js"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        write_files(&folder.path().join("app"));
        let mut serve = Command::new(orfa_binary());
        serve.current_dir(folder.path().join(from)).args(["serve", "--config", config]);
        let mut gateway =
            serve.stderr(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true).spawn().expect("orfa runs");
        let mut lines = BufReader::new(gateway.stderr.take().expect("a log")).lines();
        let mut seen = String::new();
        let mut line = async |wanted: &str| loop {
            let next = lines.next_line().await.expect("a log");
            seen.push_str(next.as_deref().unwrap_or_default());
            seen.push('\n');
            match next {
                Some(line) if line.contains(wanted) => return line,
                Some(_) => {}
                None => panic!("{from} {config}: no `{wanted}` in\n{seen}"),
            }
        };
        let listens = with_timeout("the gateway listens", line("\"address\"")).await;
        let address = listens.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let address = address.expect("an address").to_owned();
        std::fs::write(folder.path().join(late), "export default () => 'late'").expect("written");
        let path = if late.contains("queries") { "query" } else { "here" };
        with_timeout(format!("{late} is noticed"), line("has changed and is active")).await;
        let answer = testkit::http::request("GET", &format!("http://{address}/{path}/late"), &[], "").await;
        assert_eq!(answer.expect("an answer").text(), "late", "{from} {config} {late}");
    }
}
