//! JSON texts that a hostile service or worker may send: deep, wide, repetitive, with unusual numbers and
//! strings, and sometimes invalid.

use crate::ByteChoices;

/// Numbers at the limits of interoperability between JSON parsers.
const NUMBERS: &[&str] =
    &["0", "1", "2", "-1", "-0", "7.0", "1e2", "1E400", "9007199254740993", "18446744073709551616", "0.1e-7"];
/// Strings with a special meaning in later stages: in paths, headers, other formats.
const TEXTS: &[&str] = &[
    "",
    "a",
    "id",
    "7",
    "..",
    ".",
    "/",
    "%2e",
    "?x=1",
    "#",
    "&",
    "a,b",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude00",
    "\\u002f",
    "\\r\\n",
    "\u{e9}",
    "$",
    "\\\\",
    "\\\"",
    "__typename",
    "A",
    "http://a/",
];
/// Insertions that make a text invalid JSON.
const MISTAKES: &[&str] = &[",", "]", "}", "\"", "nul", "01", "+1", "\u{feff}", "\\", "1.", "\u{7}", "NaN"];
/// The maximum length of one value in bytes.
const MAX_VALUE_LENGTH: usize = 64 << 10;
/// The maximum nesting of values, except for tests of depth itself.
const MAX_DEPTH: usize = 6;

/// Member names that have a meaning for the reader.
#[derive(Clone, Copy, Debug)]
pub struct KnownMemberNames<'n>(pub &'n [&'n str]);

/// A JSON text, which sometimes has a mistake.
#[must_use]
pub fn text(choices: &mut ByteChoices<'_>, names: KnownMemberNames<'_>) -> String {
    let mut out = String::new();
    write_value(choices, names, MAX_DEPTH, &mut out);
    if choices.one_in(16) {
        let at = out.floor_char_boundary(choices.number_below(out.len() + 1));
        match choices.one_in(4) {
            true => out.truncate(at),
            false => out.insert_str(at, choices.pick(MISTAKES)),
        }
    }
    out
}

/// Writes a value.
pub fn write_value(
    choices: &mut ByteChoices<'_>,
    names: KnownMemberNames<'_>,
    depth: usize,
    out: &mut String,
) {
    let kinds = if depth == 0 || out.len() > MAX_VALUE_LENGTH { 5 } else { 12 };
    match choices.number_below(kinds) {
        0 => out.push_str("null"),
        1 => out.push_str(if choices.one_in(2) { "true" } else { "false" }),
        2 => out.push_str(choices.pick(NUMBERS)),
        3 => out.push_str(&choices.number_below(16).to_string()),
        4 => write_text(choices, out),
        5..8 => write_object(choices, names, depth, out),
        8..10 => write_array(choices, names, depth, out),
        10 => write_repeated(choices, names, depth, out),
        _ => write_nested(choices, names, out),
    }
}

fn write_text(choices: &mut ByteChoices<'_>, out: &mut String) {
    out.push('"');
    let text = choices.pick(TEXTS);
    let times = if choices.one_in(16) { 1 << choices.number_below(13) } else { 1 };
    out.push_str(&text.repeat(times));
    out.push('"');
}

fn write_object(choices: &mut ByteChoices<'_>, names: KnownMemberNames<'_>, depth: usize, out: &mut String) {
    out.push('{');
    for place in 0..choices.number_below(5) {
        let separator = if place > 0 { "," } else { "" };
        let KnownMemberNames(known) = names;
        let name =
            if known.is_empty() || choices.one_in(8) { choices.pick(TEXTS) } else { choices.pick(known) };
        out.push_str(&format!("{separator}\"{name}\":"));
        write_value(choices, names, depth - 1, out);
    }
    out.push('}');
}

fn write_array(choices: &mut ByteChoices<'_>, names: KnownMemberNames<'_>, depth: usize, out: &mut String) {
    out.push('[');
    for place in 0..choices.number_below(5) {
        out.push_str(if place > 0 { "," } else { "" });
        write_value(choices, names, depth - 1, out);
    }
    out.push(']');
}

/// An array that repeats one value.
fn write_repeated(
    choices: &mut ByteChoices<'_>,
    names: KnownMemberNames<'_>,
    depth: usize,
    out: &mut String,
) {
    let mut item = String::new();
    write_value(choices, names, depth.min(2) - 1, &mut item);
    let most = (MAX_VALUE_LENGTH / (item.len() + 1)).max(1);
    let times = (1_usize << choices.number_below(15)).min(most);
    out.push('[');
    out.push_str(&vec![item; times].join(","));
    out.push(']');
}

/// A deeply nested value.
fn write_nested(choices: &mut ByteChoices<'_>, names: KnownMemberNames<'_>, out: &mut String) {
    let times = 1 << choices.number_below(13);
    let (open, close) = if choices.one_in(2) { ("[", "]") } else { ("{\"a\":", "}") };
    out.push_str(&open.repeat(times));
    write_value(choices, names, 0, out);
    out.push_str(&close.repeat(times));
}
