//! How deeply a program can be nested at most.
//!
//! A parser by recursive descent needs stack for each level, and so do those that walk its tree. What opens a level is
//! punctuation or a keyword: a bracket, a prefix, an operator whose operand may hold another one, a word such as `new`.
//! All of them are counted, whether they are closed again or stand in a text; so the number is never too small, and for
//! programs that people write it is a tenth of their bytes. A program that has more of them than [`MAX`] is refused.

/// The levels that a program may have: three times what 32 KiB of TypeScript have.
pub(super) const MAX: usize = 10_000;

/// Punctuation that may open a level. What only separates or closes does not.
const OPENING: &[u8] = b"([{<>?!:=&|+-*/%^~.@`";

/// Words that may open a level, beside which no punctuation need stand.
const WORDS: &[&str] = &[
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

/// The number of levels that a program can't exceed.
pub(super) fn at_most(source: &str) -> usize {
    let punctuation = source.bytes().filter(|byte| OPENING.contains(byte)).count();
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    let words = source.split(|letter| !is_word(letter)).filter(|word| WORDS.binary_search(word).is_ok());
    // A word may be written with escapes.
    punctuation + words.count() + source.bytes().filter(|byte| *byte == b'\\').count()
}
