//! Conversion of names in documents to valid GraphQL names.

use std::collections::{HashMap, HashSet};

/// Type names with a predefined meaning.
const RESERVED_TYPE_NAMES: [&str; 15] = [
    "Query",
    "Mutation",
    "Subscription",
    "Int",
    "Float",
    "String",
    "Boolean",
    "ID",
    "JSON",
    "Long",
    "Date",
    "DateTime",
    "_Any",
    "_Entity",
    "_Service",
];

/// Converts a text to a valid name; valid names remain unchanged. Names that begin with two underscores are
/// reserved by GraphQL.
pub(super) fn valid_name(text: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut name: String = text.chars().map(plain).collect();
    // `pagination[page]` becomes `pagination_page`.
    if !text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_') {
        name.truncate(name.trim_end_matches('_').len());
    }
    if name.starts_with("__") {
        name = format!("_{}", name.trim_start_matches('_'));
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) || name.is_empty() {
        name.insert(0, '_');
    }
    name
}

/// Converts `list-repo_hooks`, `repos/listHooks` or `ListRepoHooks` to a name such as `listRepoHooks`.
pub(super) fn to_camel_case(text: &str) -> String {
    let pascal = to_pascal_case(text);
    // A leading acronym, as in `APIKey`, remains unchanged; `Get` becomes `get`.
    let capitals = pascal.chars().take_while(char::is_ascii_uppercase).count();
    let lowered = if capitals == pascal.len() { capitals } else { usize::from(capitals == 1) };
    let (first, rest) = pascal.split_at(lowered);
    valid_name(&format!("{}{rest}", first.to_ascii_lowercase()))
}

/// Converts a text to a name such as `ListRepoHooks`.
pub(super) fn to_pascal_case(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(capitalize).collect()
}

fn capitalize(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// A generator of unique type names.
#[derive(Debug, Default)]
pub(super) struct TypeNames {
    used_names: HashSet<String>,
    /// The next suffix to try for each name.
    next_suffix: HashMap<String, usize>,
}

impl TypeNames {
    /// Returns an unused name based on `like`. A reserved name gets the service's name as a prefix.
    pub(super) fn assign_name(&mut self, like: &str, service: &str) -> String {
        let mut name = valid_name(like);
        if RESERVED_TYPE_NAMES.contains(&&*name) {
            name = self::valid_name(&(to_pascal_case(service) + &name));
        }
        unique_name(&mut self.used_names, &mut self.next_suffix, name)
    }
}

/// Returns a name that is unique among its siblings, based on `like`.
pub(super) fn unique_name(
    taken: &mut HashSet<String>,
    next: &mut HashMap<String, usize>,
    like: String,
) -> String {
    if taken.insert(like.clone()) {
        return like;
    }
    let number = next.entry(like.clone()).or_insert(2);
    loop {
        let name = format!("{like}_{number}");
        *number += 1;
        if taken.insert(name.clone()) {
            return name;
        }
    }
}
