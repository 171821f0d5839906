//! Property test: splitting a schema over services changes neither the clients' schema nor the possible
//! queries.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::plans::{field_queries, new_planner, plan_query};
use super::{compose_case, summary};

/// The fields of a type `T0`, `T1`...: the type of each field, and its service.
type GeneratedFields = Vec<(GeneratedFieldType, usize)>;

#[derive(Clone, Copy, Debug)]
enum GeneratedFieldType {
    Scalar(&'static str),
    Enum,
    Type(usize),
    List(usize),
    /// The interface that all types implement.
    Node,
}

/// The fields of `Query`, and those of each type.
#[derive(Clone, Debug)]
struct GeneratedSchema {
    root: GeneratedFields,
    types: Vec<GeneratedFields>,
}

const SERVICES: usize = 4;
const TYPES: usize = 4;

fn any_schema() -> impl Strategy<Value = GeneratedSchema> {
    let scalar = prop_oneof![Just("Int"), Just("String!"), Just("[Float!]"), Just("Boolean")];
    let of = prop_oneof![
        3 => scalar.prop_map(GeneratedFieldType::Scalar),
        1 => Just(GeneratedFieldType::Enum),
        2 => (0..TYPES).prop_map(GeneratedFieldType::Type),
        1 => (0..TYPES).prop_map(GeneratedFieldType::List),
        1 => Just(GeneratedFieldType::Node),
    ];
    let fields = prop::collection::vec((of, 0..SERVICES), 1..5);
    (fields.clone(), prop::collection::vec(fields, TYPES))
        .prop_map(|(root, types)| GeneratedSchema { root, types })
}

impl GeneratedSchema {
    /// Writes the schema as a case: every service has the keys of all types, and its own fields.
    fn split_by_service(&self, service_of: impl Fn(usize) -> usize) -> String {
        let mut case = String::new();
        let services: BTreeSet<usize> = (0..SERVICES).map(&service_of).collect();
        for service in services {
            let _ = writeln!(case, "# service: s{service} (v2)");
            case.push_str("interface Node { id: ID! } enum E { A B }\n");
            let own = |fields: &GeneratedFields| {
                let own = fields.iter().enumerate().filter(|(_, (_, of))| service_of(*of) == service);
                own.map(|(index, (of, _))| format!("  f{index}: {}\n", format_type(*of))).collect::<String>()
            };
            let root = own(&self.root);
            if !root.is_empty() {
                let _ = writeln!(case, "type Query {{\n{root}}}");
            }
            for (index, fields) in self.types.iter().enumerate() {
                let _ = writeln!(
                    case,
                    "type T{index} implements Node @key(fields: \"id\") {{\n  id: ID!\n{}}}",
                    own(fields)
                );
            }
        }
        case
    }
}

fn format_type(of: GeneratedFieldType) -> String {
    match of {
        GeneratedFieldType::Scalar(name) => name.to_owned(),
        GeneratedFieldType::Enum => "E".to_owned(),
        GeneratedFieldType::Type(index) => format!("T{index}"),
        GeneratedFieldType::List(index) => format!("[T{index}!]!"),
        GeneratedFieldType::Node => "Node".to_owned(),
    }
}

/// The lines of the summary that concern clients.
fn visible_lines(sdl: &str) -> BTreeSet<String> {
    summary::summarize(sdl).lines().filter(|line| !line.contains("@join__")).map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn splitting_a_schema_over_services_preserves_it(schema in any_schema()) {
        let whole = compose_case(&schema.split_by_service(|_| 0)).unwrap();
        let split = compose_case(&schema.split_by_service(|service| service)).unwrap();
        prop_assert_eq!(visible_lines(&whole), visible_lines(&split));
        let planner = new_planner(&split);
        for query in field_queries(&planner) {
            let planned = plan_query(&planner, &query);
            prop_assert!(planned.is_ok(), "{}: {:?}", query, planned);
        }
    }
}
