//! Files generated from the tables of `query-abi`, so that C, docs and Rust can't disagree:
//! `sdk/c/orfa_abi.h`, and the table of host functions in docs/query.md.
//!
//! Only `write` and `compare` access files. docs/config.md is generated from the config's structs, which
//! requires a build of the gateway, and docs/benchmarks.md from the benches' results: tests of `gateway` and
//! `benches` compare them, and `write` runs these tests in a mode that writes the pages.

use std::process::Command;

use anyhow::Context;
use query_abi::{AbiCode, FailureKind, HOST_FUNCTIONS, HOST_MODULE, HostFunction, JsonKind, ResponsePart};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use crate::{CheckFindings, files};

const PREAMBLE: &str = "\
/* The raw ABI of an ORFA query. GENERATED from crates/query-abi by `cargo xtask generate`: don't edit.
 *
 * These are the host's own functions, exactly as a module imports them. To write a query, include
 * orfa.h, which is built on them. Addresses and lengths are 32 bits wide; text needs no NUL. */
#ifndef ORFA_ABI_H
#define ORFA_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

/* A future, or the response that it became. Positive; a negative `orfa_code` if no call was made. */
typedef int32_t orfa_handle;

/* A header of a request. */
typedef struct orfa_header_field {
    const char *name;
    uint32_t name_len;
    const char *value;
    uint32_t value_len;
} orfa_header_field;

/* A request. The host part of `url` is the name of a registered service. */
typedef struct orfa_request {
    const char *method;
    uint32_t method_len;
    const char *url;
    uint32_t url_len;
    const orfa_header_field *headers;
    uint32_t header_count;
    const void *body;
    uint32_t body_len;
} orfa_request;

/* The result of a call. `status` is 0 if there is no response; then `error` is an `orfa_code`. */
typedef struct orfa_response {
    int32_t status;
    int32_t error;
    uint32_t headers_len;
    uint32_t body_len;
} orfa_response;

/* A value of a JSON body. `kind` is an `orfa_json_kind`; `len` counts the bytes of a text, the items of an
 * array or the members of an object. */
typedef struct orfa_json_value {
    uint32_t kind;
    uint32_t len;
    union {
        uint64_t whole; /* as int64_t if it is negative */
        double real;
        struct {
            uint32_t text; /* the address of a text, 0 if it did not fit; the byte length of a container's text */
            uint32_t node; /* the position of the value, which identifies it in the functions below */
        };
    };
} orfa_json_value;
";

const CLOSING: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

/// The C header.
const HEADER: &str = "sdk/c/orfa_abi.h";
/// The page with the table of host functions between these marks.
const PAGE: &str = "docs/query.md";
const BEGIN: &str = "<!-- generated from crates/query-abi by `cargo xtask generate` -->\n";
const END: &str = "<!-- end of generated text -->\n";

/// Writes every generated file that is out of date.
pub(crate) fn write_outdated() -> anyhow::Result<CheckFindings> {
    for (path, text) in outdated_files()? {
        std::fs::write(files::repository_root().join(path), text).with_context(|| path.to_owned())?;
        println!("wrote {path}");
    }
    write_test_pages()
}

/// Runs the tests of `gateway` and `benches` that compare docs/config.md and docs/benchmarks.md in the mode
/// that writes them.
fn write_test_pages() -> anyhow::Result<CheckFindings> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--quiet", "--package", "gateway", "--package", "benches", "--lib", "--"]);
    cargo.args(["config::reference", "page::tests"]);
    let status = cargo.env("ORFA_GENERATE", "1").current_dir(files::repository_root()).status()?;
    let failed = || "docs/config.md or docs/benchmarks.md could not be written: see above".to_owned();
    Ok((!status.success()).then(failed).into_iter().collect())
}

/// Reports every generated file that is out of date.
pub(crate) fn compare_files() -> anyhow::Result<CheckFindings> {
    let outdated = outdated_files()?.into_iter();
    Ok(outdated.map(|(path, _)| format!("{path} is out of date: run `cargo xtask generate`")).collect())
}

fn outdated_files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let read = |path: &str| std::fs::read_to_string(files::repository_root().join(path)).unwrap_or_default();
    let page = splice(&read(PAGE), &function_table()).context(PAGE)?;
    let wanted = [(HEADER, c_header()), (PAGE, page)];
    Ok(wanted.into_iter().filter(|(path, text)| read(path) != *text).collect())
}

/// Replaces the text between the marks of a page.
fn splice(page: &str, text: &str) -> anyhow::Result<String> {
    let (before, rest) =
        page.split_once(BEGIN).context("the mark at the beginning of the generated text is missing")?;
    let (_, after) = rest.split_once(END).context("the mark at the end of the generated text is missing")?;
    Ok([before, BEGIN, text, END, after].concat())
}

/// The host functions as a Markdown table.
fn function_table() -> String {
    let row = |function: &HostFunction| {
        let (signature, doc) = (c_signature(function, ""), function.doc.replace('|', "\\|"));
        format!("| `{signature}` | {doc} |\n")
    };
    let rows: String = HOST_FUNCTIONS.iter().map(row).collect();
    format!("| import of `{HOST_MODULE}` | what it does |\n| --- | --- |\n{rows}")
}

/// The text of `sdk/c/orfa_abi.h`.
fn c_header() -> String {
    let parts = [
        (ResponsePart::Body as i32, "ORFA_BODY", "the body, after content decoding"),
        (ResponsePart::Headers as i32, "ORFA_HEADERS", "the headers, as lines that end in CR LF"),
    ];
    let codes = AbiCode::ALL.iter().map(|(code, name, doc)| (*code as i32, *name, *doc));
    let failures = FailureKind::ALL.iter().map(|(kind, name, doc)| (*kind as i32, *name, *doc));
    let kinds = JsonKind::ALL.iter().map(|(kind, name, doc)| (*kind as i32, *name, *doc));
    let functions: String = HOST_FUNCTIONS.iter().map(c_function).collect();
    [
        PREAMBLE,
        &c_enum(
            "orfa_code",
            "Results of host functions, and reasons for which a call has no response.",
            codes,
        ),
        &c_enum("orfa_part", "The parts of a response that Response_read reads.", parts.into_iter()),
        &c_enum("orfa_json_kind", "The kinds of values in a JSON body.", kinds),
        &c_enum("orfa_failure", "Failures with which a program ends itself.", failures),
        &functions,
        CLOSING,
    ]
    .concat()
}

fn c_enum<'a>(name: &str, doc: &str, items: impl Iterator<Item = (i32, &'a str, &'a str)>) -> String {
    let lines: String =
        items.map(|(number, name, doc)| format!("    {name} = {number}, /* {doc} */\n")).collect();
    format!("\n/* {doc} */\nenum {name} {{\n{lines}}};\n")
}

fn c_function(function: &HostFunction) -> String {
    let HostFunction { name, doc, .. } = function;
    let attributes = format!("__attribute__((import_module(\"{HOST_MODULE}\"), import_name(\"{name}\")))");
    format!("\n/* {} */\n{attributes}\n{};\n", wrap_comment(doc), c_signature(function, "orfa_host_"))
}

/// The declaration of a function in C.
fn c_signature(function: &HostFunction, prefix: &str) -> String {
    let HostFunction { name, params, result, .. } = function;
    let params: Vec<_> = params.iter().map(|(name, spelling, _)| c_parameter(spelling, name)).collect();
    let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
    let result = result.map_or("void", |(spelling, _)| spelling);
    format!("{result} {prefix}{name}({params})")
}

/// A parameter such as `const char *name` or `uint32_t name`, without a space after a star.
fn c_parameter(spelling: &str, name: &str) -> String {
    let space = if spelling.ends_with('*') { "" } else { " " };
    format!("{spelling}{space}{name}")
}

/// Wraps a comment at a hundred characters.
fn wrap_comment(text: &str) -> String {
    let options = Options::new(100)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::wrap(&text.replace('`', ""), options).join("\n * ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_header_is_up_to_date() {
        let committed = include_str!("../../sdk/c/orfa_abi.h");
        assert_eq!(committed, c_header(), "run `cargo xtask generate`");
    }

    #[test]
    fn replaces_only_text_between_the_marks() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(splice(&page, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}after\n"));
        assert!(splice("no marks", "new\n").is_err());
    }

    #[test]
    fn every_host_function_is_declared_with_its_types() {
        let header = c_header();
        assert!(
            header.contains("int32_t orfa_host_Response_get(orfa_handle future, orfa_response *response);")
        );
        assert!(header.contains("int64_t orfa_host_clock(void);"));
        for function in HOST_FUNCTIONS {
            assert!(header.contains(&format!("import_name(\"{}\")", function.name)));
        }
    }
}
