//! Frames of the worker protocol between the gateway and S workers, as a worker that runs a malicious script
//! may send them.

use crate::ByteChoices;
use crate::generate::json::{self, KnownMemberNames};

/// The frame types that a worker may send.
const FRAME_KINDS: std::ops::RangeInclusive<u8> = 64..=78;
/// Names in headers, changes and queries.
const MEMBER_NAMES: KnownMemberNames<'static> =
    KnownMemberNames(&["location", "set-cookie", "content-type", "a", "length", "0", "cache-control"]);

/// Generates the output of a worker, with frames that mostly belong to these runs, and the positions at which
/// it is split.
#[must_use]
pub fn worker_output(choices: &mut ByteChoices<'_>, runs: &[u32]) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::new();
    for _ in 0..=choices.number_below(12) {
        write_frame(choices, runs, &mut out);
    }
    if choices.one_in(16) {
        out.truncate(choices.number_below(out.len() + 1));
    }
    let cuts = (0..choices.number_below(6)).map(|_| choices.number_below(out.len() + 1)).collect();
    (out, cuts)
}

/// Generates one frame.
pub fn write_frame(choices: &mut ByteChoices<'_>, runs: &[u32], out: &mut Vec<u8>) {
    let kind = if choices.one_in(32) {
        choices.byte()
    } else {
        FRAME_KINDS.start() + choices.number_below(15) as u8
    };
    let run = if choices.one_in(8) { choices.any_number() } else { choices.pick(runs) };
    let mut payload = Vec::new();
    write_payload(choices, kind, &mut payload);
    match choices.number_below(48) {
        0 => payload.push(choices.byte()),
        1 => payload.truncate(choices.number_below(payload.len() + 1)),
        2 if !payload.is_empty() => {
            let at = choices.number_below(payload.len());
            payload[at] = choices.byte();
        }
        _ => {}
    }
    let length = if choices.one_in(64) { choices.any_number() } else { payload.len() as u32 + 5 };
    out.extend(length.to_le_bytes());
    out.push(kind);
    out.extend(run.to_le_bytes());
    out.extend(payload);
}

fn write_payload(choices: &mut ByteChoices<'_>, kind: u8, out: &mut Vec<u8>) {
    match kind {
        64 => {
            write_number(choices, out);
            write_text(choices, out);
        }
        66 => {
            write_text(choices, out);
            write_text(choices, out);
        }
        67 => {
            write_number(choices, out);
            write_number(choices, out);
            out.extend([choices.byte() & 3, choices.byte() % 10]);
            write_text(choices, out);
            write_json_text(choices, out);
            write_body(choices, out);
        }
        68 => write_response(choices, out),
        69 => write_bytes(change_set(choices).as_bytes(), out),
        70 => {
            write_number(choices, out);
            write_number(choices, out);
            out.extend([choices.byte() % 4, 0]);
            write_text(choices, out);
            write_json_text(choices, out);
            write_json_text(choices, out);
        }
        71 => {
            let flags = choices.byte() & 3;
            out.push(flags);
            if flags & 1 != 0 {
                write_response(choices, out);
            }
            if flags & 2 != 0 {
                write_bytes(change_set(choices).as_bytes(), out);
            }
            write_number(choices, out);
        }
        72 => {
            out.push(choices.byte() % 8);
            write_number(choices, out);
            out.extend(status_bytes(choices));
            write_text(choices, out);
            write_text(choices, out);
        }
        73 => {
            out.push(choices.byte() % 5);
            write_text(choices, out);
        }
        75 => write_number(choices, out),
        77 => write_text(choices, out),
        78 => out.extend([choices.byte() % 4, 0]),
        _ => {}
    }
}

/// Generates a change set: cells, paths, and their changes.
#[must_use]
pub fn change_set(choices: &mut ByteChoices<'_>) -> String {
    let mut cells = Vec::new();
    for _ in 0..=choices.number_below(2) {
        let edits: Vec<String> = (0..choices.number_below(4)).map(|_| generate_edit(choices)).collect();
        cells.push(format!("[{},[{}]]", choices.number_below(4), edits.join(",")));
    }
    let text = format!("[{}]", cells.join(","));
    if choices.one_in(8) { json::text(choices, MEMBER_NAMES) } else { text }
}

fn generate_edit(choices: &mut ByteChoices<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    if choices.one_in(2) {
        parts.push(choices.number_below(6).to_string());
    }
    let keys = ["\"a\"", "0", "1", "\"length\"", "-1", "\"__proto__\"", "4294967295", "\"b\"", "1e9"];
    let path: Vec<&str> = (0..choices.number_below(4)).map(|_| choices.pick(&keys)).collect();
    parts.push(format!("[{}]", path.join(",")));
    for _ in 0..choices.number_below(3) {
        let mut value = String::new();
        json::write_value(choices, MEMBER_NAMES, 3, &mut value);
        parts.push(value);
    }
    format!("[{}]", parts.join(","))
}

fn write_response(choices: &mut ByteChoices<'_>, out: &mut Vec<u8>) {
    out.extend(status_bytes(choices));
    match choices.one_in(3) {
        true => write_json_text(choices, out),
        false => write_bytes(headers_json(choices).as_bytes(), out),
    }
    write_body(choices, out);
}

fn headers_json(choices: &mut ByteChoices<'_>) -> String {
    let names = [
        "location",
        "set-cookie",
        "content-type",
        "content-length",
        "connection",
        "x-a",
        "Bad Name",
        "transfer-encoding",
    ];
    let values = [
        "\"/a\"",
        "\"?q\"",
        "\"//b\"",
        "\"a\\r\\nb: c\"",
        "[\"a\",\"b\"]",
        "7",
        "null",
        "\"\u{e9}\"",
        "{}",
        "\"http://c/\"",
        "\"../..\"",
    ];
    let header =
        |choices: &mut ByteChoices<'_>| format!("\"{}\":{}", choices.pick(&names), choices.pick(&values));
    let fields: Vec<String> = (0..choices.number_below(4)).map(|_| header(choices)).collect();
    if fields.is_empty() { String::new() } else { format!("{{{}}}", fields.join(",")) }
}

fn status_bytes(choices: &mut ByteChoices<'_>) -> [u8; 2] {
    choices.pick(&[200_u16, 0, 101, 100, 204, 304, 404, 500, 99, 999, 1000, 65_535]).to_le_bytes()
}

fn write_body(choices: &mut ByteChoices<'_>, out: &mut Vec<u8>) {
    out.push(choices.byte() % 7);
    match choices.one_in(2) {
        true => write_json_text(choices, out),
        false => write_bytes(choices.bytes(64), out),
    }
}

fn write_json_text(choices: &mut ByteChoices<'_>, out: &mut Vec<u8>) {
    let text = json::text(choices, MEMBER_NAMES);
    write_bytes(text.as_bytes(), out);
}

fn write_text(choices: &mut ByteChoices<'_>, out: &mut Vec<u8>) {
    let texts = [
        "",
        "/a",
        "/a/{id}",
        "http://up/a?x=1",
        "http://gone/",
        "\u{e9}",
        "a:1:2\n at b",
        "..",
        "/a?x#y",
        "node",
    ];
    match choices.one_in(8) {
        true => write_bytes(choices.bytes(32), out),
        false => write_bytes(choices.pick(&texts).as_bytes(), out),
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn write_number(choices: &mut ByteChoices<'_>, out: &mut Vec<u8>) {
    let number = if choices.one_in(4) { choices.any_number() } else { choices.number_below(4) as u32 };
    out.extend(number.to_le_bytes());
}
