//! Fuzzing of supergraphs (see `fuzz/src/lib.rs`): the planner must be able to load every supergraph that
//! `read` accepts, or report an error.

use std::sync::Arc;

use super::{ServiceSchema, compose, read_supergraph};
use crate::GraphqlLimits;
use crate::plan::QueryPlanner;

const SERVICES: [(&str, &str); 3] = [
    (
        "a",
        r#"type Query { us: [U] n: Node e(i: I = { x: 1 }): E } interface Node @key(fields: "id") { id: ID! }
           union U = A | B input I { x: Int = 1 } enum E { A B }
           type A implements Node @key(fields: "id b { x }") @key(fields: "id") { id: ID! b: B! p: Int @override(from: "b", label: "percent(5)") }
           type B { x: Int @shareable }"#,
    ),
    (
        "b",
        r#"type A @key(fields: "id") { id: ID! b: B! @external p: Int q: Int @requires(fields: "b { x }") }
           type Query { best: A @provides(fields: "b { x }") } type B { x: Int @external }"#,
    ),
    ("c", r#"type Node @key(fields: "id") @interfaceObject { id: ID! extra: Int }"#),
];

#[test]
fn no_supergraph_text_makes_the_planner_panic() {
    let link = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@requires",
      "@provides", "@external", "@shareable", "@override", "@interfaceObject"]) "#;
    let services = SERVICES.map(|(name, sdl)| (Arc::from(name), format!("{link}{sdl}")));
    let parts = services.each_ref().map(|(name, sdl)| ServiceSchema { name, sdl });
    let good = compose(&parts).expect("a supergraph").sdl;
    check_planner_creation(&good);
    let words = &[
        "@join__type(graph: A",
        "@join__field(graph: B",
        "@join__implements(graph: A, interface: \"Node\")",
        ", key: \"",
        ", requires: \"",
        ", provides: \"",
        ", override: \"a\"",
        ", overrideLabel: \"percent(",
        ", external: true",
        ", type: \"",
        "\")",
        ")",
        " { ",
        " }",
        "id",
        "b { x }",
        "Node",
        "type A ",
        "interface ",
        "union U = ",
        "enum E ",
        ": ",
        "ID!",
        "[",
        "]",
        "isInterfaceObject: true",
        "C",
        "\n",
        "Query",
        "...on A { id }",
    ];
    ::fuzz::check(words, |bytes: &[u8]| {
        check_planner_creation(&String::from_utf8_lossy(&::fuzz::damage_input(good.as_bytes(), bytes)));
        let text = String::from_utf8_lossy(bytes);
        check_planner_creation(&text);
        // Inserts words at a position within the valid supergraph.
        let at = bytes.first().map_or(0, |byte| usize::from(*byte) * good.len() / 256);
        let (before, behind) = good.split_at(at);
        let behind = behind.get(text.len().min(behind.len()) / 4..).unwrap_or_default();
        check_planner_creation(&format!("{before}{text}{behind}"));
    });
}

fn check_planner_creation(text: &str) {
    let Ok(supergraph) = read_supergraph(text) else { return };
    let why = QueryPlanner::new(&supergraph.sdl, Vec::new(), &GraphqlLimits::default(), true).err();
    assert_ne!(why.as_deref(), Some(crate::plan::UNREADABLE_MESSAGE), "{text}");
}
