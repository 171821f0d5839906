//! Checks that the gateway and the client library agree on the format: the library decodes output of this
//! encoder, and this decoder reads output of a second encoder in JavaScript, on a thousand texts in Node.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::arbitrary_texts::any_text;
use super::{DedupForm, DedupLimits, decode, encode_text};

const TEXT_COUNT: usize = 1000;

/// Returns the output of `peer.js` for these lines.
fn run_node(lines: &str) -> String {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/javascript/test/peer.js");
    let mut node = Command::new("node");
    let node = node.arg(peer).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().expect("node is required: run `scripts/setup test` for instructions");
    let mut input = node.stdin.take().expect("its input");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(lines.as_bytes()));
        node.wait_with_output().expect("its end")
    });
    assert!(output.status.success(), "node: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn either_side_decodes_output_of_the_other() {
    let (strategy, mut runner) = (any_text(), TestRunner::deterministic());
    let limits = DedupLimits { min: 0, max: 1 << 20 };
    let (mut lines, mut encoded) = (String::new(), 0);
    for _ in 0..TEXT_COUNT {
        let text = strategy.new_tree(&mut runner).expect("a text").current();
        let wire = encode_text(&Bytes::from(text.clone()), DedupForm::Json, &limits).expect("JSON");
        encoded += usize::from(wire.is_some());
        let wire = wire.map(|wire| String::from_utf8(wire).expect("text"));
        lines.push_str(&serde_json::json!([text, wire]).to_string());
        lines.push('\n');
    }
    assert!(encoded > TEXT_COUNT / 10, "only {encoded} texts are worth a test");
    let told = run_node(&lines);
    assert_eq!(told.lines().count(), TEXT_COUNT);
    for (line, told) in lines.lines().zip(told.lines()) {
        let [plain, meant, wire]: [Option<String>; 3] = serde_json::from_str(told).expect("three texts");
        if let Some(meant) = meant {
            assert_eq!(Some(meant), plain, "{line}");
        }
        let decoded = decode(wire.unwrap_or_default().as_bytes(), 1 << 20).expect("a deduplicated text");
        assert_eq!(Some(String::from_utf8(decoded).expect("text")), plain, "{line}");
    }
}
