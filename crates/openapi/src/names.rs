//! Names for schemas: words in every language that is generated, each once, and the same ones for the same document.

use std::collections::{HashMap, HashSet};

/// Words that name no type in TypeScript, whoever declares one.
const RESERVED: &[&str] = &[
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

/// Parts of pointers that say nothing about what is there.
const SILENT: &[&str] = &["components", "schemas", "properties", "definitions", "paths", "$defs"];

/// The names that were given.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<String>,
    /// Where the next number is looked for, so that a thousand equal names take a thousand steps.
    next: HashMap<String, usize>,
}

impl Names {
    /// A name like this one that nobody has yet.
    pub(crate) fn give(&mut self, like: &str) -> String {
        let word = word(like);
        let next = self.next.entry(word.clone()).or_insert(2);
        let mut name = word.clone();
        while !self.taken.insert(name.clone()) {
            name = format!("{word}_{next}");
            *next += 1;
        }
        name
    }
}

/// A word that is like a text.
fn word(text: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut word: String = text.chars().map(plain).collect();
    if word.starts_with(|first: char| first.is_ascii_digit()) || word.is_empty() {
        word.insert(0, '_');
    }
    if RESERVED.contains(&&*word) {
        word.push('_');
    }
    word
}

/// What a schema is called that only a pointer names.
pub(crate) fn of_pointer(pointer: &str) -> String {
    let parts = pointer.split('/').filter(|part| !part.is_empty() && !SILENT.contains(part));
    parts.map(|part| part.replace("~1", "_").replace("~0", "_")).collect::<Vec<_>>().join("_")
}
