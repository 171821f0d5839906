//! Checks the linear-time figures against a walk of the whole expansion, and the grouped comparison of fields
//! against the specification's comparison of pairs.

use graphql_tools::parser::parse_query;
use graphql_tools::static_graphql::query::{Field, Value};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::plan::tests::test_planner;
use crate::plan::types::ClientTypeRef;

/// A selection set, a few levels deep, that spreads fragments with these numbers.
fn any_selection_set(fragments: std::ops::Range<usize>, depth: u32) -> BoxedStrategy<String> {
    let key = || prop_oneof![6 => Just(""), 1 => Just("x: "), 1 => Just("y: ")];
    let leaf = || {
        let leaf = select(vec!["id", "id", "f0", "f1", "no", "__typename"]);
        (key(), leaf).prop_map(|(key, leaf)| format!("{key}{leaf}"))
    };
    if depth == 0 {
        return prop::collection::vec(leaf(), 1..3).prop_map(|items| items.join(" ")).boxed();
    }
    let field = (
        key(),
        select(vec!["a", "b", "of(text: \"1\")", "of(text: \"2\")"]),
        any_selection_set(fragments.clone(), depth - 1),
    )
        .prop_map(|(key, field, inner)| format!("{key}{field} {{ {inner} }}"));
    let inline =
        any_selection_set(fragments.clone(), depth - 1).prop_map(|inner| format!("... on T {{ {inner} }}"));
    let bare = any_selection_set(fragments.clone(), depth - 1).prop_map(|inner| format!("... {{ {inner} }}"));
    let mut items = vec![leaf().boxed(), field.clone().boxed(), field.boxed(), inline.boxed(), bare.boxed()];
    if !fragments.is_empty() {
        items.push(fragments.clone().prop_map(|number| format!("...F{number}")).boxed());
        items.push(fragments.prop_map(|number| format!("...F{number}")).boxed());
    }
    prop::collection::vec(proptest::strategy::Union::new(items), 1..4)
        .prop_map(|items| items.join(" "))
        .boxed()
}

/// A document whose fragments spread only later ones.
fn any_document() -> impl Strategy<Value = String> {
    let fragments: Vec<_> = (0..5_usize).map(|number| any_selection_set(number + 1..5, 2)).collect();
    (any_selection_set(0..5, 3), fragments).prop_map(|(root, fragments)| {
        let fragments: String = fragments
            .iter()
            .enumerate()
            .map(|(number, inner)| format!(" fragment F{number} on T {{ {inner} }}"))
            .collect();
        format!("{{ t {{ {root} }} }}{fragments}")
    })
}

fn parse_document(text: &str) -> Document {
    parse_query::<String>(text).expect("a document").into_static()
}

/// Computes the same figures by walking the expansion.
fn naive_sizes(set: &SelectionSet, fragments: &FragmentIndex<'_>) -> SelectionSizes {
    let mut sum = SelectionSizes::default();
    for item in &set.items {
        let (below, is_field, is_alias) = match item {
            Selection::Field(field) => {
                (naive_sizes(&field.selection_set, fragments), true, field.alias.is_some())
            }
            Selection::InlineFragment(fragment) => {
                (naive_sizes(&fragment.selection_set, fragments), false, false)
            }
            Selection::FragmentSpread(spread) => {
                let fragment = fragments.get(&spread.fragment_name).expect("a fragment");
                (naive_sizes(&fragment.selection_set, fragments), false, false)
            }
        };
        sum.depth = sum.depth.max(below.depth + u64::from(is_field));
        sum.nesting = sum.nesting.max(below.nesting + 1);
        sum.aliases += below.aliases + u64::from(is_alias);
        sum.selections += below.selections + 1;
        // There are no lists.
        sum.cost += below.cost + u64::from(is_field);
        sum.fields += if is_field { 1 } else { below.fields };
    }
    sum
}

/// A field with the type that contains it.
type SelectedField<'d> = (&'d Field, TypeId);

fn expand_fields<'d>(
    set: &'d SelectionSet,
    parent: TypeId,
    fragments: &FragmentIndex<'d>,
    types: &ClientTypes,
) -> Vec<SelectedField<'d>> {
    let mut all = Vec::new();
    for item in &set.items {
        match item {
            Selection::Field(field) => all.push((field, parent)),
            Selection::InlineFragment(fragment) => {
                let ty = fragment
                    .type_condition
                    .as_ref()
                    .map_or(parent, |name| types.find(name.as_ref()).expect("a type"));
                all.extend(expand_fields(&fragment.selection_set, ty, fragments, types));
            }
            Selection::FragmentSpread(spread) => {
                let fragment = fragments.get(&spread.fragment_name).expect("a fragment");
                let ty = types.find(fragment.type_condition.as_ref()).expect("a type");
                all.extend(expand_fields(&fragment.selection_set, ty, fragments, types));
            }
        }
    }
    all
}

/// "FieldsInSetCanMerge" of the specification, pair by pair.
fn can_merge(fields: &[SelectedField<'_>], fragments: &FragmentIndex<'_>, types: &ClientTypes) -> bool {
    let key = |field: &Field| field.alias.clone().unwrap_or_else(|| field.name.clone());
    let mut pairs = fields.iter().enumerate().flat_map(|(place, one)| {
        fields[place + 1..].iter().filter(|other| key(one.0) == key(other.0)).map(move |other| (*one, *other))
    });
    pairs.all(|(one, other)| {
        if !same_shape(one, other, fragments, types) {
            return false;
        }
        let is_both = one.1 == other.1 || !types.is_object(one.1) || !types.is_object(other.1);
        !is_both
            || (one.0.name == other.0.name
                && sorted_arguments(one.0) == sorted_arguments(other.0)
                && can_merge(&merged_subfields(one, other, fragments, types), fragments, types))
    }) && fields.iter().all(|field| can_merge(&subfields(*field, fragments, types), fragments, types))
}

fn same_shape(
    one: SelectedField<'_>,
    other: SelectedField<'_>,
    fragments: &FragmentIndex<'_>,
    types: &ClientTypes,
) -> bool {
    let ty = |(field, parent): SelectedField<'_>| match field.name.as_str() {
        "__typename" => {
            ClientTypeRef::NonNull(Box::new(ClientTypeRef::Named(types.find("String").expect("a type"))))
        }
        name => types.field(parent, name).expect("a field").ty.clone(),
    };
    let (mut first, mut second) = (ty(one), ty(other));
    loop {
        (first, second) = match (first, second) {
            (ClientTypeRef::NonNull(first), ClientTypeRef::NonNull(second))
            | (ClientTypeRef::List(first), ClientTypeRef::List(second)) => (*first, *second),
            (ClientTypeRef::Named(first), ClientTypeRef::Named(second))
                if types.is_composite(first) && types.is_composite(second) =>
            {
                break;
            }
            (ClientTypeRef::Named(first), ClientTypeRef::Named(second)) => return first == second,
            _ => return false,
        };
    }
    let merged = merged_subfields(one, other, fragments, types);
    let key = |field: &Field| field.alias.clone().unwrap_or_else(|| field.name.clone());
    merged.iter().enumerate().all(|(place, one)| {
        let mut others = merged[place + 1..].iter().filter(|other| key(one.0) == key(other.0));
        others.all(|other| same_shape(*one, *other, fragments, types))
    })
}

fn subfields<'d>(
    (field, parent): SelectedField<'d>,
    fragments: &FragmentIndex<'d>,
    types: &ClientTypes,
) -> Vec<SelectedField<'d>> {
    match types.field(parent, &field.name) {
        Some(client_field) => {
            expand_fields(&field.selection_set, client_field.ty.named_type(), fragments, types)
        }
        None => Vec::new(),
    }
}

fn merged_subfields<'d>(
    one: SelectedField<'d>,
    other: SelectedField<'d>,
    fragments: &FragmentIndex<'d>,
    types: &ClientTypes,
) -> Vec<SelectedField<'d>> {
    let mut all = subfields(one, fragments, types);
    all.extend(subfields(other, fragments, types));
    all
}

fn sorted_arguments(field: &Field) -> Vec<(String, String)> {
    let text = |value: &Value| value.to_string();
    let mut arguments: Vec<_> =
        field.arguments.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    arguments.sort();
    arguments
}

/// A selection of objects of two types and of an interface.
fn any_typed_selection(depth: u32) -> BoxedStrategy<String> {
    let key = || prop_oneof![4 => Just(""), 1 => Just("x: "), 1 => Just("y: ")];
    let leaf = (key(), select(vec!["id", "id", "__typename"])).prop_map(|(key, leaf)| format!("{key}{leaf}"));
    if depth == 0 {
        return prop::collection::vec(leaf, 1..3).prop_map(|items| items.join(" ")).boxed();
    }
    let field =
        (key(), any_typed_selection(depth - 1)).prop_map(|(key, inner)| format!("{key}next {{ {inner} }}"));
    let part = (select(vec!["One", "Other", "Node"]), any_typed_selection(depth - 1))
        .prop_map(|(ty, inner)| format!("... on {ty} {{ {inner} }}"));
    prop::collection::vec(prop_oneof![leaf, field.clone(), field, part.clone(), part], 1..4)
        .prop_map(|items| items.join(" "))
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn figures_equal_those_of_the_expansion(text in any_document()) {
        let (planner, document) = (test_planner(), parse_document(&text));
        let fragments = FragmentIndex::new(&document).expect("no cycles");
        let book = FigureBook::new(&fragments, &planner.types);
        for definition in &document.definitions {
            match definition {
                Definition::Operation(operation) => {
                    let counted = book.measure_selections(operation_selections(operation), root_type(operation, &planner.types));
                    prop_assert_eq!(counted, naive_sizes(operation_selections(operation), &fragments), "{}", text);
                }
                Definition::Fragment(fragment) => {
                    let counted = book.fragment_sizes(&fragment.name);
                    prop_assert_eq!(counted, naive_sizes(&fragment.selection_set, &fragments), "{}", text);
                }
            }
        }
    }

    #[test]
    fn grouped_comparison_finds_the_same_conflicts_as_pairs(text in prop_oneof![any_document(), any_typed_selection(3).prop_map(|inner| format!("{{ node {{ {inner} }} }}"))]) {
        let (planner, document) = (test_planner(), parse_document(&text));
        let fragments = FragmentIndex::new(&document).expect("no cycles");
        let query = planner.types.query;
        let Definition::Operation(operation) = &document.definitions[0] else { panic!("no operation") };
        let fields = expand_fields(operation_selections(operation), query, &fragments, &planner.types);
        let wanted = can_merge(&fields, &fragments, &planner.types);
        let checked = overlap::check_overlap(&document, &fragments, &planner.types, 3000);
        prop_assert_eq!(checked.is_ok(), wanted, "{} {:?}", text, checked);
    }

    #[test]
    fn orders_fragments_or_rejects_cycles(spreads in prop::collection::vec((0..6_usize, 0..7_usize), 0..9)) {
        let fragment = |number: usize| {
            let own = spreads.iter().filter(|(from, _)| *from == number);
            let own: String = own.map(|(_, to)| format!("...F{to} ")).collect();
            format!(" fragment F{number} on T {{ id {own} }}")
        };
        let text = format!("{{ t {{ id }} }}{}", (0..6).map(fragment).collect::<String>());
        let document = parse_document(&text);
        // Whether some fragment reaches itself, or an undefined fragment.
        let mut reached: Vec<(usize, usize)> = spreads.clone();
        for _ in 0..7 {
            let further: Vec<_> = reached.iter().flat_map(|(from, over)| {
                spreads.iter().filter(move |(start, _)| start == over).map(move |(_, to)| (*from, *to))
            }).collect();
            reached.extend(further);
            reached.sort_unstable();
            reached.dedup();
        }
        let is_wrong = reached.iter().any(|(from, to)| from == to || *to == 6);
        match FragmentIndex::new(&document) {
            Err(_) => prop_assert!(is_wrong, "{}", text),
            Ok(index) => {
                prop_assert!(!is_wrong, "{}", text);
                let place = |number: usize| {
                    index.dependency_order().iter().position(|fragment| fragment.name == format!("F{number}"))
                };
                for (from, to) in &spreads {
                    prop_assert!(place(*to) < place(*from), "{}", text);
                }
                prop_assert_eq!(index.dependency_order().len(), 6);
            }
        }
    }
}
