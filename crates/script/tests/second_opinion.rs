//! Compares the compiler's grammar of S with an acorn plugin that was written independently.
//!
//! Both must accept the same texts, and find the same constructs in accepted texts: the listings, every text
//! of the tests, and random programs. Needs Node.js and npm.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use diagnostics::DiagnosticSeverity;

#[path = "../src/fuzz/write.rs"]
#[expect(dead_code, reason = "the JavaScript generator is only used by the fuzz tests")]
mod write;

const SETUP: &str = "Node.js and npm are required: see `scripts/setup test`";

/// The name of a text, and the text.
type NamedText = (String, String);

/// The result of one parser for a text.
#[derive(Debug, PartialEq, serde::Deserialize)]
struct ParserResult {
    accepted: bool,
    error: String,
    constructs: Vec<(String, u32, u32)>,
}

/// The folder of the plugin with its packages, installed once.
static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acorn");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("second-opinion");
    std::fs::create_dir_all(&to).expect("a folder for the plugin");
    let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
    let lock = |folder: &Path| read(folder.join("package-lock.json"));
    let installed = to.join("node_modules/.package-lock.json").is_file() && lock(&from) == lock(&to);
    for file in ["package.json", "package-lock.json", "s.js", "opinions.js"] {
        std::fs::copy(from.join(file), to.join(file)).expect("a file of the plugin");
    }
    if !installed {
        let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        let npm = Command::new("npm").args(arguments).current_dir(&to).output();
        let ended = npm.unwrap_or_else(|error| panic!("npm: {error}; {SETUP}"));
        assert!(ended.status.success(), "npm ci: {}; {SETUP}", String::from_utf8_lossy(&ended.stderr));
    }
    to
});

fn parse_with_acorn(texts: &[NamedText]) -> Vec<ParserResult> {
    let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
    let mut node = Command::new("node");
    node.arg("opinions.js").current_dir(&*PLUGIN);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut node = node.spawn().unwrap_or_else(|error| panic!("node: {error}; {SETUP}"));
    let mut input = node.stdin.take().expect("stdin is piped");
    input.write_all(&serde_json::to_vec(&texts).expect("texts are JSON")).expect("node reads");
    drop(input);
    let output = node.wait_with_output().expect("node ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("opinions")
}

fn parse_with_script((_, text): &NamedText) -> ParserResult {
    let (outlined_constructs, diagnostics) = script::outline(text);
    let error = diagnostics.iter().find(|it| it.severity == DiagnosticSeverity::Error);
    let constructs = outlined_constructs
        .iter()
        .map(|it| (it.kind.to_owned(), it.position.line, it.position.column))
        .collect();
    let said = error.map_or_else(String::new, |error| error.render("a.sjs", text));
    ParserResult { accepted: error.is_none(), error: said, constructs }
}

/// Compares the results of both parsers, and returns the number of texts that both accept.
fn compare_parsers(texts: &[NamedText]) -> usize {
    let results = parse_with_acorn(texts);
    let mut approved = 0;
    let mut different = Vec::new();
    for (text, result) in texts.iter().zip(results) {
        let ours = parse_with_script(text);
        let same =
            ours.accepted == result.accepted && (!ours.accepted || ours.constructs == result.constructs);
        approved += usize::from(same && ours.accepted);
        if !same {
            let (name, text) = text;
            let at = ours.constructs.iter().zip(&result.constructs).position(|(a, b)| a != b);
            different.push(format!(
                "{name}\n{text}\ncompiler: {} {}\nacorn: {} {}\n{:?} / {:?} from {at:?}",
                ours.accepted,
                ours.error,
                result.accepted,
                result.error,
                ours.constructs.len(),
                result.constructs.len()
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        texts.len(),
        different.join("\n\n")
    );
    approved
}

/// Returns a POST handler with these statements.
fn post_handler(statements: &str) -> String {
    format!("service shop {{\n  res '/a' on POST {{\n    {statements}\n  }}\n}}\n")
}

#[test]
fn both_parsers_accept_the_listings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/listings");
    let files = std::fs::read_dir(folder).expect("the listings").map(|file| file.expect("a file").path());
    let text = |path: PathBuf| (path.display().to_string(), std::fs::read_to_string(path).expect("a text"));
    let mut texts: Vec<NamedText> = files.map(text).collect();
    texts.push(("words".into(), include_str!("words.js").into()));
    assert_eq!((compare_parsers(&texts), texts.len()), (7, 8), "all but listing 7 as printed");
}

#[test]
fn both_parsers_reject_every_invalid_text() {
    macro_rules! texts {
        ($($name:ident: $source:expr;)*) => {
            vec![$((stringify!($name).to_owned(), AsRef::<str>::as_ref(&$source).to_owned())),*]
        };
    }
    let texts: Vec<NamedText> = include!("bad.in");
    assert_eq!(compare_parsers(&texts), 0);
}

#[test]
fn both_parsers_agree_on_random_programs() {
    let program = |seed: u64| {
        let mut state = seed;
        let bytes: Vec<u8> = (0..200).map(|_| next_random_byte(&mut state)).collect();
        (format!("seed {seed}"), write::program(&bytes).0)
    };
    let texts: Vec<NamedText> = (0..2000).map(program).collect();
    let approved = compare_parsers(&texts);
    assert!(approved > 200, "{approved} of 2000 are valid");
}

/// Returns a byte that is a function of the state (SplitMix64).
fn next_random_byte(state: &mut u64) -> u8 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 56) as u8
}

#[test]
fn plain_javascript_is_never_parsed_as_s() {
    let mut read = 0;
    for folder in ["pass", "pass-explicit"] {
        let folder = PLUGIN.join("node_modules/test262-parser-tests").join(folder);
        for file in std::fs::read_dir(folder).expect("the tests") {
            let path = file.expect("a file").path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            assert_eq!(script::outline(&text).0, [], "{}", path.display());
            read += 1;
        }
    }
    assert!(read > 3000, "{read} files");
}
