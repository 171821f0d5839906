//! Fuzz targets for client input: requests, limits, TypeScript programs, modules. See `fuzz/src/lib.rs`.

use std::sync::LazyLock;

use futures_util::FutureExt;
use http::Request;
use services::body;

use crate::limits::{LimitKind, RunLimits};
use crate::program::check;
use crate::protocol::QueryRequest;
use crate::{QueryLimitsConfig, RunRecording, typescript};

/// Builds a request from a text: headers in the first lines, then the body.
fn request_from_text(text: &[u8]) -> Option<Request<services::StreamedServiceBody>> {
    let mut request = Request::post("/query");
    let mut rest = text;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(end);
        rest = &after[1..];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        request = request.header(&line[..colon], &line[colon + 1..]);
    }
    request.body(body::full(rest.to_vec())).ok()
}

#[test]
fn parses_a_request_or_blames_the_client() {
    let words = &[
        "content-type:",
        "text/javascript\n",
        "application/wasm\n",
        "multipart/form-data; boundary=x\n",
        "--x",
        "\r\n",
        "--x--\r\n",
        "content-disposition: form-data; name=\"program\"\r\n\r\n",
        "name=\"input\"",
        "orfa-input:",
        "3\n",
        "orfa-limit:",
        "cpu=1",
        ", ",
        "calls=0\n",
        "content-encoding:",
        "gzip\n",
        "br\n",
        "zstd\n",
        "deflate\n",
        "prefer: calls\n",
        "orfa-cache:",
        "code",
        "instance",
        ";token=:YWJj:",
        ";hash=:",
        "orfa-trust:",
        ";keyid=\"k\"",
        "\n\n",
        "18446744073709551615\n",
        "content-type: text/typescript\r\n\r\n",
    ];
    ::fuzz::run("query_requests", words, |text: &[u8]| {
        let config = QueryLimitsConfig::default();
        let Some(request) = request_from_text(text) else { return };
        let (head, body) = request.into_parts();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(3600);
        match QueryRequest::read_program_request(&head, body, &config, None, deadline)
            .now_or_never()
            .expect("the body is there already")
        {
            Ok((which, ask)) => {
                let program = which.program.map_or(0, |program| program.len() as u64);
                assert!(program <= config.program_bytes.0 && ask.input.len() as u64 <= config.request_body.0);
            }
            Err(error) => {
                assert_eq!(services::ToProblem::fault(&error), services::FaultParty::Client, "{error}")
            }
        }
    });
}

#[test]
fn a_client_cannot_raise_limits() {
    let words = &[
        "cpu",
        "deadline",
        "memory",
        "calls",
        "=",
        ", ",
        "1",
        "999999999999999",
        "?1",
        ";",
        "\"",
        "(",
        ")",
        "-",
    ];
    let caps = RunLimits::from_config(&QueryLimitsConfig::default());
    ::fuzz::check(words, |text: &[u8]| {
        let Ok(granted) = caps.with_client_limits(&String::from_utf8_lossy(text)) else { return };
        assert!(
            LimitKind::ALL.into_iter().all(|limit| (1..=caps.value(limit)).contains(&granted.value(limit)))
        );
    });
}

#[test]
fn strips_types_without_moving_tokens() {
    let words = &[
        "export default ",
        "async ",
        "(",
        ")",
        "{",
        "}",
        "=>",
        "let a",
        ": ",
        "number",
        " as ",
        "<T>",
        "<",
        ">",
        ";",
        "interface I ",
        "type T = ",
        "enum E ",
        "class C ",
        "private ",
        "declare ",
        "namespace N ",
        "import ",
        "from ",
        "'x'",
        "`",
        "${",
        "/*",
        "*/",
        "//",
        "\n",
        "?",
        "!",
        "@",
        "satisfies ",
        "abstract ",
        "\u{2028}",
        "ä",
        "[",
        "]",
        ",",
        "=",
        "...",
        "?.",
        "/",
        "\\u{",
        "async<T>(",
        "unique symbol",
        "asserts a is ",
        "export =",
        "accessor ",
    ];
    ::fuzz::run("typescript", words, |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        match typescript::strip(text) {
            Ok(stripped) => {
                assert_eq!(
                    stripped.lines().count(),
                    text.lines().count(),
                    "lines have moved:\n{text}\n{stripped}"
                );
                // `strip` itself verifies that this is JavaScript. Read as TypeScript, it may mean something
                // else: `a <T>` and a line break are a comparison that continues, or an instantiation that
                // does not.
                let places =
                    |text: &str| text.char_indices().filter(|(_, char)| !char.is_whitespace()).count();
                assert!(places(&stripped) <= places(text), "the text has grown:\n{text}\n{stripped}");
            }
            Err(error) => assert!(!error.message.is_empty()),
        }
    });
}

#[test]
fn checks_a_damaged_module_without_panic() {
    static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        wat::parse_str(
            r#"(module
                (import "env:c@1" "memory" (memory 5))
                (import "env:c@1" "__indirect_function_table" (table 0 funcref))
                (import "orfa" "done" (func $done (param i32 i32)))
                (type $t (func (param i32 i32)))
                (func (export "orfa") (param i32 i32) (call $done (i32.const 0) (i32.const 1)))
                (global i32 (i32.const 7))
                (elem (i32.const 1) func $done)
                (data (i32.const 65536) "some data"))"#,
        )
        .unwrap()
    });
    ::fuzz::run(
        "query_modules",
        &["\0asm\u{1}\0\0\0", "\u{1}", "\u{2}", "env:c@1", "orfa", "memory"],
        |bytes: &[u8]| {
            let _ = check::check_module(bytes, &|name| name == "memory");
            let _ = check::check_module(&::fuzz::damage_input(&GOOD, bytes), &|_| true);
        },
    );
}

#[test]
fn reads_or_rejects_a_damaged_recording() {
    const GOOD: &str = r#"{"version":1,"program":{"media_type":"application/wasm","sha256":"ab","environment":null},"services":["a"],
        "methods":["GET"],"safe_only":false,"limits":{"cpu":1},"input":{"base64":"AAE="},
        "calls":[{"function":"http","with":{"url":"http://a/"},"result":1},{"function":"return","ended":[1],"part":[0,1]}],
        "responses":{"1":{"answer":{"status":200,"headers":"a: b\r\n","body":"c"}},"2":{"error":-7}},
        "end":{"problem":{"code":"limit-cpu","detail":"so","line":1,"column":null,"inside":true}}}"#;
    assert!(RunRecording::parse(GOOD.as_bytes()).is_ok());
    let words = &[
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "1",
        "-1",
        "null",
        "\"version\":2",
        "\"ended\"",
        "\"base64\"",
        "AA==",
    ];
    ::fuzz::check(words, |bytes: &[u8]| {
        for text in [bytes.to_vec(), ::fuzz::damage_input(GOOD.as_bytes(), bytes)] {
            let Err(error) = RunRecording::parse(&text) else { continue };
            assert!(!error.to_string().is_empty());
        }
    });
}
