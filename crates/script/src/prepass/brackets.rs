//! Diagnostics for unbalanced brackets and unterminated tokens.

use std::ops::Range;

use crate::diagnostic::{DiagnosticCode, ScriptDiagnostic};
use crate::lex::{FrameId, FrameKind, LexicalError, TokenId, TokenList, UnterminatedKind};
use crate::line::LineStarts;

/// Returns diagnostics for the lexical errors. Of mismatched brackets only the first is reported, since it
/// causes the others.
pub(super) fn explain(lexed: &TokenList<'_>) -> Vec<ScriptDiagnostic> {
    let mut found: Vec<ScriptDiagnostic> =
        lexed.faults.iter().filter_map(|fault| unterminated(*fault)).collect();
    if found.is_empty() {
        found.extend(lexed.faults.iter().find_map(|fault| bracket(lexed, *fault)));
    }
    found
}

fn unterminated(fault: LexicalError) -> Option<ScriptDiagnostic> {
    let LexicalError::Unterminated { what, start, end } = fault else { return None };
    let (name, help) = match what {
        UnterminatedKind::String => {
            ("string", "close it with the quote that it began with, on the same line")
        }
        UnterminatedKind::Template => ("template", "close it with a backtick"),
        UnterminatedKind::Regex => {
            ("regular expression", "close it with `/` on the same line; `\\/` is a slash in it")
        }
        UnterminatedKind::Comment => ("comment", "close it with `*/`"),
    };
    let message = format!("this {name} never ends");
    Some(ScriptDiagnostic::error(
        DiagnosticCode::Unterminated,
        start..end,
        message,
        format!("the {name} begins here"),
        help,
    ))
}

fn bracket(lexed: &TokenList<'_>, fault: LexicalError) -> Option<ScriptDiagnostic> {
    match fault {
        LexicalError::Unterminated { .. } => None,
        LexicalError::Mismatched { close, open: Some(open) } => Some(mismatched(lexed, close, open)),
        LexicalError::Mismatched { close, open: None } => Some(superfluous(lexed, close)),
        LexicalError::Unclosed { open } => unclosed(lexed, open),
    }
}

fn span(lexed: &TokenList<'_>, id: TokenId) -> Range<usize> {
    lexed.tokens.get(id).map_or(0..0, |token| token.start..token.end)
}

fn closer(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

fn mismatched(lexed: &TokenList<'_>, close: TokenId, open: TokenId) -> ScriptDiagnostic {
    let (text, opened) = (first(lexed.text(close)), lexed.text(open));
    let message = format!("mismatched `{text}`");
    let label = format!("`{}` is expected before this", closer(opened));
    let help = format!("close the `{opened}` with `{}`, or remove the `{text}`", closer(opened));
    ScriptDiagnostic::error(DiagnosticCode::Bracket, span(lexed, close), message, label, help)
        .and(span(lexed, open), format!("this `{opened}` is still open"))
}

/// Returns the closing bracket's own character: the `}` of a template's tail.
fn first(text: &str) -> &str {
    text.chars().next().map_or("", |c| &text[..c.len_utf8()])
}

fn superfluous(lexed: &TokenList<'_>, close: TokenId) -> ScriptDiagnostic {
    let text = first(lexed.text(close));
    let message = format!("unexpected `{text}`: nothing is open here");
    let help = "remove it, or look for a block above that was closed too early";
    let start = span(lexed, close).start;
    let error = ScriptDiagnostic::error(
        DiagnosticCode::Bracket,
        start..start + text.len(),
        message,
        "this closes nothing",
        help,
    );
    match closed_early(lexed) {
        Some(id) => error.and(span(lexed, id), "this one is probably superfluous"),
        None => error,
    }
}

fn unclosed(lexed: &TokenList<'_>, innermost: FrameId) -> Option<ScriptDiagnostic> {
    let end = lexed.source.len();
    let open = lexed.frames[innermost].open?;
    let opened = lexed.text(open);
    if closer(opened) != "}" {
        let message = format!("unexpected end of file, a {} is missing", closer(opened));
        let help = format!("close the `{opened}` with `{}`", closer(opened));
        let error =
            ScriptDiagnostic::error(DiagnosticCode::Bracket, end..end, message, "the file ends here", help);
        return Some(error.and(span(lexed, open), format!("this `{opened}` is still open")));
    }
    let suspect = left_open(lexed).unwrap_or(open);
    let help = "close the block where it is to end; the indentation shows which one it probably is";
    let message = "unexpected end of file, a } is missing";
    let error =
        ScriptDiagnostic::error(DiagnosticCode::MissingBrace, end..end, message, "the file ends here", help);
    Some(error.and(span(lexed, suspect), "this block is probably the one left open"))
}

/// Returns the probable brace without a closing one, as judged by the layout.
fn left_open(lexed: &TokenList<'_>) -> Option<TokenId> {
    misaligned(lexed, |opening, closing| closing < opening).or_else(|| handler_with_resource(lexed))
}

/// Returns a closing brace that is indented further than the line of its opening brace.
fn closed_early(lexed: &TokenList<'_>) -> Option<TokenId> {
    let close = |open: TokenId| lexed.closing(open);
    misaligned(lexed, |opening, closing| closing > opening).map(close)
}

/// Returns the first and innermost opening brace whose closing one begins a line with a wrong indentation.
fn misaligned(lexed: &TokenList<'_>, wrong: impl Fn(usize, usize) -> bool) -> Option<TokenId> {
    let lines = LineStarts::new(lexed.source);
    let indent = |id: TokenId| {
        let text = lines.text(lines.position(span(lexed, id).start).line);
        text.chars().take_while(|c| c.is_whitespace()).count()
    };
    let column = |id: TokenId| lines.position(span(lexed, id).start).column as usize - 1;
    let mut braces: Vec<(TokenId, TokenId)> =
        lexed.frames.iter().filter_map(|frame| Some((frame.close?, frame.open?))).collect();
    braces.sort_unstable();
    let begins_line = |id: TokenId| indent(id) == column(id);
    let found = braces.into_iter().find(|&(close, open)| {
        lexed.is(close, "}") && begins_line(close) && wrong(indent(open), indent(close))
    });
    found.map(|(_, open)| open)
}

/// Returns the brace of a handler whose body contains a resource with a literal path. That resource was
/// probably meant to follow the handler.
fn handler_with_resource(lexed: &TokenList<'_>) -> Option<TokenId> {
    let mut resources = (0..lexed.tokens.len()).filter(|&id| {
        let token = lexed.tokens[id];
        let literal = lexed.tokens.get(id + 1).is_some_and(|next| next.kind == crate::lex::TokenKind::String);
        token.starts
            && lexed.is_name(id, "res")
            && literal
            && (lexed.is_name(id + 2, "on") || lexed.is(id + 2, "{"))
    });
    resources.find_map(|id| {
        let frame = lexed.frames[lexed.tokens[id].frame];
        if frame.kind == FrameKind::Handler { frame.open } else { None }
    })
}
