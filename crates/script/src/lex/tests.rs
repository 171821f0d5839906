//! Tokens, against those that oxc's parser reads: on plain JavaScript they have to be the same.

use oxc_allocator::Allocator;
use oxc_parser::{Parser, config::TokensParserConfig};
use oxc_span::SourceType;
use proptest::prelude::*;

use super::*;

/// The bounds of oxc's tokens; none if this is no JavaScript.
fn of_oxc(source: &str, kind: SourceType) -> Option<Vec<(usize, usize)>> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, kind).with_config(TokensParserConfig).parse();
    if parsed.diagnostics.has_errors() {
        return None;
    }
    let tokens = parsed.tokens.iter().map(|token| (token.start() as usize, token.end() as usize));
    Some(tokens.filter(|(start, end)| start < end).collect())
}

fn of_ours(source: &str) -> Vec<(usize, usize)> {
    lex(source).tokens.iter().map(|token| (token.start, token.end)).collect()
}

/// The first token that the two see otherwise, as text.
fn difference(source: &str, kind: SourceType) -> Option<String> {
    let (theirs, ours) = (of_oxc(source, kind)?, of_ours(source));
    let at = (0..theirs.len().max(ours.len())).find(|&at| theirs.get(at) != ours.get(at))?;
    let text =
        |bounds: Option<&(usize, usize)>| bounds.map_or("nothing", |&(start, end)| &source[start..end]);
    let place = theirs.get(at).map_or(source.len(), |token| token.0);
    let before = crate::line::Lines::new(source).position(place);
    Some(format!("{before}: oxc has `{}`, this lexer `{}`", text(theirs.get(at)), text(ours.get(at))))
}

#[test]
#[ignore]
fn dev_corpus() {
    let list = std::fs::read_to_string(std::env::var("CORPUS").expect("files")).expect("list");
    for file in list.split_whitespace() {
        let Ok(source) = std::fs::read_to_string(file) else { continue };
        let kind = SourceType::mjs();
        let (t, kind) = match of_oxc(&source, kind) {
            Some(t) => (Some(t), kind),
            None => (of_oxc(&source, SourceType::cjs()), SourceType::cjs()),
        };
        let verdict = match t {
            None => "not parsed".to_owned(),
            Some(_) => {
                let faults = lex(&source).faults.len();
                format!(
                    "{:?} faults {faults} edits {}",
                    difference(&source, kind),
                    crate::prepass::encode(&source).text != source
                )
            }
        };
        println!("{file}: {verdict}");
    }
}
