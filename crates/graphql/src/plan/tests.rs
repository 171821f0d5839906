//! Tests that small documents that request a lot are rejected before they take time or memory.

use graphql_tools::parser::parse_query;

use super::*;
use crate::{ServiceSchema, SubgraphBindings, SubgraphProtocol, compose};

/// A type that two services have parts of, with two keys, and an interface.
const SERVICES: [(&str, &str); 3] = [
    (
        "one",
        "type Query { t: T node: Node nodes: [Node] any: Any } union Any = T | One | Other
         type T @key(fields: \"id\") @key(fields: \"no\") { id: ID! no: ID! a: T of(text: String): T f0: Int f1: Int }
         interface Node { id: ID! next: Node }
         type One implements Node { id: ID! next: Node } type Other implements Node { id: ID! next: Node }",
    ),
    ("two", "type T @key(fields: \"id\") @key(fields: \"no\") { id: ID! no: ID! b: T c: Int @shareable }"),
    ("three", "type T @key(fields: \"id\") { id: ID! d: T c: Int @shareable }"),
];

pub(super) fn test_planner() -> QueryPlanner {
    planner_with(&GraphqlLimits::default())
}

fn planner_with(limits: &GraphqlLimits) -> QueryPlanner {
    planner_of(&SERVICES, limits)
}

fn planner_of(parts: &[(&str, &str)], limits: &GraphqlLimits) -> QueryPlanner {
    let subgraphs: Vec<Subgraph> = parts
        .iter()
        .map(|(name, sdl)| Subgraph {
            name: (*name).into(),
            sdl: (*sdl).to_owned(),
            kind: SubgraphProtocol::Remote {
                path: "/graphql".into(),
                bindings: Arc::<SubgraphBindings>::default(),
                is_federated: true,
            },
        })
        .collect();
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|part| ServiceSchema { name: &part.name, sdl: &part.sdl }).collect();
    let supergraph = compose(&parts).expect("a supergraph");
    QueryPlanner::new(&supergraph.sdl, subgraphs, limits, true).expect("a planner")
}

/// The codes of a document's errors, and the length of all their texts.
fn error_codes(planner: &QueryPlanner, text: &str, name: Option<&str>) -> (Vec<&'static str>, usize) {
    let errors = planner.plan(text, name).expect_err("a refusal");
    let length = errors.iter().map(|error| error.to_json().to_string().len()).sum();
    (errors.iter().map(|error| error.code).collect(), length)
}

#[test]
fn rejects_doubled_fragments_that_end_in_an_unknown_one() {
    let planner = test_planner();
    for levels in [2, 30, 60] {
        let (codes, _) = error_codes(&planner, &hostile::doubled_undefined_fragments(levels), None);
        assert_eq!(codes, ["graphql-invalid"]);
    }
}

#[test]
fn rejects_doubled_fragments_in_an_unselected_operation() {
    let planner = test_planner();
    let hostile = hostile::doubled_fragments(26, ["a", "a"]);
    let text = format!("query Chosen {{ t {{ id }} }} {hostile}");
    assert_eq!(error_codes(&planner, &text, Some("Chosen")).0, ["graphql-limit"]);
}

#[test]
fn rejects_doubled_fragments_that_no_operation_uses() {
    let planner = test_planner();
    let fragments = hostile::doubled_fragments(26, ["a", "b"]).replace("query A { t { ...F0 } }", "");
    let text = format!("{{ t {{ id }} }} {fragments}");
    assert_eq!(error_codes(&planner, &text, None).0, ["graphql-limit"]);
}

#[test]
fn limits_reported_conflicts_in_an_unselected_operation() {
    let planner = planner_with(&GraphqlLimits { aliases: 5000, ..GraphqlLimits::default() });
    let fields: String = (0..250).map(|number| format!("x: f{} ", number % 2)).collect();
    let text = hostile::with_unselected_operation("{ t { id } }", &format!("{{ t {{ {fields} }} }}"));
    let (codes, length) = error_codes(&planner, &text, Some("Chosen"));
    assert!(codes.iter().all(|code| *code == "graphql-invalid") && codes.len() <= 10, "{codes:?}");
    assert!(length < 10_000, "{length}");
    let (codes, length) = error_codes(&planner, &hostile::conflicting_fields(1600), None);
    assert!(codes.len() <= 21 && length < 20_000, "{} {length}", codes.len());
}

#[test]
fn reports_only_one_of_many_unknown_fragments() {
    let planner = test_planner();
    let (codes, length) = error_codes(&planner, &hostile::undefined_spreads(1200), None);
    assert_eq!(codes, ["graphql-invalid"]);
    assert!(length < 1000, "{length}");
}

#[test]
fn limits_the_number_and_length_of_reported_errors() {
    let planner = test_planner();
    let long = "x".repeat(200_000);
    let (_, length) = error_codes(
        &planner,
        &format!("{{ t {{ f0(a: \"{long}\") of(text: [\"{long:.20000}\"]) {{ id }} }} }}"),
        None,
    );
    assert!(length < 5000, "{length}");
    let variables: String = (0..400).map(|number| format!("$v{number}: Int ")).collect();
    let name = "q".repeat(250);
    let (codes, length) = error_codes(&planner, &format!("query {name}({variables}) {{ t {{ id }} }}"), None);
    assert!(codes.len() <= 21 && length < 20_000, "{} {length}", codes.len());
    let (_, length) = error_codes(&planner, &format!("{{ t {{ \"{long}\" }} }}"), None);
    assert!(length < 2000, "{length}");
    let (_, length) = error_codes(&planner, "{ t { id } }", Some(&long));
    assert!(length < 2000, "{length}");
}

#[test]
fn leaves_out_documents_with_many_selections_before_traversing_their_expansion() {
    let planner = test_planner();
    let is_left_out =
        |text: &str, name: Option<&str>| matches!(planner.check_document(text, name, 200), Ok(None));
    // The traversal would find `id` 400 times at one place.
    let (spreads, fields) = ("...F ".repeat(20), "id ".repeat(20));
    let repeated = format!("{{ t {{ {spreads} }} }} fragment F on T {{ {fields} }}");
    assert!(is_left_out(&repeated, None));
    assert_eq!(error_codes(&planner, &repeated, None).0, ["graphql-limit"]);
    // The limit is that of all operations together.
    let operations = |count: usize| {
        let operations: String =
            (0..count).map(|number| format!("query Q{number} {{ t {{ ...F }} }} ")).collect();
        format!("{operations} fragment F on T {{ {fields} }}")
    };
    assert!(is_left_out(&operations(10), Some("Q1")), "220 selections");
    assert!(!is_left_out(&operations(9), Some("Q1")), "198 selections");
    assert!(planner.plan(&operations(10), Some("Q1")).is_ok());
}

#[test]
fn rejects_oversized_names_operations_and_documents() {
    let planner = test_planner();
    let name = "n".repeat(300);
    assert_eq!(error_codes(&planner, &format!("{{ t {{ {name}: id }} }}"), None).0, ["graphql-limit"]);
    let many: String = (0..150).map(|number| format!("query Q{number} {{ t {{ id }} }} ")).collect();
    assert_eq!(error_codes(&planner, &many, Some("Q1")).0, ["graphql-limit"]);
    let long = format!("{{ t {{ id }} }} # {}", "x".repeat(300_000));
    assert_eq!(error_codes(&planner, &long, None).0, ["graphql-limit"]);
}

#[test]
fn rejects_long_chains_of_fragments() {
    let planner = test_planner();
    assert_eq!(error_codes(&planner, &hostile::fragment_chain(500), None).0, ["graphql-limit"]);
    assert!(planner.plan(&hostile::fragment_chain(50), None).is_ok());
}

#[test]
fn rejects_documents_that_expand_beyond_the_planning_limits() {
    let planner = test_planner();
    for fields in [["a", "a: f0"], ["a", "of"], ["a", "b"]] {
        let fields = fields.map(|field| field.split(':').next().unwrap_or_default());
        let text = hostile::doubled_fragments(14, fields);
        assert_eq!(error_codes(&planner, &text, None).0, ["graphql-limit"], "{fields:?}");
    }
    assert!(planner.plan(&hostile::doubled_fragments(5, ["a", "of"]), None).is_ok());
}

#[test]
fn rejects_hops_between_services_that_share_several_keys() {
    let planner = test_planner();
    assert!(planner.plan(&hostile::service_hops(6, ["a", "b"]), None).is_ok());
    for depth in [18, 20, 26] {
        assert_eq!(
            error_codes(&planner, &hostile::service_hops(depth, ["a", "b"]), None).0,
            ["graphql-limit"],
            "{depth}"
        );
    }
    // With one common key, there is only one path.
    assert!(planner.plan(&hostile::service_hops(20, ["b", "d"]), None).is_ok());
}

#[test]
fn rejects_long_arguments_that_the_planner_would_copy_for_each_leaf() {
    let planner = planner_with(&GraphqlLimits { aliases: 5000, ..GraphqlLimits::default() });
    assert_eq!(error_codes(&planner, &hostile::long_argument(100_000, 1000), None).0, ["graphql-limit"]);
    assert!(planner.plan(&hostile::long_argument(100_000, 2), None).is_ok());
}

#[test]
fn rejects_object_types_that_double_at_each_level() {
    let planner = test_planner();
    assert!(planner.plan(&hostile::doubling_type_fragments(4), None).is_ok());
    let text = hostile::doubling_type_fragments(20);
    assert!(text.len() < 20_000, "{}", text.len());
    assert_eq!(error_codes(&planner, &text, None).0, ["graphql-limit"]);
}

/// A planner for an interface with 200 object types.
fn planner_of_many_types() -> QueryPlanner {
    let objects: String =
        (0..200).map(|number| format!("type T{number} implements Node {{ id: ID! }} ")).collect();
    let sdl = format!("type Query {{ node: Node }} interface Node {{ id: ID! }} {objects}");
    planner_of(&[("one", sdl.as_str())], &GraphqlLimits::default())
}

/// The number of fields in a plan's shapes.
pub(super) fn field_count(shapes: &[ResponseShape]) -> usize {
    shapes.iter().flat_map(|shape| &shape.variants).map(|variant| variant.fields.len()).sum()
}

#[test]
fn rejects_plans_whose_fields_multiply_by_object_types() {
    let planner = planner_of_many_types();
    let text = |count: usize, fragment: &str| {
        let fields: String = (0..count).map(|number| format!("a{number}: id ")).collect();
        format!("{{ node {{ {fields} {fragment} }} }}")
    };
    let (few, many) = (text(20, "... on T0 { id }"), text(99, "... on T0 { id }"));
    let plan = planner.plan(&few, None).expect("a plan");
    assert!(plan.bytes <= MAX_PLAN_BYTES && field_count(&plan.shapes) == 1 + 200 * 20 + 1);
    assert_eq!(error_codes(&planner, &many, None).0, ["graphql-limit"]);
    assert!(planner.plan(&text(99, ""), None).is_ok(), "all types have the same fields");
    // The fields are counted before they exist.
    let fields = |text: &str| {
        planner.check_document(text, None, u64::MAX).expect("a document").expect("no limit").work.fields
    };
    assert_eq!([fields(&few), fields(&text(99, ""))], [1 + 200 * 20 + 1, 0]);
    // The rest of the fields is not made.
    let document = planner.parse(&many).expect("a document");
    let operation = DocumentOperation::from_document(&document, None).expect("an operation");
    let fragments = FragmentIndex::new(&document).expect("fragments");
    let keys = ResponseKeys::from_document(&document, &planner.reserved_names);
    let token = CancellationToken::with_timeout(PLANNING_TIMEOUT);
    let Ok((positions, _)) = planner.lower_operation(&operation, &fragments, &keys, &token) else {
        panic!("the document can't be planned")
    };
    let mut shaping = ShapeBuilder::new(&planner.types, &positions, &document, &keys);
    shaping.root_shape(operation.selections, planner.types.query);
    let made = field_count(&shaping.shapes);
    assert!(shaping.is_exhausted() && made < 200 * 99 / 2, "{made}");
}

#[test]
fn object_types_have_no_reads_of_other_types() {
    let planner = planner_of_many_types();
    let fragments: String = (0..50).map(|number| format!("... on T{number} {{ id }} ")).collect();
    let plan = planner.plan(&format!("{{ node {{ {fragments} }} }}"), None).expect("a plan");
    let variants: Vec<_> = plan.shapes.iter().flat_map(|shape| &shape.variants).collect();
    assert_eq!(variants.len(), 1 + 200);
    assert!(variants.iter().all(|variant| variant.read_count <= 1));
}

#[test]
fn plans_only_the_selected_operation_and_its_fragments() {
    let planner = test_planner();
    let text = "query A { t { ...F } } query B { node { ...G } } fragment F on T { id ...H } \
                fragment H on T { b { id } } fragment G on Node { id }";
    let document = planner.parse(text).expect("a document");
    let operation = DocumentOperation::from_document(&document, Some("A")).expect("an operation");
    let fragments = FragmentIndex::new(&document).expect("fragments");
    let planned = operation.planner_document(&fragments).expect("something to plan").to_string();
    assert!(planned.contains("fragment F") && planned.contains("fragment H"), "{planned}");
    assert!(!planned.contains("fragment G") && !planned.contains("query B"), "{planned}");
    assert!(planner.plan(text, Some("A")).is_ok() && planner.plan(text, Some("B")).is_ok());
    assert!(parse_query::<String>(&planned).is_ok());
}

#[test]
fn plans_conditional_fragments_of_a_union_within_itself() {
    let planner = test_planner();
    for text in [
        "query($v: Boolean!) { any { ... on Any @skip(if: $v) { __typename ... on T { id } } } }",
        "query($v: Boolean!) { any { ...F @include(if: $v) } } fragment F on Any { ... on T { b { id } } ... on One { id } }",
        "query($v: Boolean!) { any { ... on Any @skip(if: $v) { ... on Any @include(if: $v) { ... on T { b { id } } } } } }",
    ] {
        let plan = planner.plan(text, None);
        assert!(plan.is_ok(), "{text}: {plan:?}");
    }
}

#[test]
fn plans_fragments_emptied_by_conditions() {
    let planner = test_planner();
    for text in [
        "query($v: Boolean! = true) { ... @include(if: $v) { t @include(if: false) { id } } }",
        "query($v: Boolean! = true) { any { ... @include(if: $v) { __typename @skip(if: true) } } t { id } }",
        "query($v: Boolean! = true) { t { ... @include(if: $v) { id @include(if: false) } } }",
    ] {
        let plan = planner.plan(text, None);
        assert!(plan.is_ok(), "{text}: {plan:?}");
    }
    let emptied =
        planner.plan("query($v: Boolean!) { t { ... @include(if: $v) { id @skip(if: true) } } }", None);
    let emptied = format!("{emptied:?}");
    assert!(emptied.contains("{t{__typename}}"), "{emptied}");
}

#[test]
fn planning_does_not_lock_the_cache() {
    // Documents are planned on threads of low priority.
    let planner = test_planner();
    let checked =
        planner.check_document("{ t { id } }", None, u64::MAX).expect("a document").expect("no limit");
    planner.plan_checked(&checked, &CancellationToken::with_timeout(PLANNING_TIMEOUT)).expect("a plan");
    assert_eq!(planner.cache.bytes(), 0);
}

#[test]
fn planning_ends_when_its_token_is_cancelled_or_expires() {
    let planner = test_planner();
    let checked = planner
        .check_document("{ t { id b { id } } }", None, u64::MAX)
        .expect("a document")
        .expect("no limit");
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    for token in [cancelled, CancellationToken::with_timeout(Duration::ZERO)] {
        let errors = planner.plan_checked(&checked, &token).expect_err("no plan");
        assert_eq!(errors.iter().map(|error| error.code).collect::<Vec<_>>(), ["graphql-plan"]);
    }
    assert!(planner.plan_checked(&checked, &CancellationToken::new()).is_ok());
}

#[test]
fn cached_plans_are_charged_by_size_and_operation() {
    let planner = test_planner();
    planner.plan("{ t { id } }", None).expect("a plan");
    let small = planner.cache.bytes();
    let text = hostile::doubled_fragments(7, ["a", "of"]);
    planner.plan(&text, None).expect("a plan");
    let large = planner.cache.bytes() - small;
    assert!(large > 20 * text.len() && large > 20 * small, "{small} {large}");
    let many: String = (0..50).map(|number| format!("query Q{number} {{ t {{ ...F0 }} }} ")).collect();
    let many = many + text.trim_start_matches("query A { t { ...F0 } }");
    planner.plan(&many, Some("Q0")).expect("a plan");
    let first = planner.cache.bytes() - small - large;
    planner.plan(&many, Some("Q1")).expect("a plan");
    let second = planner.cache.bytes() - small - large - first;
    assert!(2 * second > first, "{first} {second}");
    for number in 0..50 {
        planner.plan(&many, Some(&format!("Q{number}"))).expect("a plan");
    }
    assert!(planner.cache.bytes() <= PLAN_CACHE_BYTES);
}
