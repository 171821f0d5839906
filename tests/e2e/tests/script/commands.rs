//! The command `orfa script`, and the checks of scripts by `orfa check`.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::orfa_binary;

const SHOP: &str = include_str!("../../../../crates/script/tests/listings/3.sjs");
const PARALLEL_LISTING: &str = include_str!("../../../../crates/script/tests/listings/4.sjs");
const INVALID_SCRIPT: &str = "service s {\n  state n = 0\n  res '/a' on GET { n++; respond n }\n  res '/b' on GET { n = 1; respond n }\n}\n";

fn script_folder(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("shop.sjs"), script).expect("written");
    folder
}

async fn run_orfa(folder: &Path, arguments: &[&str]) -> (Output, String, String) {
    let output =
        Command::new(orfa_binary()).args(arguments).current_dir(folder).output().await.expect("orfa runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[tokio::test]
async fn check_reports_every_error_with_its_location_and_a_hint() {
    let folder = script_folder(INVALID_SCRIPT);
    let (output, out, err) = run_orfa(folder.path(), &["script", "check", "shop.sjs"]).await;
    assert_eq!((output.status.code(), &*out), (Some(64), ""));
    for part in ["shop.sjs:3:", "shop.sjs:4:", "s-get-writes", "help: ", "rule 3", "has 2 errors"] {
        assert!(err.contains(part), "no {part} in\n{err}");
    }
}

#[tokio::test]
async fn check_describes_how_each_handler_runs() {
    let folder = script_folder(SHOP);
    let (output, out, err) = run_orfa(folder.path(), &["script", "check", "shop.sjs"]).await;
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.starts_with("ok: 1 service, 2 handlers\ncomposition\n"), "{out}");
    let post = out.lines().find(|line| line.contains("POST /search")).expect("a row");
    assert!(post.contains("writer: one at a time") && post.contains("id (group 1"), "{post}");
    assert!(post.contains("commits early, at 4:"), "{post}");
    let get = out.lines().find(|line| line.contains("GET /search POST > ")).expect("a row");
    assert!(get.contains("stateless: replicated"), "{get}");
}

#[tokio::test]
async fn check_lists_handlers_that_need_no_worker() {
    let folder = script_folder(
        "service s { res g = 'http://g/@'; res '/a' on GET { respond { g: g.get(query.id) } } }",
    );
    let (_, out, err) = run_orfa(folder.path(), &["script", "check", "shop.sjs"]).await;
    assert!(out.contains("GET /a  stateless: composed without a worker"), "{out}{err}");
    let (_, out, _) = run_orfa(folder.path(), &["script", "check", "--json", "shop.sjs"]).await;
    let value: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(value["services"][0]["handlers"][0]["composed"], true);
}

#[tokio::test]
async fn check_prints_json() {
    let folder = script_folder(INVALID_SCRIPT);
    let (output, out, _) = run_orfa(folder.path(), &["script", "check", "--json", "shop.sjs"]).await;
    let value: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(output.status.code(), Some(64));
    let told_of = |code: &str| {
        let found = value["diagnostics"].as_array().into_iter().flatten();
        found
            .filter(|found| found["code"] == code)
            .map(|found| found["at"]["line"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(told_of("s-get-writes"), [3, 4]);
    assert_eq!(told_of("s-state-paths").len(), 1);
    assert_eq!(value["services"], Value::Null);
    let folder = self::script_folder(SHOP);
    let (_, out, _) = run_orfa(folder.path(), &["script", "check", "--json", "shop.sjs"]).await;
    let told: Value = serde_json::from_str(&out).expect("JSON");
    let post = &told["services"][0]["handlers"][0];
    assert_eq!(
        (&post["method"], &post["class"], &post["cells"]),
        (&json!("POST"), &json!("writer"), &json!(["id"]))
    );
    assert_eq!(post["commit"]["line"], 4);
}

#[tokio::test]
async fn strict_paths_turns_the_papers_rule_into_an_error() {
    let folder = script_folder(
        "service s {\n  state n = 0\n  res '/a' on GET { respond n }\n  res '/b' on PUT { n = 1 }\n}\n",
    );
    let (lax, _, warned) = run_orfa(folder.path(), &["script", "check", "shop.sjs"]).await;
    let (strict, _, refused) =
        run_orfa(folder.path(), &["script", "check", "--strict-paths", "shop.sjs"]).await;
    assert_eq!((lax.status.code(), strict.status.code()), (Some(0), Some(64)));
    assert!(warned.contains("s-state-paths") && refused.contains("s-state-paths"), "{warned}{refused}");
}

#[tokio::test]
async fn build_prints_javascript_and_writes_a_source_map() {
    let folder = script_folder(SHOP);
    let (output, out, err) = run_orfa(folder.path(), &["script", "build", "shop.sjs"]).await;
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("$s.service(\"composition\""), "{out}");
    let (_, out, _) =
        run_orfa(folder.path(), &["script", "build", "shop.sjs", "-o", "out", "--source-map"]).await;
    assert!(out.contains("out/shop.js"), "{out}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).expect("a file");
    assert!(read("shop.js").ends_with("//# sourceMappingURL=shop.js.map\n"));
    let map: Value = serde_json::from_str(&read("shop.js.map")).expect("JSON");
    assert_eq!((&map["version"], &map["sources"]), (&json!(3), &json!(["shop.sjs"])));
}

#[tokio::test]
async fn build_reports_like_check_and_prints_javascript_separately() {
    let folder = script_folder(
        "service s { res g = 'http://g/@'; res '/a' on GET { respond { g: g.get(query.id) } } }",
    );
    let (_, checked, _) = run_orfa(folder.path(), &["script", "check", "shop.sjs"]).await;
    assert!(checked.contains("GET /a  stateless: composed without a worker"), "{checked}");
    let (_, out, err) = run_orfa(folder.path(), &["script", "build", "shop.sjs"]).await;
    assert_eq!(err, checked);
    assert!(out.contains("$s.handler(0, ") && !out.contains("composed"), "{out}");
    let (_, _, err) = run_orfa(folder.path(), &["script", "build", "shop.sjs", "-o", "out"]).await;
    assert_eq!(err, checked);
}

#[tokio::test]
async fn graph_prints_and_draws_dependences() {
    let folder = script_folder(PARALLEL_LISTING);
    let (output, out, err) = run_orfa(folder.path(), &["script", "graph", "shop.sjs"]).await;
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.starts_with("par at 4:5\n") && out.contains("1 call"), "{out}");
    run_orfa(folder.path(), &["script", "graph", "shop.sjs", "-o", "graph.svg"]).await;
    let drawn = std::fs::read_to_string(folder.path().join("graph.svg")).expect("a file");
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
}

#[tokio::test]
async fn orfa_check_compiles_a_configs_scripts_without_side_effects() {
    let folder = script_folder(INVALID_SCRIPT);
    let config = "routes: [{ path: '/s/*', script: shop.sjs }]\n";
    std::fs::write(folder.path().join("orfa.yaml"), config).expect("written");
    let (output, _, err) = run_orfa(folder.path(), &["check"]).await;
    assert_eq!(output.status.code(), Some(64));
    assert!(err.contains("shop.sjs:3:21: ") && err.contains("the config has 2 errors"), "{err}");
    std::fs::write(folder.path().join("shop.sjs"), SHOP).expect("written");
    let (output, out, err) = run_orfa(folder.path(), &["check"]).await;
    assert_eq!((output.status.code(), &*out), (Some(0), "ok: 0 services, 1 route\n"), "{err}");
    assert!(!folder.path().join("state").exists(), "only the gateway may create the state");
    for (script, message) in [
        ("{ file: none.sjs }", "the script none.sjs can't be read"),
        ("{ file: shop.sjs, service: other }", "has no service `other`"),
        ("{ file: shop.sjs, hosts: ['http://x/'] }", "routes[0].script.hosts"),
    ] {
        let config = format!("routes: [{{ path: '/s/*', script: {script} }}]\n");
        std::fs::write(folder.path().join("orfa.yaml"), config).expect("written");
        let (output, _, err) = run_orfa(folder.path(), &["check"]).await;
        assert_eq!(output.status.code(), Some(64), "{script}");
        assert!(err.contains(message), "{script}: {err}");
    }
}
