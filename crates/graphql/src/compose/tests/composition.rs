//! Cases that the oracle lacks or handles differently from the specification, and tests of error messages.

use diagnostics::{Diagnostic, SourceDocument};

use super::plans::{new_planner, plan_query};
use super::{FEDERATION_V2_HEADER, compose_case};
use crate::compose::read_supergraph;

fn error_line(error: &Diagnostic) -> String {
    format!("{}: {} ({})\n", error.code.unwrap(), error.message, error.hint.as_deref().unwrap())
}

fn error_codes(case: &str) -> Vec<&'static str> {
    compose_case(case).err().unwrap_or_default().iter().map(|error| error.code.unwrap()).collect()
}

#[test]
fn accepts_federation_under_another_name() {
    let sdl = compose_case(
        "# service: a
extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", as: \"fed\")
type Query { a: T }
type T @fed__key(fields: \"id\") { id: ID! }",
    );
    assert!(sdl.unwrap().contains("@join__type(graph: A, key: \"id\")"));
}

#[test]
fn last_service_of_an_override_chain_resolves_the_field() {
    let sdl = compose_case(
        "# service: a (v2)
type Query { x: Int a: Int }
# service: b (v2)
type Query { x: Int @override(from: \"a\") b: Int }
# service: c (v2)
type Query { x: Int @override(from: \"b\") c: Int }",
    );
    let plan = plan_query(&new_planner(&sdl.unwrap()), "{ x }").unwrap();
    assert!(plan.contains("\"c\"") && !plan.contains("\"a\"") && !plan.contains("\"b\""), "{plan}");
}

#[test]
fn an_interface_object_may_require_fields() {
    let sdl = compose_case(
        "# service: a (v2)
type Query { users: [Node!]! }
interface Node @key(fields: \"id\") { id: ID! name: String! }
type User implements Node @key(fields: \"id\") { id: ID! name: String! age: Int }
# service: b (v2)
type Query { b: [Node!]! }
type Node @key(fields: \"id\") @interfaceObject { id: ID! name: String! @external upper: String! @requires(fields: \"name\") }",
    );
    let planner = new_planner(&sdl.unwrap());
    let plan = plan_query(&planner, "{ b { upper ... on User { age } } users { upper } }").unwrap();
    assert!(plan.contains("\"a\"") && plan.contains("\"b\""), "{plan}");
}

#[test]
fn rejects_implementations_beside_an_interface_object() {
    let found = error_codes(
        "# service: a (v2)
type Query { users: [Node!]! }
interface Node @key(fields: \"id\") { id: ID! }
type User implements Node @key(fields: \"id\") { id: ID! name: String }
# service: b (v2)
type Node @key(fields: \"id\") @interfaceObject { id: ID! age: Int }
type User @key(fields: \"id\") { id: ID! }",
    );
    assert_eq!(found, ["INTERFACE_OBJECT_USAGE_ERROR"]);
}

#[test]
fn rejects_an_inconsistent_supergraph_with_its_position() {
    let good = compose_case(
        "# service: a (v2)
type Query { it: It us: [U] } union U = It | Other
interface Node { id: ID! }
type It implements Node @key(fields: \"id\") { id: ID! n: Int @override(from: \"b\", label: \"percent(5)\") }
type Other { o: O } type O { x: Int }
# service: b (v2)
type It @key(fields: \"id\") { id: ID! n: Int m: Int @external o: Int @requires(fields: \"m\") best: It @provides(fields: \"m\") }
# service: c (v2)
type It @key(fields: \"id\") { id: ID! m: Int @shareable }",
    );
    let good = good.unwrap();
    assert!(read_supergraph(&good).is_ok());
    for (was, is, code, coordinate) in [
        ("percent(5)", "percent(500)", "OVERRIDE_LABEL_INVALID", "It.n"),
        ("key: \"id\"", "key: \"id {\"", "KEY_INVALID_FIELDS", "It"),
        ("key: \"id\"", "key: \"no\"", "KEY_INVALID_FIELDS", "It"),
        ("key: \"id\"", "key: \"\"", "KEY_INVALID_FIELDS", "It"),
        ("requires: \"m\"", "requires: \"m { x }\"", "REQUIRES_INVALID_FIELDS", "It.o"),
        ("provides: \"m\"", "provides: \"...on No { m }\"", "PROVIDES_INVALID_FIELDS", "It.best"),
        ("@join__type(graph: A", "@join__type(graph: D", "INVALID_GRAPHQL", "It"),
        ("member: \"Other\"", "member: \"Node\"", "INVALID_GRAPHQL", "U"),
        ("interface: \"Node\"", "interface: \"O\"", "INVALID_GRAPHQL", "It"),
        (" x: Int", " x: Nothing", "INVALID_GRAPHQL", "O.x"),
    ] {
        let type_of = good.find("type It").unwrap();
        let at = good[type_of..].find(was).map(|at| type_of + at).or_else(|| good.find(was)).unwrap();
        let broken = format!("{}{is}{}", &good[..at], &good[at + was.len()..]);
        let errors = read_supergraph(&broken).err().unwrap_or_default();
        let found = errors.first().map(|error| (error.code.unwrap(), error.location.field()));
        assert_eq!(found, Some((code, coordinate)), "{was} → {is}: {errors:#?}");
        assert_eq!(errors[0].location.line_and_column().0, broken[..at].lines().count(), "{errors:#?}");
    }
}

#[test]
fn renames_custom_root_types_in_all_references() {
    let sdl = compose_case(
        "# service: a (v2)
schema { query: Root }
type Root { a: Int again: Root! }
# service: b (v2)
type Query { b: Int }",
    );
    let sdl = sdl.unwrap();
    assert!(sdl.contains("again: Query!") && !sdl.contains("Root"), "{sdl}");
    assert!(plan_query(&new_planner(&sdl), "{ again { a b } }").is_ok());
}

#[test]
fn provided_fields_are_reachable_only_by_their_path() {
    let case = |more| {
        format!(
            "# service: a (v2)
type Query {{ a: X @provides(fields: \"y\") {more} }}
type X {{ y: Int @external }}
# service: b (v2)
type Query {{ b: X }}
type X {{ y: Int }}"
        )
    };
    assert!(compose_case(&case("")).is_ok());
    assert_eq!(error_codes(&case("plain: X")), ["SATISFIABILITY_ERROR"]);
}

#[test]
fn fields_that_require_each_other_are_unsatisfiable() {
    let case = "# service: a (v2)
type Query { a: T }
type T @key(fields: \"id\") { id: ID! x: Int @requires(fields: \"y\") y: Int @external }
# service: b (v2)
type T @key(fields: \"id\") { id: ID! y: Int @requires(fields: \"x\") x: Int @external }";
    assert_eq!(error_codes(case), ["SATISFIABILITY_ERROR"; 2]);
}

#[test]
fn rejects_reserved_names_and_empty_types() {
    assert_eq!(
        error_codes("# service: a\ntype Query { a: join__T } type join__T { x: Int }"),
        ["INVALID_GRAPHQL"; 2]
    );
    assert_eq!(error_codes("# service: a\ntype Query { a: T } type T"), ["INVALID_GRAPHQL"]);
    assert!(compose_case("# service: a\nscalar ID type Query { a: ID }\n# service: b\ntype Query").is_ok());
}

#[test]
fn preserves_strings_and_descriptions() {
    let sdl = compose_case(
        "# service: a
type Query {
  \"\"\"
  It's \"quoted\", with \\ and
  two lines, é.
  \"\"\"
  a(x: String = \"a \\\"b\\\" \\\\ \\n\"): Int @deprecated(reason: \"for a \\\"reason\\\"\")
}",
    );
    let sdl = sdl.unwrap();
    let again = format!("# service: a\n{}", &sdl[sdl.find("type Query").unwrap()..]);
    let field = |sdl: &str| sdl[sdl.find("type Query").unwrap()..].to_owned();
    assert_eq!(field(&compose_case(&again).unwrap()), field(&sdl));
    assert!(sdl.contains(r#""It's \"quoted\", with \\ and\ntwo lines, é.""#), "{sdl}");
    assert!(sdl.contains(r#"= "a \"b\" \\ \n""#), "{sdl}");
}

#[test]
fn reports_all_composition_errors_at_once() {
    let codes = error_codes(
        "# service: a (v2)
type Query { x: Int e: E @provides(fields: \"y\") }
enum E { A }
type T @key(fields: \"none\") { id: ID! }
# service: b (v2)
type Query { x: String z(e: E): Int }
enum E { B }
union T = Query",
    );
    let expected = [
        "KEY_INVALID_FIELDS",
        "PROVIDES_ON_NON_OBJECT_FIELD",
        "INVALID_FIELD_SHARING",
        "FIELD_TYPE_MISMATCH",
        "ENUM_VALUE_MISMATCH",
        "TYPE_KIND_MISMATCH",
    ];
    assert!(expected.iter().all(|code| codes.contains(code)), "{codes:?}");
}

#[test]
fn composition_errors_have_services_coordinate_and_hint() {
    let errors = compose_case(
        "# service: catalog (v2)
type Query { catalogs: [Catalog!]! }
type Catalog @key(fields: \"id\") { id: ID! buyer: Buyer }
type Buyer @key(fields: \"id\", resolvable: false) { id: ID! }
# service: profile (v2)
type Query { buyers: [Buyer!]! }
type Buyer @key(fields: \"email\") { email: String! name: String }",
    );
    let errors = errors.unwrap_err();
    insta::assert_snapshot!(errors.iter().map(error_line).collect::<String>(), @r#"
    SATISFIABILITY_ERROR: "Buyer.id" of "catalog" can't be resolved in `query { buyers { id } }`, where a "Buyer" comes from "profile": no @key resolves it there. (give "Buyer" a @key in "catalog", with fields that "profile" has too)
    SATISFIABILITY_ERROR: "Buyer.email" and "Buyer.name" of "profile" can't be resolved in `query { catalogs { buyer { email } } }`, where a "Buyer" comes from "catalog": its @key there ("email") can't be resolved here. (give "Buyer" a @key in "profile", with fields that "catalog" has too)
    "#);
    let error = &errors[1];
    assert_eq!(error.code, Some("SATISFIABILITY_ERROR"));
    assert_eq!(error.location.field(), "Buyer.email");
    let services = ["profile", "catalog"].map(|name| SourceDocument::Description(name.into()).at(""));
    assert!(error.labels.iter().map(|label| &label.location).eq(&services), "{error:#?}");
}

#[test]
fn rejects_directives_that_would_not_be_enforced() {
    let case = "# service: a
extend schema @link(url: \"https://specs.apollo.dev/federation/v2.5\", import: [\"@authenticated\"])
type Query { a: Int @authenticated }";
    assert_eq!(error_codes(case), ["UNSUPPORTED_LINKED_FEATURE"]);
}

#[test]
fn distinguishes_services_with_colliding_enum_names() {
    let sdl = compose_case(
        "# service: my-a (v2)\ntype Query { a: Int }\n# service: my_a (v2)\ntype Query { b: Int }\n# service: 1\ntype Query { c: Int }",
    );
    let sdl = sdl.unwrap();
    for graph in [
        "MY_A @join__graph(name: \"my-a\"",
        "MY_A_2 @join__graph(name: \"my_a\"",
        "G_1 @join__graph(name: \"1\"",
    ] {
        assert!(sdl.contains(graph), "{sdl}");
    }
    assert_eq!(
        error_codes("# service: a\ntype Query { a: Int }\n# service: a\ntype Query { b: Int }"),
        ["INVALID_SUBGRAPH_NAME"]
    );
}

#[test]
fn rejects_an_invalid_schema_with_its_position() {
    let errors = compose_case("# service: a\ntype Query { a: Int").unwrap_err();
    assert!(errors[0].message.contains("\"a\"") && errors[0].message.contains("1:"), "{}", errors[0]);
    let deep = format!("# service: a\ntype Query {{ a: {}Int{} }}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(error_codes(&deep), ["INVALID_GRAPHQL"]);
    let deep = format!(
        "# service: a (v2)\ntype Query {{ a: T }} type T @key(fields: \"{}\") {{ a: T }}",
        "a {".repeat(100_000)
    );
    assert_eq!(error_codes(&deep), ["KEY_INVALID_FIELDS"]);
}

#[test]
fn reads_an_existing_supergraph() {
    let sdl = compose_case(
        "# service: a (v2)\ntype Query { a: Int @inaccessible b: Int }\n# service: b\ntype Query { c: Int }",
    )
    .unwrap();
    let read_back = read_supergraph(&sdl).unwrap();
    assert_eq!(read_back.services.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(read_back.sdl, sdl);
}

#[test]
fn rejects_invalid_and_unsupported_supergraphs() {
    let code =
        |sdl: &str| read_supergraph(sdl).err().unwrap_or_default().first().map(|error| error.code.unwrap());
    assert_eq!(code("type Query { a: Int }"), Some("INVALID_GRAPHQL"));
    assert_eq!(code("type Query {"), Some("INVALID_GRAPHQL"));
    assert_eq!(code(FEDERATION_V2_HEADER), Some("INVALID_GRAPHQL"));
    let sdl = compose_case("# service: a (v2)\ntype Query { a: Int }").unwrap();
    assert_eq!(code(&sdl.replace("join/v0.3", "join/v9.0")), Some("UNKNOWN_LINK_VERSION"));
    let demanding = "schema @link(url: \"https://specs.apollo.dev/authenticated/v0.1\", for: SECURITY)\n";
    assert_eq!(code(&sdl.replacen("schema\n", demanding, 1)), Some("UNSUPPORTED_LINKED_FEATURE"));
}
