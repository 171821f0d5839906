//! Generators of documents whose processing takes far more than their length suggests.

use std::fmt::Write;

/// Fragments that each spread the next one twice; the last one spreads an undefined fragment.
pub(crate) fn doubled_undefined_fragments(levels: usize) -> String {
    let mut text = "{ t { ...F0 } }".to_owned();
    for level in 0..levels {
        let _ = write!(text, " fragment F{level} on T {{ ...F{0} ...F{0} }}", level + 1);
    }
    text
}

/// Fragments that each spread the next one in two fields.
pub(crate) fn doubled_fragments(levels: usize, fields: [&str; 2]) -> String {
    let [one, other] = fields;
    let mut text = "query A { t { ...F0 } }".to_owned();
    for level in 0..levels {
        let _ = write!(
            text,
            " fragment F{level} on T {{ {one} {{ ...F{0} }} {other} {{ ...F{0} }} }}",
            level + 1
        );
    }
    let _ = write!(text, " fragment F{levels} on T {{ id }}");
    text
}

/// An unselected operation in the same document as a harmless one.
pub(crate) fn with_unselected_operation(harmless: &str, hostile: &str) -> String {
    format!("query Chosen {harmless} query Beside {hostile}")
}

/// Different fields with the same response key.
pub(crate) fn conflicting_fields(count: usize) -> String {
    let fields: String = (0..count).map(|number| format!("x: f{number} ")).collect();
    format!("{{ t {{ {fields} }} }}")
}

/// Spreads of undefined fragments.
pub(crate) fn undefined_spreads(count: usize) -> String {
    let spreads: String = (0..count).map(|number| format!("...F{number} ")).collect();
    format!("{{ t {{ {spreads} }} }}")
}

/// Nested fields that move between services.
pub(crate) fn service_hops(depth: usize, fields: [&str; 2]) -> String {
    let inner: String = (0..depth).map(|level| format!("{} {{ ", fields[level % 2])).collect();
    format!("{{ t {{ {inner} id {} }} }}", "} ".repeat(depth))
}

/// Leaves below a field with a long argument.
pub(crate) fn long_argument(bytes: usize, leaves: usize) -> String {
    let leaves: String = (0..leaves).map(|number| format!("a{number}: id ")).collect();
    format!("{{ t {{ of(text: \"{}\") {{ {leaves} }} }} }}", "x".repeat(bytes))
}

/// A chain of fragments that each spread the next one.
pub(crate) fn fragment_chain(length: usize) -> String {
    let mut text = "{ t { ...F0 } }".to_owned();
    for level in 0..length {
        let _ = write!(text, " fragment F{level} on T {{ id ...F{} }}", level + 1);
    }
    let _ = write!(text, " fragment F{length} on T {{ id }}");
    text
}

/// Objects of two types that each select further ones, so that the possible selections double at each level.
pub(crate) fn doubling_type_fragments(depth: usize) -> String {
    fn next_level(depth: usize) -> String {
        match depth {
            0 => "id".to_owned(),
            _ => format!("next {{ {} }}", type_fragments(depth - 1)),
        }
    }
    fn type_fragments(depth: usize) -> String {
        let below = next_level(depth);
        format!(
            "{below} ... on One {{ {} }} ... on Other {{ {} }}",
            nested_alias(depth, "one"),
            nested_alias(depth, "other")
        )
    }
    fn nested_alias(depth: usize, name: &str) -> String {
        (0..depth).fold(format!("{name}: id"), |inner, _| format!("next {{ {inner} }}"))
    }
    format!("{{ node {{ {} }} }}", type_fragments(depth))
}
