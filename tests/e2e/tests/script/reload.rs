//! Reloads of a script while it is served.

use super::ScriptTestGateway;
use crate::support::orfa_binary;

/// Returns a script with a counter and the version of the program.
fn counter_script(version: &str) -> String {
    format!(
        "service counter {{\n  state n = 0\n  res '/n' on POST {{ n++; respond n }}\n  \
         res '/version' on GET {{ respond '{version}' }}\n}}\n"
    )
}

#[tokio::test]
async fn a_changed_script_comes_into_force_and_keeps_its_state() {
    let served = ScriptTestGateway::start(&counter_script("one")).await;
    assert_eq!(served.get("/version").await, "one");
    assert_eq!(served.request("POST", "/n").await.text(), "1");
    served.gateway.replace_file("shop.sjs", &counter_script("two"));
    served.wait_for_text("/version", "two").await;
    assert_eq!(served.request("POST", "/n").await.text(), "2");
}

#[tokio::test]
async fn a_script_with_errors_is_logged_and_the_previous_one_stays_in_force() {
    let served = ScriptTestGateway::start(&counter_script("one")).await;
    assert_eq!(served.get("/version").await, "one");
    served.gateway.replace_file(
        "shop.sjs",
        &counter_script("two").replace("res '/version' on GET {", "res '/version' on GET { n++;"),
    );
    let line = served.gateway.wait_for_log(|line| line.contains("shop.sjs:4:")).await.expect("a line");
    assert!(line.contains("s-get-writes"), "{line}");
    served.gateway.wait_for_log(|line| line.contains("stays active")).await.expect("a line");
    assert_eq!(served.get("/version").await, "one");
    served.gateway.replace_file("shop.sjs", &counter_script("three"));
    served.wait_for_text("/version", "three").await;
}

#[tokio::test]
async fn a_script_that_fails_to_load_leaves_the_previous_one_in_force() {
    let served = ScriptTestGateway::start(&counter_script("one")).await;
    assert_eq!(served.get("/version").await, "one");
    served.gateway.replace_file("shop.sjs", &format!("const oops = missing()\n{}", counter_script("two")));
    let line = served.gateway.wait_for_log(|line| line.contains("can't be activated")).await.expect("a line");
    assert!(line.contains("shop.sjs:1:14: ReferenceError: missing is not defined"), "{line}");
    assert_eq!(served.get("/version").await, "one");
}

#[tokio::test]
async fn a_changed_module_that_a_script_imports_comes_into_force() {
    let script = "import { word } from './words.mjs'\nservice says { res '/word' on GET { respond word } }\n";
    let upstream = testkit::misbehaving_upstream::start().await;
    let config = super::config(&upstream.url(), "  - { path: '/s/*', script: shop.sjs }\n", "");
    let files = [("shop.sjs", script), ("words.mjs", "export const word = 'one'\n")];
    let gateway = testkit::GatewayProcess::start_with(orfa_binary(), &config, &files).await;
    let served = ScriptTestGateway { gateway, upstream };
    assert_eq!(served.get("/word").await, "one");
    served.gateway.replace_file("words.mjs", "export { word } from './more.mjs'\n");
    served.gateway.replace_file("more.mjs", "export const word = 'two'\n");
    served.wait_for_text("/word", "two").await;
    // A module imported by the imported module.
    served.gateway.replace_file("more.mjs", "export const word = 'three'\n");
    served.wait_for_text("/word", "three").await;
}

#[tokio::test]
async fn a_changed_cap_of_resources_comes_into_force_with_the_same_script() {
    let script = "service lists {\n  res '/lists' on POST {\n    res '/lists/' + query.id on GET { respond query.id }\n  }\n}\n";
    let served = ScriptTestGateway::start_with_options(script, "resources: { max: 1 }", "").await;
    assert_eq!(served.request("POST", "/lists?id=1").await.status, 204);
    let full = served.problem_code("POST", "/lists?id=2").await;
    assert_eq!(full, (503, "state-resources-full".into()));
    let config = std::fs::read_to_string(served.gateway.directory().join("orfa.yaml")).expect("a config");
    served.gateway.replace_file("orfa.yaml", &config.replace("max: 1", "max: 2"));
    let made = async { while served.request("POST", "/lists?id=2").await.status != 204 {} };
    testkit::with_timeout("the higher cap in force", made).await;
    assert_eq!(served.problem_code("POST", "/lists?id=3").await.1, "state-resources-full");
}
