//! An upper bound of a program's nesting depth.
//!
//! A recursive descent parser needs stack for each level of nesting, and so do the visitors of its tree. A
//! level starts with punctuation or a keyword: a bracket, a prefix, an operator whose operand can contain
//! another one, a word such as `new`. All of these are counted, even if they are closed again or part of a
//! string, so that the number is never too small. In typical programs it is a tenth of the bytes. Programs
//! that exceed [`MAX_LEVELS`] are rejected.

/// The maximum number of levels: three times as many as 32 KiB of typical TypeScript have.
pub(super) const MAX_LEVELS: usize = 10_000;

/// Punctuation that can open a level, as opposed to separators and closing brackets.
const OPENING_PUNCTUATION: &[u8] = b"([{<>?!:=&|+-*/%^~.@`";

/// Words that can open a level without any punctuation.
const OPENING_WORDS: &[&str] = &[
    "abstract",
    "as",
    "asserts",
    "async",
    "await",
    "case",
    "class",
    "declare",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "for",
    "function",
    "if",
    "import",
    "in",
    "infer",
    "instanceof",
    "interface",
    "is",
    "keyof",
    "module",
    "namespace",
    "new",
    "of",
    "readonly",
    "return",
    "satisfies",
    "switch",
    "throw",
    "try",
    "type",
    "typeof",
    "unique",
    "void",
    "while",
    "with",
    "yield",
];

/// Returns an upper bound of the program's number of levels.
pub(super) fn max_levels(source: &str) -> usize {
    let punctuation = source.bytes().filter(|byte| OPENING_PUNCTUATION.contains(byte)).count();
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    let words =
        source.split(|letter| !is_word(letter)).filter(|word| OPENING_WORDS.binary_search(word).is_ok());
    // An escape sequence may be part of a word.
    punctuation + words.count() + source.bytes().filter(|byte| *byte == b'\\').count()
}
