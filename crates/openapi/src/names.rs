//! Names for schemas: unique, valid identifiers in every generated language, and deterministic for a
//! document.

use std::collections::{HashMap, HashSet};

/// Words that can't name a declared type in TypeScript.
const RESERVED_WORDS: &[&str] = &[
    "any",
    "as",
    "asserts",
    "async",
    "await",
    "bigint",
    "boolean",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "declare",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "infer",
    "instanceof",
    "interface",
    "intrinsic",
    "is",
    "keyof",
    "let",
    "module",
    "namespace",
    "never",
    "new",
    "null",
    "number",
    "object",
    "out",
    "package",
    "private",
    "protected",
    "public",
    "readonly",
    "return",
    "satisfies",
    "static",
    "string",
    "super",
    "switch",
    "symbol",
    "this",
    "throw",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unique",
    "unknown",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Segments of pointers that do not describe the target.
const GENERIC_SEGMENTS: &[&str] = &["components", "schemas", "properties", "definitions", "paths", "$defs"];

/// The names in use.
#[derive(Debug, Default)]
pub(crate) struct UsedNames {
    used_names: HashSet<String>,
    /// The next number to try for a name, so that a thousand equal names take a thousand steps.
    next_suffixes: HashMap<String, usize>,
}

impl UsedNames {
    /// Returns an unused name that resembles this one.
    pub(crate) fn unique_name(&mut self, like: &str) -> String {
        let word = to_identifier(like);
        let next = self.next_suffixes.entry(word.clone()).or_insert(2);
        let mut name = word.clone();
        while !self.used_names.insert(name.clone()) {
            name = format!("{word}_{next}");
            *next += 1;
        }
        name
    }
}

/// Converts a text to a similar identifier.
fn to_identifier(text: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut word: String = text.chars().map(plain).collect();
    if word.starts_with(|first: char| first.is_ascii_digit()) || word.is_empty() {
        word.insert(0, '_');
    }
    if RESERVED_WORDS.contains(&&*word) {
        word.push('_');
    }
    word
}

/// Returns a name for a schema that only has a pointer.
pub(crate) fn name_from_pointer(pointer: &str) -> String {
    let parts = pointer.split('/').filter(|part| !part.is_empty() && !GENERIC_SEGMENTS.contains(part));
    parts.map(|part| part.replace("~1", "_").replace("~0", "_")).collect::<Vec<_>>().join("_")
}
